//! Images of a real registry on this machine: named, by the task's id, through a mirror, by digest; pulled once.

use super::registry::Registry;
use super::{Run, SOLUTION, TEST, Task, docker, image, rows};

#[test]
fn images_are_named_mirrored_pinned_and_pulled_once() {
    let Some(base) = image() else { return };
    let registry = Registry::start();
    let digest = registry.push("swe/by-id", &base);
    registry.push("library/mirrored", &base);
    let address = &registry.address;
    let pinned = format!("[environment]\ndocker_image = \"{address}/swe/by-id@{digest}\"\n");
    let missing = format!("[environment]\ndocker_image = \"{address}/swe/missing:1\"\n");
    let task = |id, toml| Task {
        id,
        toml,
        dockerfile: None,
        solution: SOLUTION,
        test: TEST,
    };
    let built = Task {
        dockerfile: Some("FROM example.invalid/library/mirrored\nLABEL a=b\n"),
        ..task("built", "")
    };
    let wrong = Task {
        dockerfile: Some("FORM scratch\n"),
        ..task("wrong", "")
    };
    let tasks = [
        task(
            "mirrored",
            "[environment]\ndocker_image = \"example.invalid/library/mirrored\"\n",
        ),
        task("missing", &missing),
        task("pinned", &pinned),
        built,
        wrong,
    ];
    let sandbox = format!("mirror = {{ \"example.invalid/\" = \"{address}/\" }}\n");
    let run = Run::new(&tasks, &sandbox);
    let output = run
        .command("oracle", 3)
        .args(["--set", "rollout.max_retries=2"])
        .output()
        .unwrap();
    let rows = rows(&output);
    // What is wrong for good is asked for once, and no trial is tried again.
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("15 trials · 6 dropped · 0 retried"), "{said}");
    let of = |task: &str| -> Vec<_> { rows.iter().filter(|row| row["task"] == task).collect() };
    for task in ["mirrored", "pinned", "built"] {
        assert_eq!(of(task).len(), 3);
        assert!(of(task).iter().all(|row| row["reward"] == 1.0), "{:?}", of(task));
    }
    for row in of("missing") {
        assert_eq!(
            (&row["outcome"], &row["reward"]),
            (&"env_setup_failed".into(), &serde_json::Value::Null)
        );
        assert_eq!(row["dropped"], "env_setup_failed");
        let reason = run.trial_file("oracle", "missing", "result.json");
        assert!(
            reason.contains("swe/missing:1") && reason.contains("could not be pulled"),
            "{reason}"
        );
    }
    let by_id = Run::new(&[task("By-Id", "")], &format!("registry = \"{address}/swe/\"\n"));
    let rows = by_id.trials("oracle", 3);
    assert!(
        rows.len() == 3 && rows.iter().all(|row| row["reward"] == 1.0),
        "{rows:?}"
    );
    let reason = run.trial_file("oracle", "wrong", "result.json");
    assert!(
        reason.contains("Dockerfile could not be built") && reason.contains("unknown instruction"),
        "{reason}"
    );
    // One pull: a question by HEAD and one by GET at most.
    for (name, tag) in [
        ("swe/by-id", "latest"),
        ("library/mirrored", "latest"),
        ("swe/missing", "1"),
    ] {
        let pulls = registry.pulls(name, tag);
        assert!((1..=2).contains(&pulls), "{name}: {pulls}");
    }
    let log = std::fs::read_dir(run.out("oracle").join("trials/images")).unwrap();
    let logs: Vec<String> = log
        .map(|file| file.unwrap().file_name().into_string().unwrap())
        .collect();
    assert!(logs.iter().any(|name| name.starts_with("lego_built_")), "{logs:?}");
    forget(address);
}

/// Removes what was pulled from this registry, and what was built of it.
fn forget(address: &str) {
    let listed = docker(&["images", "--format", "{{.ID}} {{.Repository}}"]);
    for line in listed.lines() {
        let (id, name) = line.split_once(' ').unwrap();
        if name.starts_with(address) || name == "lego/built" {
            docker(&["rmi", "-f", id]);
        }
    }
}

/// Runs alone (see .config/nextest.toml): the bound is on the whole store.
#[test]
fn images_of_the_store_leave_for_new_ones_and_others_stay() {
    let Some(base) = image() else { return };
    let registry = Registry::start();
    let address = &registry.address;
    let names = ["one", "two", "three", "own"];
    for name in names {
        registry.push(&format!("store/{name}"), &base);
    }
    // There before the run asks for it.
    docker(&["pull", "-q", &format!("{address}/store/own")]);
    let tomls = names.map(|name| format!("[environment]\ndocker_image = \"{address}/store/{name}\"\n"));
    let tasks: Vec<Task<'_>> = names
        .iter()
        .zip(&tomls)
        .map(|(id, toml)| Task {
            id,
            toml,
            dockerfile: None,
            solution: SOLUTION,
            test: TEST,
        })
        .collect();
    let sandbox = "concurrency = 1\n[sandbox.docker]\nimage_cache = \"1KiB\"\n";
    let run = Run::new(&tasks, sandbox);
    let rows = run.trials("oracle", 1);
    assert!(rows.iter().all(|row| row["reward"] == 1.0), "{rows:?}");
    let listed = docker(&["images", "--format", "{{.Repository}}"]);
    let here = |name: &str| listed.lines().any(|line| line == format!("{address}/store/{name}"));
    assert!(here("own"), "what was there before stays: {listed}");
    let left = names.iter().filter(|name| **name != "own" && here(name)).count();
    assert_eq!(left, 1, "only the newest fits: {listed}");
    forget(address);
}
