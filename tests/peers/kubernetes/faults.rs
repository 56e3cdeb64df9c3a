//! What goes wrong in clusters: busy servers, quotas, images that are not there, streams that break, pods that end.

use std::time::{Duration, Instant};

use lego::sandbox::{ExecRequest, SandboxError};
use serde_json::json;

use super::fake::Fault;
use super::{Faked, image, options, says, spec, works_on_and_ends};

fn fault(method: &'static str, path: &'static str, code: u16, message: &'static str) -> Fault {
    Fault {
        method,
        path,
        code,
        message,
        retry_after: None,
        carried_out: false,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_server_and_a_full_quota_are_waited_for() {
    let Some(image) = image() else { return };
    let faked = Faked::new(|_| {});
    let asked = Instant::now();
    faked.fake.fail(Fault {
        retry_after: Some(2),
        ..fault("POST", "/pods", 429, "too many requests")
    });
    faked.fake.fail(fault(
        "POST",
        "/pods",
        403,
        "pods \"x\" is forbidden: exceeded quota: trials, requested: pods=1",
    ));
    // Carried out, and the answer lost: the pod is there when it is made again.
    faked.fake.fail(Fault {
        carried_out: true,
        ..fault("POST", "/pods", 500, "etcd leader changed")
    });
    faked
        .fake
        .fail(fault("POST", "/leases", 503, "apiserver is shutting down"));
    faked.fake.fail(fault("GET", "/exec", 500, "error dialing backend"));
    let sandbox = faked.create(&image).await;
    assert_eq!(says(sandbox.as_ref(), "echo there").await, "there\n");
    assert!(
        asked.elapsed() >= Duration::from_secs(2),
        "the server's own word on when to come back was ignored"
    );
    assert_eq!(
        (faked.fake.names("pods").len(), faked.fake.names("leases").len()),
        (1, 1)
    );
    faked
        .fake
        .fail(fault("DELETE", "/pods", 503, "apiserver is shutting down"));
    sandbox.destroy().await.unwrap();
    assert!(faked.fake.names("pods").is_empty());
    // What is not allowed is said at once.
    faked.fake.fail(fault(
        "POST",
        "/pods",
        403,
        "pods is forbidden: User \"x\" cannot create resource \"pods\"",
    ));
    let refused = faked
        .backend
        .create(spec(&image))
        .await
        .map(drop)
        .unwrap_err()
        .to_string();
    assert!(
        refused.contains("cannot create resource") && refused.contains("403"),
        "{refused}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_that_is_not_there_is_said_in_the_kubelets_words() {
    if image().is_none() {
        return;
    }
    let faked = Faked::new(|_| {});
    let asked = Instant::now();
    let failed = faked
        .backend
        .create(spec("lego-test/none:at-all"))
        .await
        .map(drop)
        .unwrap_err();
    assert!(asked.elapsed() < Duration::from_mins(1));
    let SandboxError::Image { image, reason, last } = failed else {
        panic!("{failed:?}")
    };
    // Not that it waits, which is all that it says later. A registry that is back may have it.
    assert!(
        image == "lego-test/none:at-all" && reason.starts_with("ErrImagePull: ") && !last,
        "{reason}"
    );
    // Deleted in the background, whoever waits for it.
    let deadline = Instant::now() + Duration::from_secs(20);
    while !faked.fake.names("pods").is_empty() {
        assert!(Instant::now() < deadline, "the pod is left");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_breaks_is_made_anew_and_nothing_is_lost() {
    let Some(image) = image() else { return };
    let faked = Faked::new(|_| {});
    faked.fake.server.objects.lock().unwrap().break_after = 120_000;
    let sandbox = faked.create(&image).await;
    let all = (1..=60_000).fold(String::new(), |all, n| all + &n.to_string() + "\n");
    let mut count = ExecRequest::shell("echo x >>/tmp/once; seq 60000; exit 5");
    count.output_limit = 4 << 20;
    // Old streams of this server end late, since its `docker exec` outlives its client.
    count.timeout = Duration::from_mins(8);
    let before = faked.fake.asked("/exec");
    let ran = sandbox.exec(count).await.unwrap();
    assert_eq!((ran.exit_code, ran.output == all), (5, true));
    assert_eq!(says(sandbox.as_ref(), "cat /tmp/once").await, "x\n");
    // What was said is more than one of them carries.
    assert!(faked.fake.asked("/exec") > before, "no stream broke");
    works_on_and_ends(sandbox.as_ref()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_keeps_the_pod_says_how_it_ended() {
    let Some(image) = image() else { return };
    let faked = Faked::new(|_| {});
    for (status, by_inside) in [
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "The node was low on resource: memory. "}),
            false,
        ),
        (
            json!({"phase": "Failed", "reason": "Evicted", "message": "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi. "}),
            true,
        ),
    ] {
        let sandbox = faked.create(&image).await;
        let name = faked.fake.names("pods").pop().unwrap();
        let waiting = sandbox.exec(ExecRequest::shell("sleep 600"));
        let ending = async {
            tokio::time::sleep(Duration::from_millis(300)).await;
            // As the kubelet does both.
            faked
                .fake
                .server
                .update("pods", &name, |pod| pod["status"] = status.clone());
            let killed = std::process::Command::new("docker")
                .args(["kill", &format!("fake-{name}-main")])
                .output();
            assert!(killed.unwrap().status.success());
        };
        let (ended, ()) = tokio::join!(waiting, ending);
        let Err(SandboxError::Ended {
            reason,
            by_inside: found,
            ..
        }) = ended
        else {
            panic!("{ended:?}")
        };
        assert!(found == by_inside && reason.contains("evicted"), "{reason}");
        sandbox.destroy().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pods_of_a_run_whose_lease_expired_are_anybodys_to_remove() {
    let Some(image) = image() else { return };
    let faked = Faked::new(|_| {});
    let sandbox = faked.create(&image).await;
    let other = lego::sandbox::kubernetes::KubernetesBackend::new(options(faked.fake.kubeconfig.clone()));
    assert!(other.reap().await.unwrap().is_empty(), "a live run's pod was removed");
    assert_eq!(says(sandbox.as_ref(), "echo alive").await, "alive\n");
    let (lease, pod) = (
        faked.fake.names("leases").pop().unwrap(),
        faked.fake.names("pods").pop().unwrap(),
    );
    faked.fake.server.update("leases", &lease, |lease| {
        lease["spec"]["renewTime"] = json!("2026-01-01T00:00:00.000000Z");
    });
    assert_eq!(other.reap().await.unwrap(), [std::path::PathBuf::from(pod)]);
    assert!(faked.fake.names("pods").is_empty() && faked.fake.names("leases").is_empty());
    let ended = sandbox.exec(ExecRequest::shell("true")).await;
    assert!(matches!(ended, Err(SandboxError::Ended { .. })), "{ended:?}");
}
