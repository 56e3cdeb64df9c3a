//! What adapters say, without their agents; tests/peers runs those.

use std::time::Duration;

use super::{Adapter, ClaudeCode, Codex, Custom, Endpoint, MiniSweAgent, OpenCode, OpenHands, Terminus2};
use crate::config::Dialect;
use crate::sandbox::ExecOutput;
use crate::scaffold::AgentEnd;

fn endpoint() -> Endpoint<'static> {
    Endpoint {
        url: "http://127.0.0.1:8080/sess/s",
        token: "secret",
        model: "policy",
        window: 32_768,
        max_tokens: 4096,
        max_turns: 30,
        instruction: "mend {model} \"it\"",
        workdir: "/app".to_owned(),
        home: "/root".to_owned(),
        logs: "/logs/agent".to_owned(),
    }
}

fn ended(exit_code: i32, output: &str) -> ExecOutput {
    ExecOutput {
        exit_code,
        output: output.to_owned(),
        truncated: 0,
        timed_out: false,
        duration: Duration::ZERO,
    }
}

#[test]
fn every_agent_is_pointed_at_its_session_and_given_the_task() {
    let custom = Custom::new(&["agent".to_owned(), "{instruction}".to_owned()]).unwrap();
    let opencode = |dialect| Box::new(OpenCode { dialect }) as Box<dyn Adapter>;
    let openhands = |dialect| Box::new(OpenHands { dialect }) as Box<dyn Adapter>;
    let agents: [Box<dyn Adapter>; 10] = [
        Box::new(ClaudeCode),
        Box::new(Codex),
        opencode(Dialect::Chat),
        opencode(Dialect::Anthropic),
        opencode(Dialect::Responses),
        Box::new(MiniSweAgent),
        openhands(Dialect::Chat),
        openhands(Dialect::Anthropic),
        Box::new(Terminus2),
        Box::new(custom),
    ];
    for agent in agents {
        let launch = agent.launch(&endpoint());
        let said = format!("{launch:?}");
        assert_eq!(launch.argv[0], agent.program(), "{said}");
        assert!(said.contains("http://127.0.0.1:8080/sess/s"), "{said}");
        assert!(said.contains("secret") && said.contains("policy"), "{said}");
        let instruction = endpoint().instruction;
        let told = launch.stdin.as_deref() == Some(instruction) || launch.argv.iter().any(|word| word == instruction);
        assert!(told, "{said}");
    }
}

#[test]
fn configuration_files_are_in_their_own_formats() {
    let launch = Codex.launch(&endpoint());
    let (path, text) = &launch.files[0];
    assert_eq!(path, "/root/.codex/config.toml");
    let config: toml::Table = text.parse().unwrap();
    let provider = &config["model_providers"]["lego"];
    assert_eq!(provider["base_url"].as_str(), Some("http://127.0.0.1:8080/sess/s/v1"));
    assert_eq!(provider["wire_api"].as_str(), Some("responses"));
    assert!(launch.env.contains_key(provider["env_key"].as_str().unwrap()));

    let launch = OpenCode {
        dialect: Dialect::Anthropic,
    }
    .launch(&endpoint());
    let config: serde_json::Value = serde_json::from_str(&launch.files[0].1).unwrap();
    assert_eq!(launch.env["OPENCODE_CONFIG"], launch.files[0].0);
    let provider = &config["provider"]["lego"];
    assert_eq!(provider["npm"], "@ai-sdk/anthropic");
    assert_eq!(provider["models"]["policy"]["limit"]["context"], 32_768);
    assert_eq!(config["small_model"], "lego/policy");
}

#[test]
fn agents_that_are_libraries_are_started_by_a_runner() {
    let launch = OpenHands {
        dialect: Dialect::Anthropic,
    }
    .launch(&endpoint());
    assert_eq!(launch.argv[1], launch.files[0].0);
    assert_eq!(launch.env["LLM_MODEL"], "anthropic/policy");
    assert_eq!(launch.env["LLM_BASE_URL"], "http://127.0.0.1:8080/sess/s");
    let launch = Terminus2.launch(&endpoint());
    assert_eq!(launch.argv[1], launch.files[0].0);
    let settings: serde_json::Value = serde_json::from_str(&launch.env["LEGO_TERMINUS"]).unwrap();
    assert_eq!(settings["session_id"], "s");
    assert_eq!(settings["model_info"]["max_input_tokens"], 32_768);
}

#[test]
fn the_turn_limit_of_openhands_is_no_failure() {
    let openhands = OpenHands { dialect: Dialect::Chat };
    let event =
        |code: &str| format!("{{\"kind\":\"ConversationErrorEvent\",\"code\":\"{code}\"}}\nthe conversation ended\n");
    assert_eq!(
        openhands.end(&ended(1, &event("MaxIterationsReached"))),
        AgentEnd::MaxTurns
    );
    assert!(matches!(
        openhands.end(&ended(1, &event("LLMError"))),
        AgentEnd::Failed { .. }
    ));
    assert_eq!(openhands.end(&ended(0, "{}\n")), AgentEnd::Completed);
}

#[test]
fn placeholders_are_filled_once() {
    let words = ["agent", "--model={model}", "{base_url}/v1", "{instruction}"].map(str::to_owned);
    let launch = Custom::new(&words).unwrap().launch(&endpoint());
    assert_eq!(
        launch.argv,
        [
            "agent",
            "--model=policy",
            "http://127.0.0.1:8080/sess/s/v1",
            "mend {model} \"it\""
        ]
    );
    assert!(Custom::new(&[]).is_none());
}

#[test]
fn the_result_event_of_claude_code_stands_above_its_exit_code() {
    let noise = "{\"type\":\"assistant\"}\nnot json\n";
    let result = |event: &str, code| ClaudeCode.end(&ended(code, &format!("{noise}{event}\n")));
    assert_eq!(
        result("{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":false}", 0),
        AgentEnd::Completed
    );
    assert_eq!(
        result(
            "{\"type\":\"result\",\"subtype\":\"error_max_turns\",\"is_error\":true}",
            1
        ),
        AgentEnd::MaxTurns
    );
    let failed = AgentEnd::Failed {
        exit_code: Some(0),
        detail: "API Error".to_owned(),
    };
    assert_eq!(
        result(
            "{\"type\":\"result\",\"subtype\":\"success\",\"is_error\":true,\"result\":\"API Error\"}",
            0
        ),
        failed
    );
}

#[test]
fn the_last_words_of_a_failure_are_kept() {
    let text = format!("{}é the end", "x".repeat(1000));
    let AgentEnd::Failed { exit_code, detail } = Codex.end(&ended(3, &text)) else {
        panic!("a failure");
    };
    assert_eq!((exit_code, detail.chars().count()), (Some(3), 400));
    assert!(detail.ends_with("é the end"));
    assert_eq!(Codex.end(&ended(0, &text)), AgentEnd::Completed);
}
