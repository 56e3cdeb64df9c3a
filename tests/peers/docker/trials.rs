//! What a task of an image gets, what comes of it, and what a killed run leaves.

use std::time::{Duration, Instant};

use super::{Run, TEST, Task, containers, image, lego, rows};
use crate::{root, succeeds};

#[test]
fn the_oracle_solves_what_a_do_nothing_does_not() {
    let Some(image) = image() else { return };
    let named =
        format!("[environment]\ndocker_image = \"{image}\"\nworkdir = \"/srv/here\"\nmemory_mb = 256\ncpus = 0.5\n");
    let dockerfile = format!("FROM {image}\nRUN useradd -m -u 1234 dev\nENV COLOUR=red\nWORKDIR /code\nUSER dev\n");
    let look = "#!/bin/sh\n{ pwd; id -un; echo \"$COLOUR $HOME\"; cat /sys/fs/cgroup/memory/memory.limit_in_bytes \
                /sys/fs/cgroup/memory.max; } >/logs/artifacts/seen 2>/dev/null; cat /logs/artifacts/seen; touch done\n";
    let tasks = [
        Task {
            id: "built",
            toml: "",
            dockerfile: Some(&dockerfile),
            solution: &look.replace("touch done", "cd /tmp; touch done"),
            test: &TEST.replace("-e done", "-e /tmp/done"),
        },
        Task {
            id: "named",
            toml: &named,
            dockerfile: None,
            solution: look,
            test: TEST,
        },
    ];
    let run = Run::new(&tasks, "cpus = 1.5\n");
    let rewards = |scaffold| -> Vec<f64> {
        let rows = run.trials(scaffold, 2);
        assert!(
            rows.iter().all(|row| row["hack_flags"].as_array().unwrap().is_empty()),
            "{rows:?}"
        );
        rows.iter().map(|row| row["reward"].as_f64().unwrap()).collect()
    };
    assert_eq!(rewards("oracle"), [1.0; 4]);
    assert_eq!(rewards("nop"), [0.0; 4]);
    let seen = run.trial_file("oracle", "built", "agent/oracle.log");
    assert!(seen.starts_with("/code\ndev\nred /home/dev\n"), "{seen}");
    let seen = run.trial_file("oracle", "named", "agent/oracle.log");
    assert!(seen.starts_with("/srv/here\nroot\n /root\n268435456\n"), "{seen}");
    assert!(containers(&run.out("oracle")).is_empty());
}

/// No other try can help: each is tried once, and told.
#[test]
fn what_cannot_be_given_is_told_once() {
    let Some(image) = image() else { return };
    let environment = format!("[environment]\ndocker_image = \"{image}\"\n");
    let tomls = [
        (
            "ghost",
            format!("{environment}[agent]\nuser = \"ghost\"\n"),
            "there is no user `ghost`",
        ),
        ("tight", format!("{environment}memory_mb = 1\n"), "emory limit"),
    ];
    let of = |id, toml| Task {
        id,
        toml,
        dockerfile: None,
        solution: "#!/bin/sh\n: >done\n",
        test: TEST,
    };
    let [ghost, tight] = tomls.each_ref().map(|(id, toml, _)| of(id, toml));
    let tasks = [ghost, tight, of("well", &environment)];
    let run = Run::new(&tasks, "");
    let mut command = run.command("oracle", 1);
    let output = command.args(["--set", "rollout.max_retries=2"]).output().unwrap();
    for (row, (id, _, said)) in rows(&output).iter().zip(&tomls) {
        assert_eq!(row["outcome"], "env_setup_failed", "{row}");
        let result = run.trial_file("oracle", id, "result.json");
        assert!(result.contains(said), "{id}: {result}");
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("3 trials · 2 dropped · 0 retried"), "{said}");
}

#[test]
fn a_killed_run_leaves_no_container() {
    let Some(image) = image() else { return };
    let toml = format!("[environment]\ndocker_image = \"{image}\"\n");
    let task = Task {
        id: "long",
        toml: &toml,
        dockerfile: None,
        solution: "#!/bin/sh\n(setsid sleep 4321 &)\nsleep 4321\n",
        test: TEST,
    };
    let run = Run::new(&[task], "");
    let mut owner = run.command("oracle", 3).spawn().unwrap();
    let out = run.out("oracle");
    let until = |what: &str, done: &dyn Fn(usize) -> bool| {
        let deadline = Instant::now() + Duration::from_mins(1);
        while !done(containers(&out).len()) {
            assert!(Instant::now() < deadline, "{what}: {:?}", containers(&out));
            std::thread::sleep(Duration::from_millis(100));
        }
    };
    until("not started", &|count| count == 3);
    owner.kill().unwrap();
    owner.wait().unwrap();
    until("left behind", &|count| count == 0);
    // The folders of their sockets are the next start's to remove, or this one's.
    succeeds(lego().args(["rollout", "--reap"]));
}

#[test]
fn the_example_runs() {
    let Some(image) = image() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (example, index) = (root().join("examples/docker"), folder.path().join("index.parquet"));
    succeeds(
        lego()
            .args(["prepare", "index"])
            .arg(example.join("tasks"))
            .arg("-o")
            .arg(&index),
    );
    for (scaffold, reward) in [("oracle", 1.0), ("nop", 0.0)] {
        let mut command = lego();
        command
            .arg("rollout")
            .arg(example.join("run.toml"))
            .args(["--format", "jsonl", "--scaffold", scaffold]);
        command.arg("-o").arg(folder.path().join(scaffold));
        command
            .arg("--set")
            .arg(format!("data.train={:?}", index.display().to_string()));
        command
            .arg("--set")
            .arg(format!("sandbox.mirror={{ \"debian:trixie-slim\" = \"{image}\" }}"));
        let rows = rows(&succeeds(&mut command));
        let rewards: Vec<f64> = rows.iter().map(|row| row["reward"].as_f64().unwrap()).collect();
        assert_eq!(rewards, [reward; 2]);
    }
}
