//! Real, unmodified agents through `lego rollout`: on a task with a real verifier, with a real tokenizer and template,
//! and answers that are given token by token. What trains is exactly those tokens, once each.

mod agent;
mod faults;
mod logs;
mod script;
mod servers;
mod terminus;
mod training;
mod trial;

use serde_json::json;

use agent::Agent;
use script::{Script, calls, raw, says};
use trial::Trial;

/// These agents, and with `LEGO_TEST_AGENTS=all`, which `tests/run --full` sets, those too.
fn with<const N: usize, const M: usize>(always: [Agent; N], rest: [Agent; M]) -> Vec<Agent> {
    let all = std::env::var("LEGO_TEST_AGENTS").is_ok_and(|which| which == "all");
    always.into_iter().chain(rest.into_iter().filter(|_| all)).collect()
}

/// Writes, looks twice at once, and says that it is done.
fn hello_script(agent: Agent) -> Script {
    Script::new([
        calls("I write the file.", &[agent.bash(script::WRITE)]),
        calls(
            "Now I check it.",
            &[agent.bash("cat hello.txt"), agent.bash("wc -c hello.txt")],
        ),
        agent.last("Done: hello.txt holds the line."),
    ])
}

fn hello(agent: Agent) {
    let episode = Trial::new(agent, hello_script(agent)).passes();
    assert_eq!(episode.segments, 1, "{episode:?}");
    assert_eq!(episode.turns, 3, "{episode:?}");
}

#[test]
fn claude_code_writes_a_file() {
    hello(Agent::CLAUDE_CODE);
}

#[test]
fn the_older_claude_code_writes_a_file() {
    hello(Agent::OLDER_CLAUDE_CODE);
}

/// The agent is not in the image: it is mounted.
#[test]
fn claude_code_writes_a_file_in_a_container() {
    let Some(image) = crate::docker::image() else { return };
    let agent = Agent::CLAUDE_CODE;
    let seen = Trial::new(agent, hello_script(agent)).in_container(image).passes();
    assert_eq!(seen.segments, 1);
}

/// The agent lives in Harbor's own process, and its commands in Harbor's container.
#[test]
fn harbor_runs_the_trial_and_the_proxy_records_its_tokens() {
    let Some(image) = crate::docker::image() else { return };
    let trial = Trial::new(Agent::TERMINUS_2, terminus::hello_script()).in_harbor(image);
    let (folder, seen) = trial.passes_and_stays();
    assert_eq!((seen.segments, seen.turns), (1, 4), "{seen:?}");
    let trial = folder.path().join("out/trials/step_0000/hello__00");
    let log = std::fs::read_to_string(trial.join("verifier/test-stdout.txt"));
    assert!(log.is_ok() && trial.join("agent/trajectory.json").is_file(), "{log:?}");
    let left = crate::docker::docker(&["ps", "-aq", "--filter", "name=hello__00"]);
    assert!(left.trim().is_empty(), "containers of the trial are left: {left}");
}

/// Harbor starts the agent in the container, where it finds it mounted.
#[test]
fn harbor_runs_an_agent_that_is_mounted() {
    let Some(image) = crate::docker::image() else { return };
    let agent = Agent::CLAUDE_CODE;
    let programs = agent.mounts()[0].join("node_modules/.bin");
    let path = format!("{}:/usr/local/bin:/usr/bin:/bin", programs.display());
    // Of a network that an engine has just made it may not name the gateway, which is the subnet's first address.
    let config = crate::docker::docker(&[
        "network",
        "inspect",
        "bridge",
        "-f",
        "{{with index .IPAM.Config 0}}{{.Subnet}} {{.Gateway}}{{end}}",
    ]);
    let mut parts = config.split_whitespace();
    let subnet = parts.next().unwrap();
    let address = parts.next().map_or_else(
        || subnet.split('/').next().unwrap().replace(".0.0", ".0.1"),
        str::to_owned,
    );
    let seen = Trial::new(agent, hello_script(agent))
        .in_harbor(image)
        .set(&format!("proxy.listen=\"{address}:0\""))
        .env("PATH", &path)
        .passes();
    assert_eq!((seen.segments, seen.turns), (1, 3), "{seen:?}");
}

#[test]
fn codex_writes_a_file() {
    hello(Agent::CODEX);
}

#[test]
fn opencode_writes_a_file_over_chat_completions() {
    hello(Agent::OPENCODE);
}

#[test]
fn opencode_writes_a_file_over_anthropic_messages() {
    hello(Agent::OPENCODE_ANTHROPIC);
}

#[test]
fn opencode_writes_a_file_over_responses() {
    hello(Agent::OPENCODE_RESPONSES);
}

#[test]
fn mini_swe_agent_writes_a_file() {
    hello(Agent::MINI_SWE_AGENT);
}

/// Over Chat Completions it does so in `faults`, too.
#[test]
fn openhands_writes_a_file() {
    for agent in with([Agent::OPENHANDS_ANTHROPIC], [Agent::OPENHANDS]) {
        hello(agent);
    }
}

/// A tool that is not there, a call that is no JSON, and then what works.
fn recovers(agent: Agent) {
    let broken = raw(&format!(
        "Broken.\n<tool_call>\n{{\"name\": \"{}\", \"arguments\": {{\"command\": \"printf\n</tool_call>",
        agent.bash_name()
    ));
    let script = Script::new([
        calls("Unknown tool.", &[("no_such_tool", json!({"a": 1}))]),
        calls("I write the file.", &[agent.bash(script::WRITE)]),
        broken,
    ]);
    let episode = Trial::new(agent, script).passes();
    assert_eq!(episode.parse_errors, 1, "{episode:?}");
}

#[test]
fn claude_code_recovers_from_calls_that_cannot_be_made() {
    recovers(Agent::CLAUDE_CODE);
}

#[test]
fn codex_recovers_from_calls_that_cannot_be_made() {
    recovers(Agent::CODEX);
}

#[test]
fn opencode_recovers_from_calls_that_cannot_be_made() {
    recovers(Agent::OPENCODE);
}

#[test]
fn openhands_recovers_from_calls_that_cannot_be_made() {
    recovers(Agent::OPENHANDS);
}

/// Thinking comes back in each dialect's own way, or not at all.
fn thinks(agent: Agent) {
    let script = Script::new([
        raw(&format!(
            "<think>\nThe shell will do.\n</think>\n\n{}",
            agent.bash_text(script::WRITE)
        )),
        raw(&format!(
            "<think>\nCheck it.\n</think>\n\nChecking.\n{}",
            agent.bash_text("cat hello.txt")
        )),
        raw("<think>\nAll good.\n</think>\n\nDone."),
    ]);
    let episode = Trial::new(agent, script).passes();
    assert_eq!(episode.segments, 1, "{episode:?}");
}

#[test]
fn claude_code_thinks() {
    thinks(Agent::CLAUDE_CODE);
}

#[test]
fn the_older_claude_code_thinks() {
    thinks(Agent::OLDER_CLAUDE_CODE);
}

#[test]
fn codex_thinks() {
    thinks(Agent::CODEX);
}

#[test]
fn opencode_thinks() {
    thinks(Agent::OPENCODE);
}

#[test]
fn openhands_thinks() {
    for agent in with([], [Agent::OPENHANDS, Agent::OPENHANDS_ANTHROPIC]) {
        thinks(agent);
    }
}

/// A sub-agent does the work; its conversation is another one.
fn delegates(agent: Agent, then: Vec<serde_json::Value>) {
    let task =
        json!({"description": "write it", "prompt": "SUBTASK: write the file.", "subagent_type": "general-purpose"});
    let turns = [calls("I delegate.", &[("Agent", task)])].into_iter().chain(then);
    let script = Script::new(turns).side(
        "SUBTASK",
        [calls("Working.", &[agent.bash(script::WRITE)]), says("Written.")],
    );
    let episode = Trial::new(agent, script).set("capture.train=all").passes();
    assert_eq!((episode.segments, episode.side_segments), (1, 1), "{episode:?}");
}

#[test]
fn claude_code_delegates_and_is_told_of_the_end() {
    let agent = Agent::CLAUDE_CODE;
    let check = calls("Now I check it.", &[agent.bash("cat hello.txt")]);
    delegates(agent, vec![says("It works in the background."), check, says("Done.")]);
}

#[test]
fn the_older_claude_code_delegates_and_waits() {
    let agent = Agent::OLDER_CLAUDE_CODE;
    let check = calls("Now I check it.", &[agent.bash("cat hello.txt")]);
    delegates(agent, vec![check, says("Done.")]);
}

/// A window that is too small: the agent is told so in words that it knows, has a summary made, and goes on from it.
#[test]
fn claude_code_compacts_its_history() {
    let agent = Agent::CLAUDE_CODE;
    let step = |text| calls(text, &[agent.bash("seq 1 400")]);
    let script = Script::new([step("One."), step("Two."), step("Three.")])
        .side(
            "detailed summary of the conversation",
            [raw("<summary>\nNothing is written yet.\n</summary>")],
        )
        .side_behind(
            "continued from a previous conversation",
            2,
            [calls("Now I write it.", &[agent.bash(script::WRITE)]), says("Done.")],
        );
    let window = ["policy.max_model_len", "train.max_tokens_per_micro_batch"].map(|key| format!("{key}=16000"));
    let rows = ["data.max_prompt_tokens", "data.max_response_tokens"].map(|key| format!("{key}=8000"));
    let trial = window
        .iter()
        .chain(&rows)
        .fold(Trial::new(agent, script), |trial, value| trial.set(value));
    let episode = trial.passes_in_any_order();
    assert_eq!(episode.side_segments, 0, "{episode:?}");
}

#[test]
fn any_program_can_be_the_agent() {
    let agent = Agent::CUSTOM;
    let script = Script::new([calls("I write it.", &[agent.bash(script::WRITE)]), says("Done.")]);
    let episode = Trial::new(agent, script).passes();
    assert_eq!((episode.segments, episode.turns), (1, 2), "{episode:?}");
}

#[test]
fn an_agent_that_is_not_there_is_named_before_any_trial() {
    let script = Script::new([says("never asked")]);
    let output = Trial::new(Agent::CODEX, script).set("scaffold.runtime_mount=[]").run();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("`codex`") && said.contains("npm install @openai/codex"),
        "{said}"
    );
}

#[test]
fn a_library_that_is_not_there_is_named_before_any_trial() {
    let script = Script::new([says("never asked")]);
    let output = Trial::new(Agent::OPENHANDS, script)
        .set("scaffold.runtime_mount=[]")
        .run();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(
        said.contains("`openhands-sdk`") && said.contains("Python 3.12"),
        "{said}"
    );
}

#[test]
fn another_version_than_asked_for_is_refused() {
    let script = Script::new([says("never asked")]);
    let output = Trial::new(Agent::CLAUDE_CODE, script)
        .set("scaffold.version=1.0.0")
        .run();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert!(said.contains("1.0.0") && said.contains("2.1.332"), "{said}");
}

/// The proxy stops an agent that would go on for ever.
#[test]
fn an_agent_that_never_ends_is_stopped_at_its_turns() {
    let agent = Agent::OPENCODE;
    let again = || calls("Once more.", &[agent.bash("true")]);
    let script = Script::new([again(), again(), again(), again(), again()]);
    let output = Trial::new(agent, script).set("scaffold.max_turns=3").run();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(said.contains("\"outcome\":\"max_turns_reached\""), "{said}");
}
