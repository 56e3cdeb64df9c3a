//! Trials in containers of a real engine, by the commands that users give. `tests/run` starts the engine and names an
//! image in it by `LEGO_TEST_IMAGE`; where there can be none, there is nothing to test.

mod images;
mod push;
pub(crate) mod registry;
mod trials;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::{root, succeeds};

/// An image with a shell, Python and git in the engine's store.
pub(crate) fn image() -> Option<String> {
    std::env::var("LEGO_TEST_IMAGE").ok()
}

/// Gives 1 where the agent left `done`.
const TEST: &str = "#!/bin/sh\n[ -e done ] && reward=1\necho \"${reward:-0}\" >/logs/verifier/reward.txt\n";

/// Leaves it.
const SOLUTION: &str = "#!/bin/sh\n: >done\n";

/// Task folders and a run on them.
struct Run {
    folder: tempfile::TempDir,
    /// Lines of `[sandbox]`.
    sandbox: String,
}

/// One task folder's parts.
struct Task<'a> {
    id: &'a str,
    toml: &'a str,
    dockerfile: Option<&'a str>,
    solution: &'a str,
    test: &'a str,
}

impl Run {
    fn new(tasks: &[Task<'_>], sandbox: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for task in tasks {
            let dir = folder.path().join("tasks").join(task.id);
            for name in ["tests", "solution", "environment"] {
                std::fs::create_dir_all(dir.join(name)).unwrap();
            }
            std::fs::write(dir.join("instruction.md"), "Do it.\n").unwrap();
            std::fs::write(dir.join("task.toml"), task.toml).unwrap();
            std::fs::write(dir.join("solution/solve.sh"), task.solution).unwrap();
            std::fs::write(dir.join("tests/test.sh"), task.test).unwrap();
            if let Some(dockerfile) = task.dockerfile {
                std::fs::write(dir.join("environment/Dockerfile"), dockerfile).unwrap();
            }
        }
        let run = Self {
            folder,
            sandbox: sandbox.to_owned(),
        };
        succeeds(
            lego()
                .args(["prepare", "index"])
                .arg(run.path("tasks"))
                .arg("-o")
                .arg(run.path("index.parquet")),
        );
        let policy = root().join("examples/quickstart/policy");
        let config = format!(
            "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"index.parquet\"\nmax_prompt_tokens = 384\n\
             max_response_tokens = 128\n[sandbox]\nbackend = \"docker\"\n{}\n",
            policy.display(),
            run.sandbox
        );
        std::fs::write(run.path("run.toml"), config).unwrap();
        run
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Folder of a rollout. Its name is no other test's: containers bear it.
    fn out(&self, scaffold: &str) -> PathBuf {
        let own = self.folder.path().file_name().unwrap().to_string_lossy().into_owned();
        self.path(&format!("out-{scaffold}-{}", own.trim_start_matches('.')))
    }

    fn command(&self, scaffold: &str, trials: u32) -> Command {
        let mut command = lego();
        command
            .arg("rollout")
            .arg(self.path("run.toml"))
            .args(["--scaffold", scaffold, "--format", "jsonl", "-o"]);
        command.arg(self.out(scaffold));
        command.args([
            "--set",
            &format!("rollout.group_size={trials}"),
            "--set",
            "rollout.max_retries=0",
        ]);
        command
    }

    /// Runs every task so many times; gives the rows, by task.
    fn trials(&self, scaffold: &str, trials: u32) -> Vec<Value> {
        let output = self.command(scaffold, trials).output().unwrap();
        let rows = rows(&output);
        assert!(!rows.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        rows
    }

    fn trial_file(&self, scaffold: &str, task: &str, file: &str) -> String {
        let folder = format!("trials/step_0000/{task}__00");
        std::fs::read_to_string(self.out(scaffold).join(folder).join(file)).unwrap()
    }
}

fn lego() -> Command {
    Command::new(env!("CARGO_BIN_EXE_lego"))
}

pub(crate) fn docker(args: &[&str]) -> String {
    String::from_utf8(succeeds(Command::new("docker").args(args)).stdout).unwrap()
}

fn rows(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    let mut rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    rows.sort_by_key(|row| row["trial"].as_str().unwrap().to_owned());
    rows
}

/// Containers of the runs in this folder.
fn containers(run: &Path) -> Vec<String> {
    let labels = docker(&[
        "ps",
        "-a",
        "--filter",
        "label=lego.owner",
        "--format",
        "{{.Label \"lego.run\"}}",
    ]);
    let name = run.file_name().unwrap().to_string_lossy().into_owned();
    labels.lines().filter(|line| *line == name).map(str::to_owned).collect()
}
