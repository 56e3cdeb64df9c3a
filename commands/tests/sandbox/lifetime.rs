//! How sandboxes end, whatever happens to their owner.

use std::time::{Duration, Instant};

use lego::sandbox::SandboxError;

use crate::support::{Fixture, Kind, each, processes_of, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_lifetime_ends_everything() {
    each(async |fixture| {
        let mut spec = fixture.spec();
        spec.lifetime = Duration::from_millis(700);
        let sandbox = fixture.create(spec).await;
        for command in ["sleep 1000", "true"] {
            let ran = sandbox.exec(shell(command)).await;
            let is_over = matches!(ran, Err(SandboxError::Gone(_) | SandboxError::Ended { .. }));
            assert!(is_over, "{ran:?}");
        }
        sandbox.destroy().await.unwrap();
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_start_that_nobody_waits_for_leaves_nothing() {
    each(async |fixture| {
        for patience in [0, 1, 2, 5, 10, 20] {
            let start = fixture.backend.create(fixture.spec());
            let started = tokio::time::timeout(Duration::from_millis(patience), start).await;
            drop(started);
        }
        let deadline = Instant::now() + Duration::from_secs(10);
        while fixture.left() > 0 {
            assert!(Instant::now() < deadline, "{} sandboxes are left", fixture.left());
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

/// The process that a test below kills: makes a sandbox, says so, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn owner_to_be_killed() {
    let Some(fixture) = Fixture::from_parent() else { return };
    let sandbox = fixture.create(fixture.spec()).await;
    let marker = std::env::var("LEGO_TEST_MARKER").unwrap();
    let busy = shell(&format!(
        "(setsid sleep {marker} &) ; sleep {marker} & touch ready; wait"
    ));
    let _ = sandbox.exec(busy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_no_process_and_reap_takes_the_rest() {
    ends_with_its_owner("86", |owner| vec!["-KILL".to_owned(), owner.to_string()]).await;
}

/// As when a terminal is closed, or by `timeout`.
#[tokio::test(flavor = "multi_thread")]
async fn a_signal_to_the_owners_group_leaves_no_process() {
    ends_with_its_owner("87", |owner| {
        vec!["-TERM".to_owned(), "--".to_owned(), format!("-{owner}")]
    })
    .await;
}

/// Ends the owner of a busy sandbox by `kill` with these arguments.
async fn ends_with_its_owner(prefix: &str, kill: fn(u32) -> Vec<String>) {
    each(async |fixture| {
        // A pod's init waits some minutes for its host to come back; its run's Lease is tested by the peers.
        if fixture.kind() == Kind::Kubernetes {
            return;
        }
        let marker = format!("{prefix}{:06}", std::process::id());
        let mut owner = fixture.spawn_owner("lifetime::owner_to_be_killed", &marker);
        let deadline = Instant::now() + Duration::from_secs(30);
        while processes_of(&marker) < 2 {
            assert!(Instant::now() < deadline, "the owner did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(
            fixture.backend.reap().await.unwrap().is_empty(),
            "a live owner's sandbox was reaped"
        );
        let killed = std::process::Command::new("kill").args(kill(owner.id())).status();
        assert!(killed.unwrap().success());
        owner.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while processes_of(&marker) > 0 {
            assert!(Instant::now() < deadline, "processes outlived their owner");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fixture.backend.reap().await.unwrap().len(), 1);
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_sandbox_is_gone() {
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        sandbox.exec(shell("(setsid sleep 7777 &)")).await.unwrap();
        drop(sandbox);
        let deadline = Instant::now() + Duration::from_secs(10);
        while fixture.left() > 0 {
            assert!(Instant::now() < deadline);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_executable_is_named() {
    let fixture = Fixture::with(|options| options.init_exe = "/nonexistent/lego".into());
    let error = fixture
        .backend
        .create(fixture.spec())
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(error.contains("/nonexistent/lego"), "{error}");
    fixture.assert_nothing_left();
}
