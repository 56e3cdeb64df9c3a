//! Reads task.toml: unknown keys become warnings, wrong types errors, both with their place.

use std::path::Path;

use schemars::generate::SchemaSettings;
use serde::Deserialize as _;
use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::{NetworkMode, TaskConfig, TaskError};

/// The newest version of the format that is read in full.
const NEWEST: (u32, u32) = (1, 4);

/// A key or a version that is not understood, and that does not stop the task from being read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaWarning {
    /// task.toml.
    pub path: std::path::PathBuf,
    /// From 1.
    pub line: usize,
    /// What is not understood, and the nearest thing that would be.
    pub message: String,
}

impl std::fmt::Display for SchemaWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}: {}", self.path.display(), self.line, self.message)
    }
}

/// One step down a document.
enum Step {
    Key(String),
    Index(usize),
}

/// Reads the text of a task.toml; `path` is only named in messages.
pub fn parse_task_toml(path: &Path, text: &str) -> Result<(TaskConfig, Vec<SchemaWarning>), TaskError> {
    let wrong = |error: &toml::de::Error| {
        let (line, column) = place(text, error.span().map_or(0, |span| span.start));
        TaskError::Manifest {
            path: path.to_owned(),
            line,
            column,
            message: error.message().trim().replace('\n', ", "),
        }
    };
    let mut unknown = Vec::new();
    let deserializer = toml::Deserializer::parse(text).map_err(|error| wrong(&error))?;
    // The wrapper that reports unknown keys loses the place of errors, so the types are checked without it first.
    let config = TaskConfig::deserialize(deserializer).map_err(|error| wrong(&error))?;
    let again = toml::Deserializer::parse(text).map_err(|error| wrong(&error))?;
    serde_ignored::deserialize::<_, _, TaskConfig>(again, |key| unknown.push(steps(&key)))
        .map_err(|error| wrong(&error))?;

    let mut warnings = Vec::new();
    if !unknown.is_empty() {
        let document = DeTable::parse(text).map_err(|error| wrong(&error))?;
        let schema = known_keys();
        for steps in &unknown {
            let line = position(&document, steps).map_or(1, |offset| place(text, offset).0);
            warnings.push(SchemaWarning {
                path: path.to_owned(),
                line,
                message: describe(steps, &schema),
            });
        }
    }
    if let Some(version) = config.schema_version.as_deref().filter(|version| is_newer(version)) {
        let message = format!("schema_version `{version}` is newer than 1.4; keys that it added are not understood");
        warnings.push(SchemaWarning {
            path: path.to_owned(),
            line: 1,
            message,
        });
    }
    contradictions(&config).map_or(Ok(()), |message| {
        Err(TaskError::Contradiction {
            path: path.to_owned(),
            message,
        })
    })?;
    Ok((config, warnings))
}

/// Line and column (from 1, in characters) of a byte offset.
fn place(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |at| at + 1);
    (
        before.matches('\n').count() + 1,
        before[line_start..].chars().count() + 1,
    )
}

fn is_newer(version: &str) -> bool {
    let (major, minor) = version.split_once('.').unwrap_or((version, "0"));
    matches!((major.parse(), minor.parse()), (Ok(major), Ok(minor)) if (major, minor) > NEWEST)
}

fn steps(path: &serde_ignored::Path<'_>) -> Vec<Step> {
    use serde_ignored::Path;
    match path {
        Path::Root => Vec::new(),
        Path::Seq { parent, index } => extended(parent, Step::Index(*index)),
        Path::Map { parent, key } => extended(parent, Step::Key(key.clone())),
        Path::Some { parent } | Path::NewtypeStruct { parent } | Path::NewtypeVariant { parent } => steps(parent),
    }
}

fn extended(parent: &serde_ignored::Path<'_>, step: Step) -> Vec<Step> {
    let mut all = steps(parent);
    all.push(step);
    all
}

/// Byte offset of the key that the steps lead to.
fn position(document: &Spanned<DeTable<'_>>, steps: &[Step]) -> Option<usize> {
    let (Step::Key(first), mut rest) = steps.split_first()? else {
        return None;
    };
    let (key, mut value) = document
        .get_ref()
        .iter()
        .find(|(key, _)| key.get_ref() == first.as_str())?;
    let mut offset = key.span().start;
    while let Some((step, tail)) = rest.split_first() {
        match (step, value.get_ref()) {
            (Step::Key(name), DeValue::Table(table)) => {
                let (key, inner) = table.iter().find(|(key, _)| key.get_ref() == name.as_str())?;
                (offset, value) = (key.span().start, inner);
            }
            (Step::Index(index), DeValue::Array(array)) => value = array.get(*index)?,
            _ => return Some(offset),
        }
        rest = tail;
    }
    Some(offset)
}

/// The keys of every section: the schema of the types, which cannot fall behind them.
fn known_keys() -> Value {
    let settings = SchemaSettings::default().with(|settings| settings.inline_subschemas = true);
    settings
        .into_generator()
        .into_root_schema_for::<TaskConfig>()
        .to_value()
}

/// The part of a schema that has properties or items, past `null` alternatives.
fn solid(schema: &Value) -> &Value {
    let choices = schema.get("anyOf").and_then(Value::as_array);
    choices
        .and_then(|choices| choices.iter().find(|choice| choice.get("properties").is_some()))
        .unwrap_or(schema)
}

fn describe(path: &[Step], schema: &Value) -> String {
    let mut section = String::new();
    let mut here = solid(schema);
    let nowhere = Value::Null;
    let Some((Step::Key(key), parents)) = path.split_last() else {
        return "unknown key".to_owned();
    };
    for step in parents {
        here = match step {
            Step::Key(name) => {
                section = if section.is_empty() {
                    name.clone()
                } else {
                    format!("{section}.{name}")
                };
                here.get("properties")
                    .and_then(|keys| keys.get(name))
                    .map_or(&nowhere, solid)
            }
            Step::Index(_) => here.get("items").map_or(&nowhere, solid),
        };
    }
    let place = if section.is_empty() {
        "at the top level".to_owned()
    } else {
        format!("in `[{section}]`")
    };
    let known = here.get("properties").and_then(Value::as_object);
    let nearest = known
        .into_iter()
        .flatten()
        .map(|(name, _)| (strsim::damerau_levenshtein(name, key), name));
    match nearest.min().filter(|(distance, _)| *distance <= 2 + key.len() / 4) {
        Some((_, name)) => format!("unknown key `{key}` {place} is ignored; did you mean `{name}`?"),
        None => format!("unknown key `{key}` {place} is ignored"),
    }
}

/// Values that are right each, but not together.
fn contradictions(config: &TaskConfig) -> Option<String> {
    let environment = &config.environment;
    let phases = [
        ("environment", environment.network_mode, &environment.allowed_hosts),
        ("agent", config.agent.network_mode, &config.agent.allowed_hosts),
        ("verifier", config.verifier.network_mode, &config.verifier.allowed_hosts),
    ];
    for (section, mode, hosts) in phases {
        if !hosts.is_empty() && mode.is_some_and(|mode| mode != NetworkMode::Allowlist) {
            return Some(format!(
                "`{section}.allowed_hosts` needs `{section}.network_mode = \"allowlist\"`"
            ));
        }
    }
    for server in &environment.mcp_servers {
        let (key, value) = match server.transport.as_deref().unwrap_or("sse") {
            "stdio" => ("command", &server.command),
            _ => ("url", &server.url),
        };
        if value.is_none() {
            return Some(format!("MCP server `{}` needs `{key}` for its transport", server.name));
        }
    }
    None
}
