//! Figures for people: `cargo nextest run --workspace -E 'test(speed::)' --no-capture`. Nothing but a gross fault fails here.

use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::exec::StartExecResults;
use bollard::models::{ContainerCreateBody, ExecConfig, HostConfig};
use bollard::query_parameters::{CreateContainerOptions, RemoveContainerOptionsBuilder, StartContainerOptions};
use futures_util::StreamExt as _;

use crate::support::{Fixture, Kind, each, say, shell};

#[tokio::test(flavor = "multi_thread")]
async fn speed_is_of_the_order_that_trials_need() {
    each(async |fixture| {
        let (mut created, mut ran) = (Vec::new(), Vec::new());
        // A cluster takes its time.
        let rounds = if fixture.kind() == Kind::Kubernetes { 3 } else { 20 };
        for _ in 0..rounds {
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
        let text = format!(
            "{:?}: create: median {:?}, best {:?}; exec: median {:?}, best {:?}",
            fixture.kind(),
            created[created.len() / 2],
            created[0],
            ran[ran.len() / 2],
            ran[0]
        );
        say(&text);
        // The best of many, since other tests run at the same time.
        assert!(
            matches!(fixture.kind(), Kind::Docker | Kind::Kubernetes)
                || created[0] < Duration::from_millis(100) && ran[0] < Duration::from_millis(25),
            "{text}"
        );
    })
    .await;
}

/// Start, one command, gone: ours beside the engine's own calls, in turns.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_beside_the_engines_own_calls() {
    let Some(fixture) = Fixture::docker(|_| {}) else { return };
    let client = Docker::connect_with_defaults()
        .unwrap()
        .negotiate_version()
        .await
        .unwrap();
    let image = std::env::var("LEGO_TEST_IMAGE").unwrap();
    let (mut ours, mut raw) = (Vec::new(), Vec::new());
    for round in 0..12 {
        let start = Instant::now();
        let sandbox = fixture.create(fixture.spec()).await;
        assert_eq!(sandbox.exec(shell("echo ran")).await.unwrap().output, "ran\n");
        sandbox.destroy().await.unwrap();
        let took = start.elapsed();
        // The first builds the image.
        if round > 0 {
            ours.push(took);
        }
        let start = Instant::now();
        engines_own(&client, &image).await;
        raw.push(start.elapsed());
    }
    ours.sort();
    raw.sort();
    let ratio = |at: f64| {
        let of = |all: &[Duration]| all[((all.len() - 1) as f64 * at).round() as usize];
        (of(&ours), of(&raw), of(&ours).as_secs_f64() / of(&raw).as_secs_f64())
    };
    say(&format!(
        "start, exec, gone: median {:?}, worst {:?} (ours, the engine's calls, ratio)",
        ratio(0.5),
        ratio(1.0)
    ));
    assert_eq!(fixture.left(), 0);
}

/// What any client of the engine has to call: create, start, exec, its exit code, remove.
async fn engines_own(client: &Docker, image: &str) {
    let body = ContainerCreateBody {
        image: Some(image.to_owned()),
        cmd: Some(vec!["sleep".to_owned(), "600".to_owned()]),
        host_config: Some(HostConfig {
            network_mode: Some("none".to_owned()),
            ..HostConfig::default()
        }),
        ..ContainerCreateBody::default()
    };
    let id = client
        .create_container(None::<CreateContainerOptions>, body)
        .await
        .unwrap()
        .id;
    client
        .start_container(&id, None::<StartContainerOptions>)
        .await
        .unwrap();
    let command = ExecConfig {
        cmd: Some(["sh", "-c", "echo ran"].map(str::to_owned).to_vec()),
        attach_stdout: Some(true),
        attach_stderr: Some(true),
        ..ExecConfig::default()
    };
    let exec = client.create_exec(&id, command).await.unwrap().id;
    let StartExecResults::Attached { mut output, .. } = client.start_exec(&exec, None).await.unwrap() else {
        panic!("not attached");
    };
    let mut text = String::new();
    while let Some(Ok(piece)) = output.next().await {
        text += &piece.to_string();
    }
    assert_eq!(text, "ran\n");
    assert_eq!(client.inspect_exec(&exec).await.unwrap().exit_code, Some(0));
    let options = RemoveContainerOptionsBuilder::new().force(true).build();
    client.remove_container(&id, Some(options)).await.unwrap();
}
