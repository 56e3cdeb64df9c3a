//! What Harbor is told of a trial: its `TrialConfig`, as JSON.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{Harbor, Run};
use crate::config::HarborApi;
use crate::rollout::trial::TrialContext;

/// Variable of Harbor's process that holds the session's token: it stands in no file and on no command line.
pub(super) const KEY: &str = "LEGO_SESSION_TOKEN";

/// Harbor's own agents that call none.
pub(super) fn calls_a_model(agent: &str) -> bool {
    !matches!(agent, "oracle" | "nop")
}

/// The settings of one trial; its folder is made in `own`.
pub(super) fn of(context: &TrialContext, harbor: &Harbor, run: &Run<'_>, own: &Path) -> Result<Value, String> {
    let section = &context.sandbox_section;
    let absolute = |path: &Path| std::path::absolute(path).map_err(|error| format!("{}: {error}", path.display()));
    let mounts = context.scaffold_section.runtime_mount.iter().map(|folder| {
        let folder = absolute(folder)?;
        Ok(json!({"type": "bind", "source": folder, "target": folder, "read_only": true}))
    });
    let mounts = mounts.collect::<Result<Vec<Value>, String>>()?;
    let mut agent = named(run.agent, "name");
    agent.insert("env".to_owned(), json!(context.scaffold_section.env));
    if let Some(session) = run.session {
        agent.extend(model(context, harbor, run.agent, &session.url));
    }
    put(
        &mut agent,
        "override_timeout_sec",
        section.timeouts.agent.map(|limit| limit.0.as_secs_f64()),
    );
    let mut environment = named(&harbor.section.environment, "type");
    put(&mut environment, "override_cpus", section.cpus);
    put(
        &mut environment,
        "override_memory_mb",
        section.memory.map(|size| size.0 >> 20),
    );
    put(&mut environment, "mounts", (!mounts.is_empty()).then_some(mounts));
    let mut verifier = Map::new();
    put(
        &mut verifier,
        "override_timeout_sec",
        section.timeouts.verifier.map(|limit| limit.0.as_secs_f64()),
    );
    Ok(json!({
        "task": {"path": absolute(&run.plan.task.dir)?},
        "trial_name": run.name,
        "trials_dir": absolute(own)?,
        "timeout_multiplier": section.timeout_multiplier,
        "agent": agent,
        "environment": environment,
        "verifier": verifier,
    }))
}

/// One of its own by name, or a class by its import path. The other key is null, so that it goes over an own file's.
fn named(name: &str, key: &str) -> Map<String, Value> {
    let (own, class) = if name.contains(':') {
        (Value::Null, name.into())
    } else {
        (name.into(), Value::Null)
    };
    Map::from_iter([(key.to_owned(), own), ("import_path".to_owned(), class)])
}

fn put(into: &mut Map<String, Value>, key: &str, value: Option<impl Into<Value>>) {
    if let Some(value) = value {
        into.insert(key.to_owned(), value.into());
    }
}

/// How the agent reaches the policy.
fn model(context: &TrialContext, harbor: &Harbor, agent: &str, session: &str) -> Map<String, Value> {
    let section = &harbor.section;
    let messages = match section.api_format {
        Some(format) => format == HarborApi::AnthropicMessages,
        None => agent == "claude-code",
    };
    // Harbor hands addresses on as they are, and the clients of OpenAI's APIs add no version to them.
    let (provider, url) = if messages {
        ("anthropic", session.to_owned())
    } else {
        ("openai", format!("{session}/v1"))
    };
    let name = section.model.clone();
    let name = name.unwrap_or_else(|| format!("{provider}/{}", context.model));
    let mut told = Map::new();
    put(&mut told, "model_name", Some(name));
    put(&mut told, "base_url", Some(url));
    put(&mut told, "model_api_key_name", Some(KEY));
    put(
        &mut told,
        "model_api_format",
        section.api_format.map(|format| json!(format)),
    );
    told
}
