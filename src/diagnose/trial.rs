//! One trial explained from its own files: how it ended, what shows it, and on which side of the sandbox that was seen.

use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::surroundings::grader_trouble;

/// Bytes of a log of calls that are read.
const MOST_LOG: u64 = 64 << 20;

/// Where something was seen: what an agent can write is no evidence against the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Outside of the sandbox, by this program.
    Host,
    /// Inside of it, where the agent could have written it.
    Sandbox,
}

/// Something that was seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct TrialFact {
    /// On which side.
    pub side: Side,
    /// The file, relative to the trial's folder.
    pub file: String,
    /// What it says.
    pub says: String,
}

/// A trial, explained.
#[derive(Debug, Clone, PartialEq, Serialize, schemars::JsonSchema)]
pub struct TrialReport {
    /// Its folder.
    pub trial: PathBuf,
    /// How it ended.
    pub outcome: String,
    /// The reward that counts.
    pub reward: Option<f64>,
    /// One sentence.
    pub verdict: String,
    /// For an end that is laid to the infrastructure: whether something outside of the sandbox shows it.
    pub shown_from_outside: Option<bool>,
    /// What was seen.
    pub facts: Vec<TrialFact>,
    /// What to do.
    pub cures: Vec<String>,
}

/// Explains a trial.
///
/// # Errors
/// Where the folder holds no trial.
pub fn look_at_trial(folder: &Path) -> std::io::Result<TrialReport> {
    let path = folder.join("result.json");
    let bytes = fs_err::read(&path).map_err(|error| {
        std::io::Error::new(
            error.kind(),
            format!("{error}; expected the folder of a trial, such as runs/NAME/trials/step_0001/TASK__00"),
        )
    })?;
    let result: Value = serde_json::from_slice(&bytes)
        .map_err(|error| std::io::Error::other(format!("{}: {error}", path.display())))?;
    let text = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let (outcome, reward) = (text("outcome"), result.get("reward").and_then(Value::as_f64));
    let mut facts = of_result(&result);
    facts.extend(of_calls(&folder.join("calls.jsonl")));
    let grader = grader_trouble(folder);
    if let Some(line) = &grader {
        let says = line
            .strip_prefix(&format!("{}/", folder.display()))
            .unwrap_or(line)
            .to_owned();
        facts.push(fact(Side::Sandbox, "verifier", says));
    }
    let by_host = matches!(outcome.as_str(), "env_setup_failed" | "infra_error");
    let shown = by_host.then(|| {
        let words = ["call", "exception"];
        facts
            .iter()
            .any(|fact| fact.side == Side::Host && words.iter().any(|word| fact.says.starts_with(word)))
    });
    let unasked = facts.iter().any(|fact| fact.says.starts_with("0 calls of the model"));
    let (verdict, cures) = if outcome == "overlong" && unasked {
        (
            "its first prompt does not fit into the window: the model was never asked".to_owned(),
            vec!["`policy.max_model_len`, or shorter instructions and tools".to_owned()],
        )
    } else {
        explain(&outcome, reward, grader.is_some(), shown)
    };
    Ok(TrialReport {
        trial: folder.to_owned(),
        outcome,
        reward,
        verdict,
        shown_from_outside: shown,
        facts,
        cures,
    })
}

fn fact(side: Side, file: &str, says: String) -> TrialFact {
    TrialFact {
        side,
        file: file.to_owned(),
        says,
    }
}

fn of_result(result: &Value) -> Vec<TrialFact> {
    let mut facts = Vec::new();
    let mut host = |says: String| facts.push(fact(Side::Host, "result.json", says));
    if let Some(info) = result.get("exception_info").filter(|info| !info.is_null()) {
        let part = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default();
        host(format!(
            "exception {}: {}",
            part("exception_type"),
            part("exception_message")
        ));
    }
    for (name, what) in [
        ("environment_setup", "the sandbox started"),
        ("agent_setup", "the agent was prepared"),
        ("agent_execution", "the agent worked"),
        ("verifier", "the tests ran"),
    ] {
        let span = result.get(name).filter(|span| !span.is_null());
        let time = |key: &str| span?.get(key)?.as_str()?.parse::<jiff::Timestamp>().ok();
        match (time("started_at"), time("finished_at")) {
            (Some(from), Some(to)) => {
                host(format!(
                    "{what} for {:.1} s",
                    (to.as_millisecond() - from.as_millisecond()) as f64 / 1000.0
                ));
            }
            (Some(_), None) => host(format!("{what}, and no end of it is recorded")),
            _ => {}
        }
    }
    let count = |key: &str| result.pointer(&format!("/agent_result/{key}")).and_then(Value::as_u64);
    if let Some(tokens) = count("n_output_tokens") {
        host(format!("{tokens} tokens were sampled"));
    }
    let flags: Vec<&str> = result
        .get("hack_flags")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect();
    if !flags.is_empty() {
        host(format!("evidence of reward hacking: {}", flags.join(", ")));
    }
    if let Some(report) = result.get("test_report").filter(|report| !report.is_null()) {
        let pair = |key: &str, at: usize| {
            report
                .pointer(&format!("/{key}/{at}"))
                .and_then(Value::as_u64)
                .unwrap_or(0)
        };
        let says = format!(
            "of the tests to be made to pass {} of {} did, of those that passed before {} of {}",
            pair("fail_to_pass", 0),
            pair("fail_to_pass", 1),
            pair("pass_to_pass", 0),
            pair("pass_to_pass", 1)
        );
        facts.push(fact(Side::Sandbox, "verifier/report.json", says));
    }
    facts
}

/// What the proxy saw, which runs on the host.
fn of_calls(path: &Path) -> Vec<TrialFact> {
    let small = std::fs::metadata(path).is_ok_and(|about| about.len() <= MOST_LOG);
    let Some(text) = small.then(|| std::fs::read_to_string(path).ok()).flatten() else {
        return Vec::new();
    };
    let (mut begun, mut ended, mut errors) = (0, 0, Vec::new());
    for line in text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        match line.get("kind").and_then(Value::as_str) {
            Some("begin") => begun += 1,
            Some("end") => {
                ended += 1;
                errors.extend(
                    line.get("error")
                        .and_then(Value::as_str)
                        .map(|error| error.chars().take(200).collect::<String>()),
                );
            }
            _ => {}
        }
    }
    let mut facts = vec![fact(
        Side::Host,
        "calls.jsonl",
        format!("{begun} calls of the model, {ended} answered"),
    )];
    if begun > ended {
        facts.push(fact(
            Side::Host,
            "calls.jsonl",
            format!("call cut off: {} without an end", begun - ended),
        ));
    }
    facts.extend(
        errors
            .first()
            .map(|error| fact(Side::Host, "calls.jsonl", format!("call failed: {error}"))),
    );
    facts
}

fn explain(outcome: &str, reward: Option<f64>, grader: bool, shown: Option<bool>) -> (String, Vec<String>) {
    let said = |text: &str, cures: &[&str]| (text.to_owned(), cures.iter().map(|cure| (*cure).to_owned()).collect());
    match outcome {
        "completed" if reward.is_some_and(|reward| reward >= 1.0) => said("the agent solved its task", &[]),
        "completed" if grader => said(
            "the reward is zero, and the tests' output looks as if they did not run",
            &[
                "run the task with `lego rollout --scaffold oracle`: its solution must earn 1",
                "put what the tests need into the image",
            ],
        ),
        "completed" => said("the agent ended its work, and the tests did not pass", &[]),
        "overlong" => said(
            "the conversation filled the window",
            &["`data.max_response_tokens`, or fewer turns"],
        ),
        "max_turns_reached" => said("the agent used all its turns", &["`scaffold.max_turns`"]),
        "timeout" => said(
            "the agent ran out of time",
            &["`timeout_sec` of `[agent]` in task.toml"],
        ),
        "agent_error" => said(
            "the agent's own program failed; that is the model's doing, and counts",
            &["its output is in agent/"],
        ),
        "verifier_error" => said(
            "the tests gave no valid reward; the trial is not graded",
            &["verifier/test-stdout.txt says what they did"],
        ),
        "env_setup_failed" => said(
            "the sandbox did not become ready; the trial is not graded",
            &[
                "`lego preflight` on this run.toml",
                "the exception names the command or image",
            ],
        ),
        "infra_error" if shown == Some(true) => said(
            "the infrastructure failed, as seen from outside of the sandbox; the trial is not graded",
            &["run the same command again: it is tried again"],
        ),
        "infra_error" => said(
            "laid to the infrastructure, but nothing outside of the sandbox shows it",
            &["look at the engine's log for that time"],
        ),
        "cancelled" => said("it was ended from outside: a tail kill, or a shutdown", &[]),
        other => (
            format!("an outcome that this release does not know: `{other}`"),
            Vec::new(),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trial_is_explained_and_says_where_its_evidence_is_from() {
        let folder = tempfile::tempdir().unwrap();
        assert!(
            look_at_trial(folder.path())
                .unwrap_err()
                .to_string()
                .contains("the folder of a trial")
        );
        let write = |result: &str| std::fs::write(folder.path().join("result.json"), result).unwrap();
        write(
            r#"{"outcome": "infra_error", "reward": null, "exception_info": {"exception_type": "engine", "exception_message": "connection refused"}}"#,
        );
        assert_eq!(look_at_trial(folder.path()).unwrap().shown_from_outside, Some(true));
        write(r#"{"outcome": "infra_error", "reward": null}"#);
        let report = look_at_trial(folder.path()).unwrap();
        assert_eq!(report.shown_from_outside, Some(false));
        assert!(report.verdict.contains("nothing outside"), "{report:?}");
        write(r#"{"outcome": "completed", "reward": 0.0}"#);
        std::fs::create_dir(folder.path().join("verifier")).unwrap();
        std::fs::write(
            folder.path().join("verifier/test-stdout.txt"),
            "x\nsh: pytest: not found\n",
        )
        .unwrap();
        let report = look_at_trial(folder.path()).unwrap();
        let said = report.facts.iter().find(|fact| fact.side == Side::Sandbox).unwrap();
        assert!(said.says.starts_with("verifier/test-stdout.txt:2"), "{report:?}");
    }
}
