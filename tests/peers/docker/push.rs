//! Images that are made before trials ask for them, and pushed: what does not build, what was killed, registries that do not
//! answer or want to know who asks.

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::registry::Registry;
use super::{Run, SOLUTION, TEST, Task, docker, image, lego};

/// `who:secret`, as a password file has it.
const USER: &str = "who:$2y$05$abcdefghijklmnopqrstuuOQiyCxlgf/oeuTqixKmWdcYUh4Hjl0a";

/// A task of this id and Dockerfile.
fn task<'a>(id: &'a str, dockerfile: &'a str) -> Task<'a> {
    Task {
        id,
        toml: "",
        dockerfile: Some(dockerfile),
        solution: SOLUTION,
        test: TEST,
    }
}

/// An id that no other test on this engine has.
fn own(name: &str) -> String {
    format!("{name}-{}", std::process::id())
}

fn build(run: &Run) -> Command {
    let mut command = lego();
    command.args(["prepare", "--stage", "build", "--format", "jsonl", "-o"]);
    command.arg(run.path("tasks")).arg("--run").arg(run.path("run.toml"));
    command
}

/// Rows as `task status reason`, sorted.
fn told(output: &Output) -> Vec<String> {
    let text = String::from_utf8_lossy(&output.stdout);
    let word = |row: &Value, key: &str| row[key].as_str().unwrap_or("-").to_owned();
    let mut rows: Vec<String> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .filter(|row: &Value| row["stage"] == "build")
        .map(|row| {
            format!(
                "{} {} {}",
                word(&row, "task"),
                word(&row, "status"),
                word(&row, "reason")
            )
        })
        .collect();
    rows.sort();
    rows
}

fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// Builds that were begun, as `-v` tells.
fn builds(output: &Output) -> usize {
    said(output)
        .lines()
        .filter(|line| line.contains("building image="))
        .count()
}

/// Removes what was built for these tasks.
struct Built(Vec<String>);

impl Drop for Built {
    fn drop(&mut self) {
        for id in &self.0 {
            let listed = Command::new("docker")
                .args(["images", "-q", &format!("lego/{id}")])
                .output();
            let listed = listed.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
            for image in listed.unwrap_or_default().lines() {
                let _ = Command::new("docker").args(["rmi", "-f", image]).output();
            }
        }
    }
}

#[test]
fn what_does_not_build_is_told_and_a_killed_build_goes_on() {
    let Some(base) = image() else { return };
    let (broken, first, slow) = (own("a-broken"), own("b-first"), own("c-slow"));
    let _built = Built(vec![broken.clone(), first.clone(), slow.clone()]);
    let wrong = format!("FROM {base}\nRUN echo the word before && exit 3\n");
    let quick = format!("FROM {base}\nLABEL of={first}\n");
    let waits = format!("FROM {base}\nLABEL of={slow}\nRUN sleep 5\n");
    let tasks = [task(&broken, &wrong), task(&first, &quick), task(&slow, &waits)];
    let run = Run::new(&tasks, "");
    // One after the other, in the order of their ids; killed in the last.
    let mut killed = build(&run)
        .args(["--jobs", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let there = |id: &str| !docker(&["images", "-q", &format!("lego/{id}")]).trim().is_empty();
    let deadline = Instant::now() + Duration::from_mins(1);
    while !there(&first) {
        assert!(Instant::now() < deadline, "nothing is built");
        std::thread::sleep(Duration::from_millis(50));
    }
    killed.kill().unwrap();
    killed.wait().unwrap();
    assert!(!there(&slow));
    let again = build(&run).arg("-v").output().unwrap();
    assert!(again.status.success(), "{}", said(&again));
    assert_eq!(
        told(&again),
        [
            format!("{broken} dropped environment_does_not_build"),
            format!("{first} existing -"),
            format!("{slow} built -")
        ]
    );
    let invalid = lines(&run.path("tasks/invalid.jsonl"));
    assert_eq!(invalid.len(), 1);
    assert_eq!(
        (&invalid[0]["class"], &invalid[0]["attempts"]),
        (&"environment_does_not_build".into(), &0.into())
    );
    let tail = invalid[0]["log_tail"].as_str().unwrap();
    assert!(tail.contains("the word before"), "{tail}");
    let funnel = std::fs::read_to_string(run.path("tasks/funnel.json")).unwrap();
    let funnel: Value = serde_json::from_str(&funnel).unwrap();
    assert_eq!(
        (&funnel[0]["stage"], &funnel[0]["in"], &funnel[0]["out"]),
        (&"build".into(), &3.into(), &2.into())
    );
    assert_eq!(funnel[0]["notes"]["there already"], 1);
    assert_eq!(build(&run).arg("--strict").output().unwrap().status.code(), Some(1));
    // Trials find what was built, by the same name; validation leaves the word of the build.
    let mut validate = lego();
    validate.args([
        "prepare",
        "-v",
        "--stage",
        "validate",
        "--repeats",
        "1",
        "--format",
        "jsonl",
        "-o",
    ]);
    let validated = validate
        .arg(run.path("tasks"))
        .arg("--run")
        .arg(run.path("run.toml"))
        .output()
        .unwrap();
    assert!(validated.status.success(), "{}", said(&validated));
    let known = lines(&run.path("tasks/validation.jsonl"));
    let classes: Vec<(&str, u64)> = known
        .iter()
        .map(|row| (row["class"].as_str().unwrap_or("-"), row["attempts"].as_u64().unwrap()))
        .collect();
    assert_eq!(classes, [("environment_does_not_build", 0), ("-", 2), ("-", 2)]);
    assert_eq!((builds(&again), builds(&validated)), (2, 0), "{}", said(&validated));
    // Mended, it is a task again.
    std::fs::write(run.path("tasks").join(&broken).join("environment/Dockerfile"), &quick).unwrap();
    let mended = build(&run).output().unwrap();
    assert_eq!(told(&mended)[0], format!("{broken} built -"));
}

#[test]
fn a_registry_that_does_not_take_an_image_ends_it_and_nothing_counts_as_pushed() {
    if image().is_none() {
        return;
    }
    let id = own("push");
    let _built = Built(vec![id.clone()]);
    let dockerfile = format!("FROM scratch\nLABEL of={id}\n");
    let run = Run::new(&[task(&id, &dockerfile)], "");
    let nobody = std::net::TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    let push = |to: &str, config: &Path| {
        let mut command = build(&run);
        command.args(["--push", to]).env("DOCKER_CONFIG", config);
        command.output().unwrap()
    };
    let config = tempfile::tempdir().unwrap();
    let gone = push(&format!("{nobody}/lego"), config.path());
    assert_eq!(gone.status.code(), Some(3), "{}", said(&gone));
    let text = said(&gone);
    assert!(
        text.contains(&format!("image `{nobody}/lego/{id}` could not be pushed")) && text.contains("refused"),
        "{text}"
    );
    assert!(!run.path("tasks/images.jsonl").exists());
    // What was built is there for the next.
    let registry = Registry::of_users(USER);
    let to = format!("{}/lego", registry.address);
    let stranger = push(&to, config.path());
    assert_eq!(stranger.status.code(), Some(3), "{}", said(&stranger));
    assert!(
        said(&stranger).contains("as `docker login` writes it"),
        "{}",
        said(&stranger)
    );
    assert!(!run.path("tasks/images.jsonl").exists());
    let who = "d2hvOnNlY3JldA==";
    let file = format!(r#"{{"auths":{{"{}":{{"auth":"{who}"}}}}}}"#, registry.address);
    std::fs::write(config.path().join("config.json"), file).unwrap();
    let known = push(&to, config.path());
    assert!(known.status.success(), "{}", said(&known));
    let pushed = lines(&run.path("tasks/images.jsonl"));
    assert_eq!(pushed[0]["image"], format!("{to}/{id}"));
    assert_eq!((registry.puts(), told(&known)), (1, vec![format!("{id} built -")]));
    // Known by now, and asked for: nothing is pushed twice.
    let again = push(&to, config.path());
    assert_eq!((registry.puts(), told(&again)), (1, vec![format!("{id} existing -")]));
}
