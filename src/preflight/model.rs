//! What preflight reads of a model's folder: small JSON files, and of the weights never the values.

use std::path::{Path, PathBuf};

use lego_policy::ModelConfig;
use serde_json::Value;

use crate::config::{Loaded, PolicySection};

/// Folder that holds the tokenizer's files.
pub(super) fn tokenizer_dir(policy: &PolicySection) -> &Path {
    policy.tokenizer.as_deref().unwrap_or(&policy.model)
}

/// The key that says where the tokenizer's files are.
pub(super) fn tokenizer_key(policy: &PolicySection) -> &'static str {
    if policy.tokenizer.is_some() {
        "policy.tokenizer"
    } else {
        "policy.model"
    }
}

/// The safetensors files in a folder.
pub(super) fn weights(model: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(model).into_iter().flatten().flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "safetensors"))
        .collect()
}

/// The model's shape, where its config can be read.
pub(super) fn shape(policy: &PolicySection) -> Option<ModelConfig> {
    ModelConfig::from_json(&std::fs::read_to_string(policy.model.join("config.json")).ok()?).ok()
}

/// Positions that the model was made for, where its config says so.
pub(super) fn max_positions(run: &Loaded) -> Option<u64> {
    let config = read_json(&run.config.policy.model.join("config.json")).ok()?;
    config.get("max_position_embeddings").and_then(Value::as_u64)
}

/// The template's text and where it is from: the run's own file, `chat_template.jinja`, or the
/// tokenizer's config.
///
/// # Errors
/// What was looked for and not found.
pub(super) fn chat_template(policy: &PolicySection) -> Result<(String, PathBuf), String> {
    if let Some(path) = &policy.chat_template {
        let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
        return Ok((text, path.clone()));
    }
    let folder = tokenizer_dir(policy);
    let jinja = folder.join("chat_template.jinja");
    if let Ok(text) = std::fs::read_to_string(&jinja) {
        return Ok((text, jinja));
    }
    let path = folder.join("tokenizer_config.json");
    match read_json(&path)?.get("chat_template") {
        Some(Value::String(text)) => Ok((text.clone(), path)),
        // Several templates: the default one.
        Some(Value::Array(named)) => named
            .iter()
            .find(|entry| entry.get("name").is_some_and(|name| name == "default"))
            .and_then(|entry| entry.get("template").and_then(Value::as_str))
            .map(|text| (text.to_owned(), path.clone()))
            .ok_or_else(|| {
                format!(
                    "{} has several chat templates and none is called `default`",
                    path.display()
                )
            }),
        _ => Err(format!("{} has no chat template", path.display())),
    }
}

/// A JSON file.
///
/// # Errors
/// Why it cannot be read, with its name.
pub(super) fn read_json(path: &Path) -> Result<Value, String> {
    let text = std::fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{} is no JSON: {error}", path.display()))
}
