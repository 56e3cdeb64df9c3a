//! Wrong run.toml files by the table, each through the binary: refused with its class and its line. How long each takes is
//! printed, and asserted by nobody: this machine may be busy.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::workspace::Workspace;

#[path = "../../src/preflight/wrong_files_table.rs"]
mod table;

/// A file without a fault, but that it names no validation.
const GOOD: &str = "[run]\nname = \"first\"\n[policy]\nmodel = \"model\"\n[data]\ntrain = \"tasks/train.jsonl\"\n\
                    max_prompt_tokens = 1024\nmax_response_tokens = 3072\n";

/// What replaces what in it (nothing: it comes behind), the class, and the line of the fault.
const CHECKED: &[(&str, &str, &str, usize)] = &[
    ("\"first\"", "\"../evil\"", "paths", 2),
    ("\"model\"", "\"nowhere\"", "paths", 4),
    ("\"model\"", "\"hf:org/name/more\"", "file", 4),
    ("tasks/train.jsonl", "tasks/gone.parquet", "paths", 6),
    (
        "tasks/train.jsonl",
        "model/config.json\"\nval = [\"v.parquet\"]\n#\"",
        "paths",
        7,
    ),
    ("", "[engine]\nkind = \"replay\"", "paths", 10),
    ("", "[engine]\nkind = \"vllm\"", "engine", 10),
    ("", "[engine]\nkind = \"vllm\"\nendpoints = [\"a:1\"]", "engine", 11),
    ("", "[engine]\nendpoints = [\"http://a:1\"]", "engine", 10),
    (
        "",
        "[engine]\nkind = \"vllm\"\nendpoints = [\"http://a:1\"]\napi_key_env = \"NO_SUCH_KEY\"",
        "engine",
        12,
    ),
    ("", "[engine]\ntool_parser = \"mistral\"", "tool-parser", 10),
    (
        "\"model\"",
        "\"model\"\nchat_template = \"model/config.json\"",
        "chat-template",
        5,
    ),
    ("\"model\"", "\"model\"\nmax_model_len = 2048", "token-budget", 9),
    ("", "[train]\nmax_tokens_per_micro_batch = 4095", "token-budget", 10),
    ("", "[train]\nlr = 0", "schedule", 10),
    ("", "[train]\nlr = 1e-30", "schedule", 10),
    ("", "[train]\nsteps = 10\nwarmup = 10", "schedule", 11),
    ("", "[train]\nscheduler = \"cosine\"", "schedule", 10),
    ("", "[train]\nrouting_replay = \"r3\"", "model-files", 10),
    ("", "[train]\nalgorithm = \"grpo\"\ngamma = 0.5", "batch", 11),
    ("", "[train]\nmini_batch = 48", "batch", 10),
    ("", "[rollout]\ngroup_size = 1", "batch", 10),
    ("", "[rollout]\ntop_p = 0.9", "batch", 10),
    ("", "[rollout]\ntemperature = 0", "batch", 10),
    ("", "[rollout]\ndynamic_sampling = true", "batch", 10),
    ("", "[async]\nstaleness = 0.5", "async", 10),
    ("", "[sandbox]\nregistry = \"reg/\"", "sandbox", 10),
    ("", "[sandbox.docker]\nstarts = 2", "sandbox", 9),
    ("", "[scaffold]\nname = \"custom\"", "agent", 10),
    ("", "[scaffold.env]\nHF_TOKEN = \"hf_abcdefghijkl\"", "secrets", 10),
    (
        "",
        "[sandbox]\nbackend = \"kubernetes\"\n[sandbox.kubernetes]\nkubeconfig = \"gone\"",
        "images",
        12,
    ),
];

/// What came of a file.
struct Refused {
    class: String,
    line: usize,
    took: Duration,
}

fn preflight(work: &Workspace, text: &str) -> Refused {
    std::fs::write(work.path().join("run.toml"), text).unwrap();
    let mut command = work.command(&["preflight", "run.toml", "--static", "--json"]);
    let began = Instant::now();
    let output = command.output().unwrap();
    let took = began.elapsed();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let line_of = |text: &str| {
        let behind = text.split("run.toml:").nth(1).unwrap_or_default();
        let digits: String = behind.chars().take_while(char::is_ascii_digit).collect();
        digits.parse().unwrap_or(0)
    };
    if output.status.code() == Some(2) {
        return Refused {
            class: "file".to_owned(),
            line: line_of(&said),
            took,
        };
    }
    let rows: Vec<Value> =
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{text}: {error}: {said}"));
    let last = rows.last().unwrap();
    assert_eq!(
        (output.status.code(), &last["status"]),
        (Some(1), &Value::from("fatal")),
        "{text}: {rows:#?}"
    );
    Refused {
        class: last["check"].as_str().unwrap().to_owned(),
        line: line_of(last["location"].as_str().unwrap_or_default()),
        took,
    }
}

#[test]
fn each_wrong_file_is_refused_with_its_class_and_its_line() {
    let work = Workspace::new().model();
    let mut told = String::new();
    let mut slowest = (Duration::ZERO, String::new());
    let mut wrong = Vec::new();
    let checked = CHECKED.iter().map(|(old, new, class, line)| {
        let text = if old.is_empty() {
            format!("{GOOD}{new}\n")
        } else {
            GOOD.replacen(old, new, 1)
        };
        (text, *class, *line)
    });
    let files: Vec<_> = table::WRONG
        .iter()
        .map(|(text, line, _)| ((*text).to_owned(), "file", *line))
        .chain(checked)
        .collect();
    assert!(files.len() >= 60);
    for (text, class, line) in &files {
        let refused = preflight(&work, text);
        if (refused.class.as_str(), refused.line) != (*class, *line) {
            wrong.push(format!(
                "{text}\n  expected {class}, line {line}; found {}, line {}",
                refused.class, refused.line
            ));
        }
        let shown = text.trim_start_matches(GOOD).trim().replace('\n', " | ");
        let _ = writeln!(
            told,
            "{:>6.1} ms  {class:<13} line {line:<3} {shown}",
            refused.took.as_secs_f64() * 1e3
        );
        if refused.took > slowest.0 {
            slowest = (refused.took, shown);
        }
    }
    let _ = writeln!(
        told,
        "{} files; the slowest took {:.1} ms: {}",
        files.len(),
        slowest.0.as_secs_f64() * 1e3,
        slowest.1
    );
    #[expect(clippy::print_stdout, reason = "the times are what is looked at")]
    {
        print!("{told}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
