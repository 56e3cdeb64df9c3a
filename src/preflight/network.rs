//! `network`: tests that fetch something while their phase reaches nothing. That is read off the tasks; what can be reached
//! from here and from inside a sandbox is dialled by `reach`.

use super::{Check, Context, Finding, tasks};
use crate::rollout::reached_by_tests;
use crate::task::{NetworkMode, Stage, Task};

pub(super) const ID: &str = "network";
/// Tasks that are named at most.
const NAMED: usize = 3;
/// Commands that fetch from other hosts, as the words that they begin with.
const FETCHES: [&[&str]; 15] = [
    &["apt-get", "install"],
    &["apt-get", "update"],
    &["apt", "install"],
    &["apk", "add"],
    &["pip", "install"],
    &["pip3", "install"],
    &["uv", "pip", "install"],
    &["uvx"],
    &["npx"],
    &["npm", "install"],
    &["npm", "ci"],
    &["git", "clone"],
    &["curl"],
    &["wget"],
    &["conda", "install"],
];

pub(super) struct Network;

impl Check for Network {
    fn id(&self) -> &'static str {
        ID
    }

    fn title(&self) -> &'static str {
        "no tests fetch what their phase cannot reach"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        for (key, tasks) in tasks::named(context) {
            let faults: Vec<String> = tasks.iter().filter_map(fault).collect();
            if faults.is_empty() {
                continue;
            }
            let text = format!(
                "{key}: the tests of {} of {} tasks fetch something, and reach nothing: {}",
                faults.len(),
                tasks.len(),
                faults[..faults.len().min(NAMED)].join("; ")
            );
            found.push(Finding::fatal(ID, text).at(context.run, key).help(
                "put what they fetch into the image, or let them reach it: `allowed_hosts` in `[verifier]` of task.toml",
            ));
        }
        found
    }
}

/// Where the tests of a task fetch something that they cannot reach.
fn fault(task: &Task) -> Option<String> {
    let stages = task.stages().ok()?;
    stages.iter().find_map(|stage| {
        let policy = reached_by_tests(task, stage);
        let closed =
            policy.mode == NetworkMode::NoNetwork || (policy.mode == NetworkMode::Allowlist && policy.hosts.is_empty());
        closed.then(|| fetches(stage)).flatten()
    })
}

/// The first line of the stage's test.sh that fetches, with its place. One that says what to do instead (`||`) does not
/// count, and neither does one that asks this machine.
fn fetches(stage: &Stage) -> Option<String> {
    let mut scripts = stage.tests.iter().rev().map(|folder| folder.join("test.sh"));
    let path = scripts.find(|path| path.is_file())?;
    let text = std::fs::read_to_string(&path).ok()?;
    text.lines().enumerate().find_map(|(at, line)| {
        let command = line.split(" #").next().unwrap_or_default();
        let here = ["localhost", "127.0.0.1", "file://", "--no-index"];
        let counts = !command.trim_start().starts_with('#')
            && !command.contains("||")
            && !here.iter().any(|part| command.contains(part));
        (counts && command.split(['|', ';', '&']).any(is_fetch))
            .then(|| format!("{}:{}  {}", path.display(), at + 1, line.trim()))
    })
}

/// Whether a simple command begins as one that fetches; flags between its words do not matter.
fn is_fetch(command: &str) -> bool {
    let plain = |word: &&str| !word.starts_with('-') && !word.contains('=');
    let words: Vec<&str> = command
        .split_whitespace()
        .filter(plain)
        .skip_while(|word| ["sudo", "then", "do", "!", "if", "exec", "python", "python3"].contains(word))
        .collect();
    FETCHES
        .iter()
        .any(|fetch| words.len() > usize::from(fetch.len() == 1) && words.starts_with(fetch))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_that_fetch_are_told_from_those_that_only_name_one() {
        for fetches in [
            "pip install pytest",
            "apt-get -qq update",
            "apt-get install -y curl",
            "curl -LsSf https://example.org/install.sh",
            "sudo apt install git",
            "PIP_NO_INPUT=1 pip install -q x",
            "python3 -m pip install x",
            "uvx pytest",
            "git clone https://example.org/r",
        ] {
            assert!(is_fetch(fetches), "{fetches}");
        }
        for stays in [
            "echo pip install",
            "pip list",
            "git diff",
            "curl",
            "pytest tests",
            "apt-cache policy",
        ] {
            assert!(!is_fetch(stays), "{stays}");
        }
    }

    fn task(test: &str, toml: &str) -> (tempfile::TempDir, Task) {
        let root = tempfile::tempdir().unwrap();
        let dir = root.path().join("t");
        std::fs::create_dir_all(dir.join("tests")).unwrap();
        std::fs::write(dir.join("instruction.md"), "Do.").unwrap();
        std::fs::write(dir.join("tests/test.sh"), test).unwrap();
        std::fs::write(dir.join("task.toml"), toml).unwrap();
        let task = Task::load(&dir).unwrap();
        (root, task)
    }

    #[test]
    fn only_tests_that_reach_nothing_are_told() {
        let closed = "[verifier]\nnetwork_mode = \"no-network\"\n";
        let fetching = "#!/bin/sh\n# pip install is below\ncd /app && pip install pytest\n";
        let (_root, one) = task(fetching, closed);
        let said = fault(&one).unwrap();
        assert!(
            said.contains("tests/test.sh:3  cd /app && pip install pytest"),
            "{said}"
        );
        for (test, toml) in [
            (fetching, ""),
            (fetching, "[verifier]\nallowed_hosts = [\"pypi.org\"]\n"),
            ("#!/bin/sh\npip install pytest || true\n", closed),
            ("#!/bin/sh\ncurl -s http://localhost:8000/health\n", closed),
            ("#!/bin/sh\npytest\n", closed),
        ] {
            let (_root, one) = task(test, toml);
            assert_eq!(fault(&one), None, "{test} {toml}");
        }
    }
}
