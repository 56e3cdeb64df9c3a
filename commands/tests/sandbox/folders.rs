//! The working folder, files in and out, reserved folders.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use lego::sandbox::{Isolation, SandboxError};

use crate::support::{Fixture, each, is_root, shell};

#[tokio::test(flavor = "multi_thread")]
async fn links_lead_nowhere_in_and_out() {
    each(async |fixture| {
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
    each(async |fixture| {
        let sandbox = fixture.create(fixture.spec()).await;
        assert!(sandbox.snapshot_diff().await.unwrap().is_empty());
        let ran = sandbox
            .exec(shell(
                "echo more >> hello.txt; rm run.sh; mkdir -p new/dir; echo x > new/dir/file; cat sub/deep",
            ))
            .await;
        assert_eq!(ran.unwrap().output, "deep\n");
        assert_eq!(
            sandbox.snapshot_diff().await.unwrap(),
            ["hello.txt", "new/dir/file", "run.sh"]
        );

        sandbox.upload(&fixture.source, "/logs/artifacts/copy").await.unwrap();
        let ran = sandbox
            .exec(shell("\"$LEGO_LOGS_DIR/artifacts/copy/run.sh\""))
            .await
            .unwrap();
        assert_eq!((ran.output.as_str(), ran.exit_code), ("ran\n", 0));
        sandbox
            .upload(&fixture.source.join("hello.txt"), "/app/a/b/c.txt")
            .await
            .unwrap();
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
    each(async |fixture| {
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
async fn a_large_folder_becomes_an_overlay() {
    let fixture = Fixture::with(|options| options.copy_limit = 3);
    if is_root() {
        // Root copies always; the unprivileged run of this suite covers it.
        return;
    }
    symlink("hello.txt", fixture.source.join("link")).unwrap();
    let sandbox = fixture.create(fixture.spec()).await;
    if sandbox.isolation() != Isolation::Namespaces {
        return;
    }
    assert_eq!(
        sandbox
            .exec(shell("cat link; grep -c overlay /proc/mounts"))
            .await
            .unwrap()
            .output,
        "hello\n1\n"
    );
    assert!(sandbox.snapshot_diff().await.unwrap().is_empty());
    sandbox.exec(shell("echo more >> hello.txt; rm link; rm -r sub; mkdir sub; echo n > sub/new; chmod 600 run.sh; chmod 755 run.sh")).await.unwrap();
    assert_eq!(
        sandbox.snapshot_diff().await.unwrap(),
        ["hello.txt", "link", "sub/deep", "sub/new"]
    );
    assert_eq!(fs::read_to_string(fixture.source.join("hello.txt")).unwrap(), "hello\n");
    sandbox.destroy().await.unwrap();
    fixture.assert_nothing_left();
}
