//! What befalls the servers below real agents: the result is that of an undisturbed run.
//!
//! A few agents stand for all; `tests/run --full` takes every one.

use std::time::Duration;

use super::agent::Agent;
use super::script::Script;
use super::servers::Trouble;
use super::trial::Trial;
use super::{hello_script, terminus, with};

/// What the agent is made to do, and how many answers it asks for.
fn script_of(agent: Agent) -> (Script, u64) {
    match agent.name {
        "terminus-2" => (terminus::hello_script(), 4),
        // It asks for a title first.
        "opencode" => (hello_script(agent), 4),
        _ => (hello_script(agent), 3),
    }
}

/// A server is lost in the middle of an answer, and the session goes on at the other one.
fn outlives_a_server(agent: Agent) {
    let (script, calls) = script_of(agent);
    let episode = Trial::new(agent, script).on_servers(2, Trouble::Lost(1)).passes();
    assert_eq!(episode.segments, 1, "{agent:?}: {episode:?}");
    assert_eq!(
        episode.generations,
        calls + 1,
        "one of them in two parts: {agent:?}: {episode:?}"
    );
}

#[test]
fn streaming_agents_outlive_a_server() {
    let agents = with(
        [Agent::CLAUDE_CODE, Agent::CODEX],
        [Agent::OLDER_CLAUDE_CODE, Agent::OPENCODE],
    );
    for agent in agents {
        outlives_a_server(agent);
    }
}

#[test]
fn agents_that_wait_for_whole_answers_outlive_a_server() {
    let agents = with([Agent::OPENHANDS], [Agent::MINI_SWE_AGENT, Agent::TERMINUS_2]);
    for agent in agents {
        outlives_a_server(agent);
    }
}

/// The agent gives up and asks the same again (opencode never does) while the first answer is still being sampled: that one is the answer.
fn asks_again(agent: Agent) {
    // Longer than the agent waits, and than the proxy keeps its own first word back.
    let slow = Trouble::Slow(1, Duration::from_secs(8));
    let (script, calls) = script_of(agent);
    let trial = Trial::new(agent, script).on_servers(1, slow);
    let trial = match agent.name {
        "claude-code" => trial.env("API_TIMEOUT_MS", "3000"),
        "codex" => trial.set(r#"scaffold.args=["-c", "model_providers.lego.stream_idle_timeout_ms=2000"]"#),
        "mini-swe-agent" => trial.set(r#"scaffold.args=["-c", "model.model_kwargs.timeout=3"]"#),
        "terminus-2" => trial.set(r#"scaffold.args=["llm_call_kwargs={\"timeout\": 3}"]"#),
        _ => trial.env("LLM_TIMEOUT", "3").env("LLM_RETRY_MIN_WAIT", "1"),
    };
    let episode = trial.passes();
    assert_eq!(
        (episode.segments, u64::from(episode.turns), episode.generations),
        (1, calls, calls),
        "{agent:?}: {episode:?}"
    );
}

#[test]
fn agents_that_ask_again_get_the_same_answer() {
    let agents = with(
        [Agent::CLAUDE_CODE, Agent::CODEX],
        [
            Agent::MINI_SWE_AGENT,
            Agent::OPENCODE,
            Agent::OPENHANDS,
            Agent::TERMINUS_2,
        ],
    );
    for agent in agents {
        asks_again(agent);
    }
}
