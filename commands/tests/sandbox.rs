//! Local sandboxes for real: each test runs in namespaces and in the fallback, and (as root) once more
//! as an unprivileged user.
#![expect(clippy::unwrap_used, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, Instant};

use lego::sandbox::{ExecRequest, Isolation, Network, SandboxError};
use support::{Fixture, both, processes_of};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

fn shell(script: &str) -> ExecRequest {
    ExecRequest::shell(script)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_command_has_its_folder_environment_input_and_status() {
    both(async |fixture| {
        let mut spec = fixture.spec();
        spec.env = BTreeMap::from([("FROM_TASK".to_owned(), "task".to_owned()), ("BOTH".to_owned(), "task".to_owned())]);
        let sandbox = fixture.create(spec).await;
        let mut request = shell("cat; echo $FROM_TASK $BOTH; pwd; cat hello.txt; echo err >&2; echo out > /dev/stdout; exit 7");
        request.stdin = Some("typed\n".to_owned());
        request.env.insert("BOTH".to_owned(), "command".to_owned());
        let ran = sandbox.exec(request).await.unwrap();
        let expected = format!("typed\ntask command\n{}\nhello\nerr\nout\n", sandbox.path("/app"));
        assert_eq!((ran.output.as_str(), ran.exit_code, ran.timed_out), (expected.as_str(), 7, false));

        let mut request = shell("pwd");
        request.cwd = Some("/app/sub".to_owned());
        assert_eq!(sandbox.exec(request).await.unwrap().output.trim(), sandbox.path("/app/sub"));
        assert_eq!(sandbox.exec(shell("kill -9 $$")).await.unwrap().exit_code, 137);
        assert_eq!(sandbox.exec(shell("printf 'a\\377b'")).await.unwrap().output, "a\u{fffd}b");

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
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        for script in ["sleep 1000", "while true; do :; done", "sh -c 'sleep 1000 & sleep 1000' | cat", "setsid sleep 1000 & setsid -w sleep 999"] {
            let mut request = shell(script);
            request.timeout = Duration::from_millis(300);
            let start = Instant::now();
            let ran = sandbox.exec(request).await.unwrap();
            assert_eq!((ran.exit_code, ran.timed_out), (124, true), "{script}");
            assert!(start.elapsed() < Duration::from_secs(5), "{script}: {:?}", start.elapsed());
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
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let start = Instant::now();
        let ran = sandbox.exec(shell("sleep 1000 & (setsid setsid sh -c 'trap \"\" TERM HUP; sleep 1000; sleep 1000' &) ; echo done")).await;
        assert_eq!(ran.unwrap().output, "done\n");
        assert!(start.elapsed() < Duration::from_secs(5), "a process that holds the output open was waited for");
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
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let mut request = shell("echo first; head -c 20000000 /dev/zero | tr '\\0' x; echo; echo last");
        request.output_limit = 1000;
        let ran = sandbox.exec(request).await.unwrap();
        assert!(ran.output.starts_with("first\n") && ran.output.ends_with("\nlast\n"), "{}", ran.output);
        assert!(ran.output.len() < 1100 && ran.truncated == 20_000_012 - 1000, "{}", ran.truncated);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sixteen_at_once_do_not_meet() {
    both(async |fixture| {
        let start = Instant::now();
        let mut tasks = tokio::task::JoinSet::new();
        for number in 0..16 {
            let (fixture, mut spec) = (fixture.clone(), fixture.spec());
            spec.name = format!("trial-{number}");
            tasks.spawn(async move {
                let sandbox = fixture.create(spec).await;
                sandbox.exec(shell(&format!("echo {number} > mine"))).await.unwrap();
                let all = futures_util::future::join_all((0..4).map(|_| sandbox.exec(shell("sleep 0.05; cat mine")))).await;
                for ran in all {
                    assert_eq!(ran.unwrap().output, format!("{number}\n"));
                }
                sandbox.destroy().await.unwrap();
            });
        }
        tasks.join_all().await;
        assert!(start.elapsed() < Duration::from_secs(30), "{:?}", start.elapsed());
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_nowhere_in_and_out() {
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let outside = fixture.folder().join("outside");
        fs::create_dir(&outside).unwrap();
        fs::set_permissions(&outside, fs::Permissions::from_mode(0o777)).unwrap();
        fs::write(outside.join("secret"), "secret").unwrap();
        fs::set_permissions(outside.join("secret"), fs::Permissions::from_mode(0o666)).unwrap();
        let plant = format!("ln -s {0} out; ln -s {0}/secret file; mkdir d; ln -s ../../../../../../../../{0} d/up; ln -s ../../x d/away; echo ok > d/ok; ln -s ok d/link", outside.display());
        assert_eq!(sandbox.exec(shell(&plant)).await.unwrap().exit_code, 0);

        // Up: through a planted link.
        let payload = fixture.folder().join("payload");
        fs::create_dir(&payload).unwrap();
        fs::write(payload.join("x"), "x").unwrap();
        fs::write(payload.join("secret"), "overwritten").unwrap();
        for to in ["/app/out", "/app/out/deeper", "/app/d/up", "/app/file"] {
            let _ = sandbox.upload(&payload, to).await;
            let _ = sandbox.upload(&payload.join("x"), to).await;
        }
        assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "secret");
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);

        // Down: neither the link's target nor a link to the host arrives.
        let to = fixture.folder().join("down");
        for from in ["/app/out/secret", "/app/file"] {
            let done = sandbox.download(from, &to.join("file")).await;
            assert!(!fs::read_to_string(to.join("file")).is_ok_and(|text| text == "secret"), "{from}: {done:?}");
        }
        sandbox.download("/app/d", &to.join("d")).await.unwrap();
        assert_eq!(fs::read_to_string(to.join("d/link")).unwrap(), "ok\n");
        assert!(to.join("d/away").symlink_metadata().is_err());
        assert!(matches!(sandbox.download("/app/none", &to.join("none")).await, Err(SandboxError::NotFound { .. })));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn files_arrive_and_changes_are_seen() {
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        assert!(sandbox.snapshot_diff().await.unwrap().is_empty());
        let ran = sandbox.exec(shell("echo more >> hello.txt; rm run.sh; mkdir -p new/dir; echo x > new/dir/file; cat sub/deep")).await;
        assert_eq!(ran.unwrap().output, "deep\n");
        assert_eq!(sandbox.snapshot_diff().await.unwrap(), ["hello.txt", "new/dir/file", "run.sh"]);

        sandbox.upload(&fixture.source, "/logs/artifacts/copy").await.unwrap();
        let ran = sandbox.exec(shell("\"$LEGO_LOGS_DIR/artifacts/copy/run.sh\"")).await.unwrap();
        assert_eq!((ran.output.as_str(), ran.exit_code), ("ran\n", 0));
        sandbox.upload(&fixture.source.join("hello.txt"), "/app/a/b/c.txt").await.unwrap();
        assert_eq!(sandbox.exec(shell("cat a/b/c.txt")).await.unwrap().output, "hello\n");
        let down = fixture.folder().join("came");
        sandbox.download("/logs/artifacts", &down).await.unwrap();
        assert_eq!(fs::read_to_string(down.join("copy/sub/deep")).unwrap(), "deep\n");
        let missing = sandbox.upload(&fixture.folder().join("missing"), "/app/x").await;
        assert!(matches!(missing, Err(SandboxError::Transfer { .. })), "{missing:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reserved_folder_is_new_after_a_reset() {
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        for path in ["/logs/verifier", "/tests"] {
            let inside = sandbox.path(path);
            let plant = format!("echo 1 > {inside}/reward.txt; mkdir {inside}/d; chmod 000 {inside}/d; rmdir {inside}; rm -rf {inside}; ln -sf /app {inside}");
            sandbox.exec(shell(&plant)).await.unwrap();
            for _ in 0..2 {
                sandbox.reset_dir(path).await.unwrap();
                let seen = sandbox.exec(shell(&format!("ls -A {inside}; [ ! -L {inside} ] && echo x > {inside}/new && cat {inside}/new"))).await;
                assert_eq!(seen.unwrap().output, "x\n", "{path}");
            }
        }
        assert!(sandbox.reset_dir("/app").await.is_err());
        assert_eq!(sandbox.exec(shell("cat hello.txt")).await.unwrap().output, "hello\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_proxy_is_reached() {
    let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let proxy = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request).await;
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\n\r\nthe proxy").await;
        }
    });
    let other = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let forbidden = other.local_addr().unwrap();
    both(async |fixture| {
        let mut spec = fixture.spec();
        spec.network = Network::Proxy(proxy);
        let sandbox = fixture.create(spec).await;
        let inside: SocketAddr = sandbox.proxy_url().unwrap().trim_start_matches("http://").parse().unwrap();
        let get = |address: SocketAddr| {
            let mut request = shell(&format!(
                "exec 3<>/dev/tcp/{}/{} && echo GET / >&3 && cat <&3", address.ip(), address.port()
            ));
            request.argv[0] = "bash".to_owned();
            request.timeout = Duration::from_secs(5);
            request
        };
        let ran = sandbox.exec(get(inside)).await.unwrap();
        assert!(ran.output.ends_with("the proxy"), "{}", ran.output);
        for address in [forbidden, "192.0.2.1:80".parse().unwrap()] {
            let ran = sandbox.exec(get(address)).await.unwrap();
            assert_ne!(ran.exit_code, 0, "{address} was reached: {}", ran.output);
        }
        let sandbox = fixture.create(fixture.spec()).await;
        assert_eq!(sandbox.proxy_url(), None);
        assert_ne!(sandbox.exec(get(proxy)).await.unwrap().exit_code, 0);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_hosts_files_are_not_there() {
    both(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        let secret = fixture.folder().join("solution.sh");
        fs::write(&secret, "the answer").unwrap();
        let probe = format!("cat {}; cat {}/hello.txt; ls /home/* /work /root/.ssh /etc/shadow; echo x > /usr/x; echo x > /etc/x", secret.display(), fixture.source.display());
        let ran = sandbox.exec(shell(&probe)).await.unwrap();
        assert!(!ran.output.contains("the answer"), "{}", ran.output);
        assert!(!ran.output.contains("\nhello"), "{}", ran.output);
        assert_ne!(ran.exit_code, 0);
        if sandbox.isolation() == Isolation::Namespaces {
            let ran = sandbox.exec(shell("ls /; echo $$; ls /proc | grep -c '^[0-9]'; hostname; ls -A /tests /solution")).await.unwrap();
            assert!(!ran.output.contains("home") && !ran.output.contains("opt"), "{}", ran.output);
            let denied = sandbox.exec(shell("mount -t tmpfs x /tmp; unshare -Ur true; echo 1 > /proc/sys/kernel/hostname; kill -9 1; cat /proc/1/environ; ls /proc/1/fd; echo alive")).await.unwrap();
            assert!(denied.output.ends_with("alive\n") && denied.output.matches("denied").count() + denied.output.matches("not permitted").count() + denied.output.matches("Read-only").count() >= 4, "{}", denied.output);
        }
        // Nothing of the host process's environment.
        let env = sandbox.exec(shell("env; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'")).await.unwrap().output;
        assert!(!env.contains("CARGO"), "{env}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_hold() {
    both(async |fixture| {
        let mut spec = fixture.spec();
        spec.limits.memory = Some(256 << 20);
        spec.limits.pids = Some(64);
        spec.limits.disk = Some(32 << 20);
        let sandbox = fixture.create(spec).await;
        let mut request = shell("x=$(head -c 600000000 /dev/zero | tr '\\0' x); echo survived");
        request.timeout = Duration::from_secs(60);
        let ran = sandbox.exec(request).await.unwrap();
        assert!(ran.output.contains("memory limit") && !ran.output.contains("survived"), "{}", ran.output);
        let ran = sandbox.exec(shell("head -c 100000000 /dev/zero > big; echo $?; ls -l big")).await.unwrap();
        assert!(!ran.output.starts_with("0\n"), "{}", ran.output);
        let mut request = shell("i=0; while [ $i -lt 200 ]; do sleep 5 & i=$((i+1)); done; wait");
        request.timeout = Duration::from_secs(20);
        let ran = sandbox.exec(request).await.unwrap();
        assert!(ran.output.contains("fork") || ran.output.contains("esource"), "{} {}", ran.exit_code, ran.output);
        sandbox.end_processes().await.unwrap();
        assert_eq!(sandbox.exec(shell("echo ok")).await.unwrap().output, "ok\n");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lifetime_ends_everything() {
    both(async |fixture| {
        let mut spec = fixture.spec();
        spec.lifetime = Duration::from_millis(700);
        let sandbox = fixture.create(spec).await;
        let ran = sandbox.exec(shell("sleep 1000")).await;
        assert!(matches!(ran, Err(SandboxError::Gone(_))), "{ran:?}");
        assert!(matches!(sandbox.exec(shell("true")).await, Err(SandboxError::Gone(_))));
        sandbox.destroy().await.unwrap();
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_folder_becomes_an_overlay() {
    let fixture = Fixture::with(|options| options.copy_limit = 3);
    if support::is_root() {
        // Root copies always; the unprivileged run of this suite covers it.
        return;
    }
    symlink("hello.txt", fixture.source.join("link")).unwrap();
    let sandbox = fixture.create(fixture.spec()).await;
    if sandbox.isolation() != Isolation::Namespaces {
        return;
    }
    assert_eq!(sandbox.exec(shell("cat link; grep -c overlay /proc/mounts")).await.unwrap().output, "hello\n1\n");
    assert!(sandbox.snapshot_diff().await.unwrap().is_empty());
    sandbox.exec(shell("echo more >> hello.txt; rm link; rm -r sub; mkdir sub; echo n > sub/new; chmod 600 run.sh; chmod 755 run.sh")).await.unwrap();
    assert_eq!(sandbox.snapshot_diff().await.unwrap(), ["hello.txt", "link", "sub/deep", "sub/new"]);
    assert_eq!(fs::read_to_string(fixture.source.join("hello.txt")).unwrap(), "hello\n");
    sandbox.destroy().await.unwrap();
    fixture.assert_nothing_left();
}

/// The process that a test below kills: makes a sandbox, says so, and waits.
#[tokio::test(flavor = "multi_thread")]
async fn owner_to_be_killed() {
    let Some(fixture) = Fixture::from_parent() else { return };
    let sandbox = fixture.create(fixture.spec()).await;
    let marker = std::env::var("LEGO_TEST_MARKER").unwrap();
    let busy = shell(&format!("(setsid sleep {marker} &) ; sleep {marker} & touch ready; wait"));
    let _ = sandbox.exec(busy).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_owner_leaves_no_process_and_reap_takes_the_rest() {
    both(async |fixture| {
        let marker = format!("86{:06}", std::process::id());
        let mut owner = fixture.spawn_owner("owner_to_be_killed", &marker);
        let deadline = Instant::now() + Duration::from_secs(30);
        while processes_of(&marker) < 2 {
            assert!(Instant::now() < deadline, "the owner did not start");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(fixture.backend.reap().unwrap().is_empty(), "a live owner's sandbox was reaped");
        owner.kill().unwrap();
        owner.wait().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while processes_of(&marker) > 0 {
            assert!(Instant::now() < deadline, "processes outlived their owner");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert_eq!(fixture.backend.reap().unwrap().len(), 1);
        fixture.assert_nothing_left();
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_dropped_sandbox_is_gone() {
    both(async |fixture| {
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
    let error = fixture.backend.create(fixture.spec()).await.map(drop).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/lego"), "{error}");
    fixture.assert_nothing_left();
}

/// Figures for people: `cargo test -p lego-cli --test sandbox speed -- --nocapture`.
#[tokio::test(flavor = "multi_thread")]
async fn speed_is_of_the_order_that_trials_need() {
    both(async |fixture| {
        let (mut created, mut ran) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            let start = Instant::now();
            let sandbox = fixture.create(fixture.spec()).await;
            created.push(start.elapsed());
            for _ in 0..5 {
                let start = Instant::now();
                sandbox.exec(shell("true")).await.unwrap();
                ran.push(start.elapsed());
            }
            sandbox.destroy().await.unwrap();
        }
        created.sort();
        ran.sort();
        let text = format!("create: median {:?}, best {:?}; exec: median {:?}, best {:?}", created[10], created[0], ran[50], ran[0]);
        support::say(&text);
        // The best of many, since other tests run at the same time.
        assert!(created[0] < Duration::from_millis(100) && ran[0] < Duration::from_millis(25), "{text}");
    })
    .await;
}

#[test]
fn all_of_it_as_an_unprivileged_user() {
    support::again_as_nobody();
}
