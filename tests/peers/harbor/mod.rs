//! The same tasks in Harbor itself and in `lego rollout`, both on the container engine: the same rewards, the same
//! artifacts, and results that Harbor's own models read. What differs is written down in the task, with its reason.

mod fields;
mod prepared;
mod tasks;
mod verdicts;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::docker::{docker, image};
use crate::{peers, root, succeeds};
use tasks::Case;

const AGENTS: [&str; 2] = ["oracle", "nop"];

/// Task folders, and the images that they name.
struct Bench {
    folder: tempfile::TempDir,
    grader: String,
}

impl Bench {
    fn new(cases: &[Case], base: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let name = folder.path().file_name().unwrap().to_string_lossy().to_lowercase();
        let name = name.replace(|c: char| !c.is_ascii_alphanumeric(), "");
        let bench = Self {
            grader: format!("lego-test/grader{name}"),
            folder,
        };
        for case in cases {
            let dir = bench.path("tasks").join(case.id);
            let text = |text: &str| text.replace("IMAGE", base).replace("GRADER", &bench.grader);
            write(&dir.join("task.toml"), &text(&case.toml));
            write(&dir.join("instruction.md"), "Do it.\n");
            write(&dir.join("solution/solve.sh"), &case.solve);
            std::fs::create_dir_all(dir.join("environment")).unwrap();
            if let Some(test) = &case.test {
                write(&dir.join("tests/test.sh"), test);
            }
            for (path, content) in &case.files {
                write(&dir.join(path), &text(content));
            }
        }
        bench
    }

    /// The image that holds its own tests.
    fn build_grader(&self, base: &str) {
        let context = self.path("grader");
        write(&context.join("Dockerfile"), &verdicts::GRADER.replace("IMAGE", base));
        write(&context.join("run/test.sh"), verdicts::GRADES);
        docker(&["build", "-q", "-t", &self.grader, context.to_str().unwrap()]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Harbor's command, on these tasks.
    fn harbor(&self, agent: &str, cases: &[Case]) -> Command {
        let log = std::fs::File::create(self.path(&format!("{agent}.log"))).unwrap();
        let mut command = Command::new(peers("uv/terminus-2").join("bin/harbor"));
        command.args([
            "run",
            "--yes",
            "--quiet",
            "--n-concurrent",
            "8",
            "--agent",
            agent,
            "--job-name",
            agent,
        ]);
        command
            .arg("--path")
            .arg(self.path("tasks"))
            .arg("--jobs-dir")
            .arg(self.path("jobs"));
        for case in cases.iter().filter(|case| case.offline) {
            command.args(["--include-task-name", case.id]);
        }
        command
            .env("DOCKER_CONFIG", peers("docker"))
            .env("HARBOR_TELEMETRY", "off")
            .env("LEGO_TEST_SET", "given")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    fn lego(&self, agent: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command.arg("rollout").arg(self.path("run.toml"));
        command
            .args(["--scaffold", agent, "--format", "jsonl", "-o"])
            .arg(self.path(&format!("ours-{agent}")));
        command.env("LEGO_TEST_SET", "given");
        command
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = Command::new("docker").args(["rmi", "-f", &self.grader]).output();
    }
}

/// Harbor at work; interrupted, it removes its containers.
struct Job(Option<Child>);

impl Drop for Job {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
            let _ = child.wait();
        }
    }
}

fn write(path: &Path, text: &str) {
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

/// Trials as Harbor's models read them, by task and agent.
fn trials(folders: &[PathBuf]) -> BTreeMap<(String, String), Value> {
    let lines = read("trials", folders);
    let key = |trial: &Value| ["task", "agent"].map(|key| trial[key].as_str().unwrap().to_owned());
    lines
        .into_iter()
        .map(|trial| {
            let [task, agent] = key(&trial);
            ((task, agent), trial)
        })
        .collect()
}

/// Lines of read.py.
fn read(what: &str, folders: &[PathBuf]) -> Vec<Value> {
    let mut command = Command::new(peers("uv/terminus-2").join("bin/python"));
    command
        .arg(root().join("tests/peers/harbor/read.py"))
        .arg(what)
        .args(folders);
    let output = succeeds(&mut command);
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Rewards, steps and what went wrong, in one line. The names of errors are Harbor's, cut to what both have.
fn outcome(trial: &Value) -> String {
    let rewards = |rewards: &Value| match rewards.as_object() {
        None => "none".to_owned(),
        Some(rewards) => {
            let mut named: Vec<String> = rewards
                .iter()
                .map(|(name, value)| format!("{name}={}", value.as_f64().unwrap()))
                .collect();
            named.sort();
            named.join(" ")
        }
    };
    let mut said = rewards(&trial["rewards"]);
    for step in trial["steps"].as_array().unwrap() {
        write!(said, " [{} {}]", step[0].as_str().unwrap(), rewards(&step[1])).unwrap();
    }
    for exception in trial["exceptions"].as_array().unwrap() {
        let kind = match exception.as_str().unwrap() {
            "RewardFileNotFoundError"
            | "RewardFileEmptyError"
            | "VerifierOutputParseError"
            | "VerifierTimeoutError"
            | "ValidationError"
            | "VerifierError" => "Verifier",
            "HealthcheckError" | "EnvironmentSetupError" => "EnvironmentSetup",
            "RuntimeError" if trial["rewards"].is_null() => "EnvironmentSetup",
            other => other.trim_end_matches("Error"),
        };
        write!(said, " {kind}").unwrap();
    }
    said
}

fn cases() -> impl Iterator<Item = Case> {
    let all = [
        tasks::environments(),
        verdicts::rewards(),
        verdicts::places(),
        verdicts::steps(),
    ];
    all.into_iter().flatten()
}

#[test]
fn tasks_come_out_as_in_harbor_itself() {
    let Some(base) = image() else { return };
    let all = std::env::var("LEGO_TEST_HARBOR").is_ok_and(|which| which == "all");
    let cases: Vec<Case> = cases().filter(|case| all || case.always).collect();
    let bench = Bench::new(&cases, &base);
    bench.build_grader(&base);

    let jobs = AGENTS.map(|agent| Job(Some(bench.harbor(agent, &cases).spawn().unwrap())));
    succeeds(
        Command::new(env!("CARGO_BIN_EXE_lego"))
            .args(["prepare", "index"])
            .arg(bench.path("tasks"))
            .arg("-o")
            .arg(bench.path("index.parquet")),
    );
    let policy = root().join("examples/quickstart/policy");
    let config = format!(
        "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"index.parquet\"\nmax_prompt_tokens = 384\nmax_response_tokens = 128\n\
         [rollout]\ngroup_size = 1\nmax_retries = 0\n[sandbox]\nbackend = \"docker\"\n",
        policy.display()
    );
    write(&bench.path("run.toml"), &config);
    for agent in AGENTS {
        let ran = bench.lego(agent).output().unwrap();
        assert!(!ran.stdout.is_empty(), "{}", String::from_utf8_lossy(&ran.stderr));
    }
    for (mut job, agent) in jobs.into_iter().zip(AGENTS) {
        let ended = job.0.take().unwrap().wait().unwrap();
        let log = std::fs::read_to_string(bench.path(&format!("{agent}.log"))).unwrap();
        assert!(ended.success(), "{log}");
    }

    let theirs = trials(&AGENTS.map(|agent| bench.path("jobs").join(agent)));
    let ours = trials(&AGENTS.map(|agent| bench.path(&format!("ours-{agent}/trials/step_0000"))));
    let mut wrong = String::new();
    for case in &cases {
        for (at, agent) in AGENTS.into_iter().enumerate() {
            let key = (case.id.to_owned(), agent.to_owned());
            let mut differ = |what: &str, one: &dyn std::fmt::Debug, other: &dyn std::fmt::Debug| {
                writeln!(wrong, "{} {agent}: {what}\n    {one:?}\n    {other:?}", case.id).unwrap();
            };
            let Some(our) = ours.get(&key) else {
                differ("not run by lego", &(), &());
                continue;
            };
            let said = case.differs.map_or(case.gives[at], |(said, _)| said[at]);
            if outcome(our) != said {
                differ("expected of lego", &said, &outcome(our));
            }
            if !case.offline {
                continue;
            }
            let Some(their) = theirs.get(&key) else {
                differ("not run by Harbor", &(), &());
                continue;
            };
            if outcome(their) != case.gives[at] {
                differ("expected of Harbor", &case.gives[at], &outcome(their));
            }
            for part in ["artifacts", "mode", "valid"] {
                if our[part] != their[part] && (part == "artifacts" || case.differs.is_none()) {
                    differ(part, &their[part].to_string(), &our[part].to_string());
                }
            }
        }
        if let Some((said, why)) = case.differs {
            assert!(said != case.gives && !why.is_empty(), "{} does not differ", case.id);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}
