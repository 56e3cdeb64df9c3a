//! Images of a real registry on this machine: named, by the task's id, through a mirror, by digest; pulled once.

use std::fs::File;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::{Run, TEST, Task, docker, image, rows};

const SOLUTION: &str = "#!/bin/sh\n: >done\n";
/// A registry with an empty store, its log in a file.
struct Registry {
    server: Child,
    address: String,
    folder: tempfile::TempDir,
}

impl Registry {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let config = format!(
            "version: 0.1\nstorage:\n  filesystem:\n    rootdirectory: {}\nhttp:\n  addr: {address}\n",
            folder.path().join("store").display()
        );
        std::fs::write(folder.path().join("config.yml"), config).unwrap();
        let log = File::create(folder.path().join("log")).unwrap();
        let server = Command::new("docker-registry")
            .arg("serve")
            .arg(folder.path().join("config.yml"))
            .stdout(log.try_clone().unwrap())
            .stderr(log)
            .stdin(Stdio::null())
            .spawn()
            .unwrap();
        let deadline = Instant::now() + Duration::from_secs(20);
        while TcpStream::connect(address).is_err() {
            assert!(Instant::now() < deadline, "the registry does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Self {
            server,
            address: address.to_string(),
            folder,
        }
    }

    /// Pushes a small image of our own; gives its digest. The engine forgets it.
    fn push(&self, name: &str, base: &str) -> String {
        let full = format!("{}/{name}", self.address);
        let context = self.folder.path().join("context");
        std::fs::create_dir_all(&context).unwrap();
        let files = "COPY small /\nWORKDIR /app\n";
        std::fs::write(
            context.join("Dockerfile"),
            format!("FROM scratch\n{files}LABEL name={name}\n"),
        )
        .unwrap();
        small(base, &context.join("small"));
        docker(&["build", "-q", "-t", &full, context.to_str().unwrap()]);
        docker(&["push", "-q", &full]);
        let digest = docker(&["inspect", "--format", "{{index .RepoDigests 0}}", &full]);
        docker(&["rmi", "-f", &full]);
        digest.trim().rsplit('@').next().unwrap().to_owned()
    }

    /// How often an image's description was asked for by its tag.
    fn pulls(&self, name: &str, tag: &str) -> usize {
        let log = std::fs::read_to_string(self.folder.path().join("log")).unwrap();
        let asked = format!("\"GET /v2/{name}/manifests/{tag}");
        let headed = format!("\"HEAD /v2/{name}/manifests/{tag}");
        log.lines()
            .filter(|line| line.contains(&asked) || line.contains(&headed))
            .count()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// A root folder with nothing but a shell, chmod and their libraries, taken out of the test image.
fn small(base: &str, to: &Path) {
    if to.exists() {
        return;
    }
    std::fs::create_dir(to).unwrap();
    let copy = "cd / && ldd /bin/sh /bin/chmod | tr ' \\t' '\\n' | grep '^/.*[^:]$' | sort -u >/tmp/list; echo /bin/sh /bin/chmod >>/tmp/list; \
                tar -chf - $(cat /tmp/list)";
    let mut out = Command::new("docker")
        .args(["run", "--rm", "--network", "none", base, "sh", "-c", copy])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let unpacked = Command::new("tar")
        .arg("-C")
        .arg(to)
        .arg("-xf")
        .arg("-")
        .stdin(out.stdout.take().unwrap())
        .status();
    assert!(unpacked.unwrap().success() && out.wait().unwrap().success());
}

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
    let log = std::fs::read_dir(run.path("out-oracle/trials/images")).unwrap();
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
