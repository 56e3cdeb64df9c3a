//! `terminus-2` types into a terminal what the policy writes as JSON text.

use serde_json::{Value, json};

use super::agent::Agent;
use super::script::{self, Script, raw, says};
use super::servers::{Trouble, logprob};
use super::trial::Trial;

/// Commands that are typed one after the other.
fn types(commands: &[&str]) -> Value {
    let commands: Vec<Value> = commands
        .iter()
        .map(|command| json!({"keystrokes": format!("{command}\n"), "duration": 0.2}))
        .collect();
    raw(&json!({"analysis": "I look.", "plan": "I type.", "commands": commands}).to_string())
}

/// It asks back once.
fn done() -> Value {
    raw(&json!({"analysis": "It is there.", "plan": "None.", "commands": [], "task_complete": true}).to_string())
}

pub(super) fn hello_script() -> Script {
    Script::new([
        types(&[script::WRITE]),
        types(&["cat hello.txt", "wc -c hello.txt"]),
        done(),
        done(),
    ])
}

/// Its own log holds the tokens and log-probs as the policy sampled them.
#[test]
fn terminus_writes_a_file_and_collects_what_was_sampled() {
    let trial = Trial::new(Agent::TERMINUS_2, hello_script()).on_servers(1, Trouble::None);
    let answers = trial.answers().to_vec();
    let episode = trial.passes();
    assert_eq!((episode.segments, episode.turns), (1, 4), "{episode:?}");
    let context: Value = serde_json::from_str(episode.log.trim().lines().last().unwrap()).unwrap();
    let collected = &context["rollout_details"][0];
    assert_eq!(collected["completion_token_ids"], json!(answers));
    for (ids, logprobs) in answers.iter().zip(collected["logprobs"].as_array().unwrap()) {
        let logprobs: Vec<f32> = serde_json::from_value(logprobs.clone()).unwrap();
        let given: Vec<f32> = ids.iter().map(|id| logprob(*id)).collect();
        assert_eq!(logprobs, given);
    }
    assert_eq!(collected["prompt_token_ids"].as_array().unwrap().len(), 4);
}

#[test]
fn terminus_recovers_from_what_is_no_command() {
    let script = Script::new([
        says("I write the file."),
        raw(&json!({"analysis": "Nothing.", "plan": "None.", "orders": []}).to_string()),
        types(&[script::WRITE]),
        done(),
        done(),
    ]);
    let episode = Trial::new(Agent::TERMINUS_2, script).passes();
    assert_eq!((episode.segments, episode.turns), (1, 5), "{episode:?}");
}

/// Its thinking is not shown to it again.
#[test]
fn terminus_thinks() {
    let thinks = |answer: &Value| {
        raw(&format!(
            "<think>\nHm.\n</think>\n\n{}",
            answer["raw"].as_str().unwrap()
        ))
    };
    let script = Script::new([
        thinks(&types(&[script::WRITE])),
        thinks(&types(&["cat hello.txt"])),
        thinks(&done()),
        thinks(&done()),
    ]);
    let episode = Trial::new(Agent::TERMINUS_2, script).passes();
    assert_eq!((episode.segments, episode.turns), (1, 4), "{episode:?}");
}
