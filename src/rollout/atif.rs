//! trajectory.json of a trial: the main conversation as an ATIF document (Agent Trajectory Interchange Format 1.6),
//! so that Harbor's viewer and its readers open it. For people and other tools; nothing here trains.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::prompt::{Message, Role, ToolCall};
use crate::trajectory::{Episode, Segment};

/// Version of the format that is written.
const VERSION: &str = "ATIF-v1.6";

/// The document.
#[derive(Debug, Serialize)]
pub(super) struct Trajectory {
    schema_version: &'static str,
    session_id: String,
    agent: Agent,
    /// At least one.
    steps: Vec<Step>,
    final_metrics: FinalMetrics,
}

#[derive(Debug, Serialize)]
struct Agent {
    name: String,
    version: String,
    model_name: String,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the format's")]
struct Step {
    /// From 1, without gaps.
    step_id: usize,
    source: &'static str,
    message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    model_name: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Call>,
    #[serde(skip_serializing_if = "Option::is_none")]
    observation: Option<Observation>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metrics: Option<StepTokens>,
}

#[derive(Debug, Serialize)]
struct Call {
    tool_call_id: String,
    function_name: String,
    /// The format wants an object: a text that is none stands under `raw`.
    arguments: Map<String, Value>,
}

#[derive(Debug, Default, Serialize)]
struct Observation {
    results: Vec<ObservationResult>,
}

#[derive(Debug, Serialize)]
struct ObservationResult {
    /// Only a call of the same step may be named.
    #[serde(skip_serializing_if = "Option::is_none")]
    source_call_id: Option<String>,
    content: String,
}

#[derive(Debug, Clone, Copy, Serialize)]
struct StepTokens {
    prompt_tokens: u64,
    completion_tokens: u64,
}

#[derive(Debug, Serialize)]
#[expect(clippy::struct_field_names, reason = "the names are the format's")]
struct FinalMetrics {
    total_prompt_tokens: u64,
    total_completion_tokens: u64,
    total_steps: usize,
}

/// The document of an episode. `instruction` stands for the conversation where the agent called no model.
pub(super) fn trajectory(episode: &Episode, instruction: &str) -> Trajectory {
    let messages: Vec<Message> = serde_json::from_str(&episode.messages).unwrap_or_default();
    let mut steps: Vec<Step> = Vec::with_capacity(messages.len());
    for message in messages {
        match (message.role, steps.last_mut()) {
            (Role::Tool, Some(last)) if last.source == "agent" => observe(last, message),
            _ => steps.push(step(message, &episode.model)),
        }
    }
    if steps.is_empty() {
        steps.push(step(Message::text(Role::User, instruction), &episode.model));
    }
    for (at, step) in steps.iter_mut().enumerate() {
        step.step_id = at + 1;
    }
    give_tokens(&mut steps, &episode.segments);
    Trajectory {
        schema_version: VERSION,
        session_id: episode.trial_id.to_string(),
        agent: Agent {
            name: episode.agent.clone(),
            version: episode.agent_version.clone(),
            model_name: episode.model.clone(),
        },
        final_metrics: FinalMetrics {
            total_prompt_tokens: prompt_tokens(&episode.segments),
            total_completion_tokens: episode.audit.sampled_tokens,
            total_steps: steps.len(),
        },
        steps,
    }
}

/// Prompt tokens of the answers that are in the segments, each call's prompt counted in full as a server counts it.
pub(super) fn prompt_tokens(segments: &[Segment]) -> u64 {
    segments.iter().flat_map(calls).map(|call| call.prompt_tokens).sum()
}

/// The answers of a segment: runs of sampled tokens, and what stood before each.
fn calls(segment: &Segment) -> Vec<StepTokens> {
    let mut calls = Vec::new();
    let mut at = 0;
    for run in segment.response_mask.chunk_by(|a, b| a == b) {
        if run[0] == 1 {
            calls.push(StepTokens {
                prompt_tokens: (segment.prompt_ids.len() + at) as u64,
                completion_tokens: run.len() as u64,
            });
        }
        at += run.len();
    }
    calls
}

/// Tokens of each answer, where the conversation is one segment and each of its answers is in there.
fn give_tokens(steps: &mut [Step], segments: &[Segment]) {
    let mut main = segments.iter().filter(|segment| segment.is_main_agent);
    let (Some(segment), None) = (main.next(), main.next()) else {
        return;
    };
    let calls = calls(segment);
    if steps.iter().filter(|step| step.source == "agent").count() != calls.len() {
        return;
    }
    for (step, tokens) in steps.iter_mut().filter(|step| step.source == "agent").zip(calls) {
        step.metrics = Some(tokens);
    }
}

fn step(message: Message, model: &str) -> Step {
    let agent = message.role == Role::Assistant;
    Step {
        step_id: 0,
        source: match message.role {
            Role::System => "system",
            Role::Assistant => "agent",
            // A result that follows no answer came from the agent's side of the conversation.
            Role::User | Role::Tool => "user",
        },
        message: message.content,
        model_name: agent.then(|| model.to_owned()),
        reasoning_content: message.reasoning_content.filter(|_| agent),
        tool_calls: message.tool_calls.into_iter().enumerate().map(call).collect(),
        observation: None,
        metrics: None,
    }
}

fn call((at, call): (usize, ToolCall)) -> Call {
    Call {
        tool_call_id: call.id.unwrap_or_else(|| format!("call_{}", at + 1)),
        function_name: call.function.name,
        arguments: match call.function.arguments {
            Value::Object(object) => object,
            other => Map::from_iter([("raw".to_owned(), other)]),
        },
    }
}

fn observe(step: &mut Step, result: Message) {
    let source_call_id = result
        .tool_call_id
        .filter(|id| step.tool_calls.iter().any(|call| call.tool_call_id == *id));
    let content = result.content;
    step.observation
        .get_or_insert_default()
        .results
        .push(ObservationResult {
            source_call_id,
            content,
        });
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::trajectory::fixture::episode;

    #[test]
    fn a_conversation_becomes_steps_with_their_observations_and_tokens() {
        let mut episode = episode("t@1#0");
        episode.messages = json!([
            {"role": "system", "content": "s"},
            {"role": "user", "content": "u"},
            {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "bash", "arguments": {"command": "ls"}}},
                {"id": "b", "type": "function", "function": {"name": "bash", "arguments": "{oops"}}]},
            {"role": "tool", "tool_call_id": "a", "content": "f"},
            {"role": "tool", "tool_call_id": "z", "content": "no"},
            {"role": "assistant", "content": "done"},
        ])
        .to_string();
        episode.audit.sampled_tokens = 5;
        episode.segments = vec![Segment {
            prompt_ids: vec![1, 2, 3],
            response_ids: vec![4, 5, 6, 7, 8, 9],
            response_mask: vec![1, 1, 0, 1, 1, 1],
            is_main_agent: true,
            ..Segment::default()
        }];
        let value = serde_json::to_value(trajectory(&episode, "unused")).unwrap();
        assert_eq!(value["schema_version"], "ATIF-v1.6");
        let steps = value["steps"].as_array().unwrap();
        let of = |key: &str| steps.iter().map(|step| step[key].clone()).collect::<Vec<_>>();
        assert_eq!(of("step_id"), [1, 2, 3, 4]);
        assert_eq!(of("source"), ["system", "user", "agent", "agent"]);
        assert_eq!(steps[2]["reasoning_content"], "hm");
        assert_eq!(steps[2]["tool_calls"][0]["arguments"], json!({"command": "ls"}));
        assert_eq!(steps[2]["tool_calls"][1]["arguments"], json!({"raw": "{oops"}));
        assert_eq!(
            steps[2]["observation"]["results"],
            json!([{"source_call_id": "a", "content": "f"}, {"content": "no"}])
        );
        assert_eq!(steps[2]["metrics"], json!({"prompt_tokens": 3, "completion_tokens": 2}));
        assert_eq!(steps[3]["metrics"], json!({"prompt_tokens": 6, "completion_tokens": 3}));
        assert_eq!(
            value["final_metrics"],
            json!({"total_prompt_tokens": 9, "total_completion_tokens": 5, "total_steps": 4})
        );
    }

    #[test]
    fn an_agent_that_called_no_model_still_has_a_step() {
        let value = serde_json::to_value(trajectory(&episode("t@1#0"), "mend it")).unwrap();
        assert_eq!(
            value["steps"],
            json!([{"step_id": 1, "source": "user", "message": "mend it"}])
        );
    }
}
