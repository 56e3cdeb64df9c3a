//! Tasks that `lego prepare` made, in Harbor: its models read them without a warning, and its oracle and its agent that does
//! nothing come to the rewards that validation found.

use std::process::{Command, Stdio};

use serde_json::Value;

use super::{AGENTS, Job, read, trials};
use crate::docker::image;
use crate::peers;
use crate::prepare::Made;

#[test]
fn prepared_tasks_come_out_in_harbor_as_in_validation() {
    let Some(base) = image() else { return };
    let all = std::env::var("LEGO_TEST_LANGUAGES").ok();
    let languages: &[&str] = match &all {
        Some(_) => &["python", "javascript", "go", "rust", "c"],
        None => &["python"],
    };
    let base = all.as_ref().unwrap_or(&base);
    let made = Made::of(languages);
    let images: Vec<String> = languages
        .iter()
        .map(|language| format!("--base-image={language}={base}"))
        .collect();
    let mut arguments = vec![
        "records.jsonl",
        "-o",
        "tasks",
        "--repo-cache",
        "repos",
        "--network",
        "public",
    ];
    arguments.extend(images.iter().map(String::as_str));
    made.prepare(&arguments);
    let folders: Vec<_> = languages
        .iter()
        .map(|language| made.path(&format!("tasks/o__{language}-7")))
        .collect();
    for task in read("whole", &folders) {
        assert_eq!(task["warnings"], Value::Array(Vec::new()), "{task}");
        assert_eq!(task["network"], "public", "{task}");
    }
    let jobs = AGENTS.map(|agent| {
        let log = std::fs::File::create(made.path(&format!("{agent}.log"))).unwrap();
        let mut command = Command::new(peers("uv/terminus-2").join("bin/harbor"));
        command.args([
            "run",
            "--yes",
            "--quiet",
            "--n-concurrent",
            "2",
            "--agent",
            agent,
            "--job-name",
            agent,
        ]);
        for language in languages {
            command.args(["--include-task-name", &format!("o__{language}-7")]);
        }
        command
            .arg("--path")
            .arg(made.path("tasks"))
            .arg("--jobs-dir")
            .arg(made.path("jobs"));
        command
            .env("DOCKER_CONFIG", peers("docker"))
            .env("HARBOR_TELEMETRY", "off")
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Job(Some(command.spawn().unwrap()))
    });
    for mut job in jobs {
        assert!(job.0.take().unwrap().wait().unwrap().success());
    }
    let theirs = trials(&AGENTS.map(|agent| made.path("jobs").join(agent)));
    made.prepare(&[
        "-o",
        "tasks",
        "--stage",
        "validate",
        "--repeats",
        "1",
        "--backend",
        "docker",
    ]);
    for row in made.rows("tasks/validation.jsonl") {
        for (agent, field) in [("oracle", "oracle_reward"), ("nop", "nop_reward")] {
            let key = (row["instance_id"].as_str().unwrap().to_owned(), agent.to_owned());
            let rewards = &theirs[&key]["rewards"];
            assert_eq!(
                rewards["reward"].as_f64(),
                row[field].as_f64(),
                "{key:?}: {rewards} {row}"
            );
            assert_eq!(
                rewards["reward"].as_f64(),
                Some(if agent == "oracle" { 1.0 } else { 0.0 })
            );
        }
    }
}
