//! Commands: what they get, what comes back, how they end.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use lego::sandbox::SandboxError;

use crate::support::{Kind, each, shell};

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_its_folder_environment_input_and_status() {
    each(async |fixture| {
        let mut spec = fixture.spec();
        spec.env = BTreeMap::from([
            ("FROM_TASK".to_owned(), "task".to_owned()),
            ("BOTH".to_owned(), "task".to_owned()),
        ]);
        let sandbox = fixture.create(spec).await;
        let mut request =
            shell("cat; echo $FROM_TASK $BOTH; pwd; cat hello.txt; echo err >&2; echo out > /dev/stdout; exit 7");
        request.stdin = Some("typed\n".to_owned());
        request.env.insert("BOTH".to_owned(), "command".to_owned());
        let ran = sandbox.exec(request).await.unwrap();
        let expected = format!("typed\ntask command\n{}\nhello\nerr\nout\n", sandbox.path("/app"));
        assert_eq!(
            (ran.output.as_str(), ran.exit_code, ran.timed_out),
            (expected.as_str(), 7, false)
        );

        let mut request = shell("pwd");
        request.cwd = Some("/app/sub".to_owned());
        assert_eq!(
            sandbox.exec(request).await.unwrap().output.trim(),
            sandbox.path("/app/sub")
        );
        assert_eq!(sandbox.exec(shell("kill -9 $$")).await.unwrap().exit_code, 137);
        assert_eq!(
            sandbox.exec(shell("printf 'a\\377b'")).await.unwrap().output,
            "a\u{fffd}b"
        );

        // A program or folder that the agent removed is the command's failure, not the environment's.
        let mut request = shell("true");
        request.argv = vec!["no-such-program".to_owned()];
        let ran = sandbox.exec(request).await.unwrap();
        assert_eq!(ran.exit_code, 127);
        assert!(ran.output.contains("no-such-program"), "{}", ran.output);
        let mut request = shell("true");
        request.cwd = Some("/app/gone".to_owned());
        assert_eq!(sandbox.exec(request).await.unwrap().exit_code, 127);
        sandbox.destroy().await.unwrap();
        sandbox.destroy().await.unwrap();
        assert!(matches!(sandbox.exec(shell("true")).await, Err(SandboxError::Gone(_))));
        assert_eq!(fs::read_to_string(fixture.source.join("hello.txt")).unwrap(), "hello\n");
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_deadline_ends_the_command_and_all_that_it_started() {
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        for script in [
            "sleep 1000",
            "while true; do :; done",
            "sh -c 'sleep 1000 & sleep 1000' | cat",
            "setsid sleep 1000 & setsid -w sleep 999",
        ] {
            let mut request = shell(script);
            request.timeout = Duration::from_millis(300);
            let start = Instant::now();
            let ran = sandbox.exec(request).await.unwrap();
            assert_eq!((ran.exit_code, ran.timed_out), (124, true), "{script}");
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{script}: {:?}",
                start.elapsed()
            );
            assert_eq!(sandbox.end_processes().await.unwrap(), 0, "{script} left something");
        }
        // A caller who no longer waits ends the command too.
        let waited = tokio::time::timeout(Duration::from_millis(200), sandbox.exec(shell("sleep 1000"))).await;
        assert!(waited.is_err());
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert_eq!(sandbox.end_processes().await.unwrap(), 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_left_over_are_counted_and_ended_even_when_they_hide() {
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let start = Instant::now();
        let ran = sandbox
            .exec(shell(
                "sleep 1000 & (setsid setsid sh -c 'trap \"\" TERM HUP; sleep 1000; sleep 1000' &) ; echo done",
            ))
            .await;
        assert_eq!(ran.unwrap().output, "done\n");
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "a process that holds the output open was waited for"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(sandbox.end_processes().await.unwrap() >= 2);
        assert_eq!(sandbox.end_processes().await.unwrap(), 0);
        // Still alive after that.
        assert_eq!(sandbox.exec(shell("echo still")).await.unwrap().output, "still\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_output_is_bounded() {
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let mut request = shell("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last");
        request.output_limit = 1000;
        let ran = sandbox.exec(request).await.unwrap();
        assert!(
            ran.output.starts_with("first\n") && ran.output.ends_with("\nlast\n"),
            "{}",
            ran.output
        );
        assert!(
            ran.output.len() < 1100 && ran.truncated == 20_000_012 - 1000,
            "{}",
            ran.truncated
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_at_once_do_not_meet() {
    each(async |fixture| {
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..16 {
            let (fixture, mut spec) = (fixture.clone(), fixture.spec());
            spec.name = format!("trial-{number}");
            tasks.spawn(async move {
                let sandbox = fixture.create(spec).await;
                sandbox.exec(shell(&format!("echo {number} > mine"))).await.unwrap();
                let all =
                    futures_util::future::join_all((0..4).map(|_| sandbox.exec(shell("sleep 0.05; cat mine")))).await;
                for ran in all {
                    assert_eq!(ran.unwrap().output, format!("{number}\n"));
                }
                sandbox.destroy().await.unwrap();
            });
        }
        tasks.join_all().await;
        // A cluster may have room for a few at a time.
        let bound = if fixture.kind() == Kind::Kubernetes { 240 } else { 30 };
        assert!(start.elapsed() < Duration::from_secs(bound), "{:?}", start.elapsed());
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold() {
    each(async |fixture| {
        let mut spec = fixture.spec();
        spec.limits.memory = Some(256 << 20);
        spec.limits.pids = Some(64);
        spec.limits.disk = Some(32 << 20);
        let sandbox = fixture.create(spec).await;
        let mut request = shell("x=$(head -c 600000000 /dev/zero | tr '\\0' x); echo survived");
        request.timeout = Duration::from_mins(1);
        let ran = sandbox.exec(request).await.unwrap();
        assert!(
            ran.output.contains("memory limit") && !ran.output.contains("survived"),
            "{}",
            ran.output
        );
        let ran = sandbox
            .exec(shell("head -c 100000000 /dev/zero > big; echo $?; ls -l big"))
            .await
            .unwrap();
        assert!(!ran.output.starts_with("0\n"), "{}", ran.output);
        // How many processes a pod has is its kubelet's to bound.
        if fixture.kind() != Kind::Kubernetes {
            let mut request = shell("i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done; wait");
            request.timeout = Duration::from_secs(20);
            let ran = sandbox.exec(request).await.unwrap();
            assert!(
                ran.output.contains("fork") || ran.output.contains("esource"),
                "{} {}",
                ran.exit_code,
                ran.output
            );
        }
        sandbox.end_processes().await.unwrap();
        assert_eq!(sandbox.exec(shell("echo ok")).await.unwrap().output, "ok\n");
    })
    .await;
}
