//! A real agent trains the real policy: two steps of `lego train` on the embedded engine.

use std::process::Command;

use serde_json::{Value, json};

use super::agent::Agent;
use crate::{root, succeeds};

#[test]
fn mini_swe_agent_trains_two_steps_on_the_embedded_engine() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    // The quickstart's policy with a window that the agent's first prompt fits.
    std::fs::create_dir(path("policy")).unwrap();
    let policy = root().join("examples/quickstart/policy");
    for file in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(policy.join(file), path("policy").join(file)).unwrap();
    }
    let mut shape: Value = serde_json::from_slice(&std::fs::read(policy.join("config.json")).unwrap()).unwrap();
    shape["max_position_embeddings"] = json!(8192);
    std::fs::write(path("policy/config.json"), shape.to_string()).unwrap();
    // This policy cannot do the task: one episode of each group is called good, so that there is something to learn.
    let test = "#!/bin/sh\ncase $(cat /etc/hostname) in *-00-*) reward=1 ;; esac\n\
                echo \"${reward:-0}\" >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n";
    let tasks = [0, 1, 2, 3].map(|index| {
        let task = json!({"instance_id": format!("task-{index}"), "data_source": "made", "test": test,
            "problem_statement": "Mend it.", "files": {"README": "Nothing here.\n"},
            "solution": "#!/bin/sh\ntrue\n"});
        task.to_string() + "\n"
    });
    std::fs::write(path("tasks.jsonl"), tasks.concat()).unwrap();
    let run = format!(
        "[run]\nname = \"mini\"\ndir = \"runs\"\n[policy]\nmodel = \"policy\"\n[data]\ntrain = \"tasks.jsonl\"\n\
         max_prompt_tokens = 4096\nmax_response_tokens = 4096\n[scaffold]\nname = \"mini-swe-agent\"\nmax_turns = 2\n\
         runtime_mount = {:?}\n[rollout]\ngroups_per_step = 1\ngroup_size = 2\nmax_tokens = 32\n\
         [train]\nalgorithm = \"grpo\"\nsteps = 2\nlr = 1e-4\nbypass_old_logprob = true\n[eval]\nevery = 0\n",
        Agent::MINI_SWE_AGENT.mounts()
    );
    std::fs::write(path("run.toml"), run).unwrap();
    succeeds(
        Command::new(env!("CARGO_BIN_EXE_lego"))
            .arg("train")
            .arg(path("run.toml")),
    );

    let metrics = std::fs::read_to_string(path("runs/mini/metrics.jsonl")).unwrap();
    let steps: Vec<Value> = metrics
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(steps.len(), 2, "{metrics}");
    for step in &steps {
        assert_eq!(step["critic/score/mean"], 0.5, "{step}");
        assert!(step["actor/grad_norm"].as_f64().unwrap() > 0.0, "{step}");
        // What was sampled over HTTP by the agent has the trainer's own probabilities.
        assert!(step["rollout/sampled_tokens"].as_f64().unwrap() > 0.0, "{step}");
    }
    let weights = |place: &str| std::fs::read(path(place).join("model.safetensors")).unwrap();
    assert_ne!(weights("policy"), weights("runs/mini/checkpoints/step_000002"));
}
