//! Writes a run config as TOML: complete, in the order of the sections, with an optional comment a value.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value as Json;

use super::RunConfig;
use super::secret;

/// Column at which comments start, where the line is shorter.
const COMMENT_COLUMN: usize = 40;

/// The config as TOML; `comment` gives the remark for a dotted key.
///
/// Keys without a value appear as comments, so that the file lists everything that can be written.
pub(super) fn to_toml(config: &RunConfig, comment: impl Fn(&str) -> Option<String>) -> String {
    // JSON knows the order of the keys and which are absent; TOML's text the shortest spelling of an f32.
    let (Ok(Json::Object(sections)), Ok(values)) = (
        serde_json::to_value(config),
        toml::to_string(config)
            .map_err(|error| error.to_string())
            .and_then(|text| toml::from_str::<toml::Value>(&text).map_err(|error| error.to_string())),
    ) else {
        return String::new();
    };
    let mut out = String::new();
    for (name, section) in &sections {
        table(&mut out, name, section, values.get(name), &comment);
    }
    out
}

/// A key of the config, as data.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ConfigRow {
    /// Dotted.
    pub key: String,
    /// `null` where it is not set; secrets are starred out.
    pub value: Json,
    /// Where it was written (`run.toml:31`), or `default`.
    pub origin: String,
}

/// The config as rows, in the order of the sections.
pub(super) fn to_rows(config: &RunConfig, origin: impl Fn(&str) -> String) -> Vec<ConfigRow> {
    let Ok(keys) = serde_json::to_value(config) else {
        return Vec::new();
    };
    // What is secret is starred out there.
    let values = toml::from_str(&to_toml(config, |_| None)).unwrap_or(Json::Null);
    let mut rows = Vec::new();
    flatten(&mut rows, "", &keys, Some(&values), &origin);
    rows
}

fn flatten(rows: &mut Vec<ConfigRow>, path: &str, keys: &Json, value: Option<&Json>, origin: &impl Fn(&str) -> String) {
    match keys.as_object() {
        Some(entries) if path.is_empty() || !entries.is_empty() => {
            for (key, below) in entries {
                let full = if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{}", bare(key))
                };
                flatten(rows, &full, below, value.and_then(|value| value.get(key)), origin);
            }
        }
        _ => rows.push(ConfigRow {
            value: value.cloned().unwrap_or_default(),
            origin: origin(path),
            key: path.to_owned(),
        }),
    }
}

fn table(
    out: &mut String,
    path: &str,
    section: &Json,
    values: Option<&toml::Value>,
    comment: &impl Fn(&str) -> Option<String>,
) {
    let Some(entries) = section.as_object() else { return };
    if !out.is_empty() {
        out.push('\n');
    }
    let value_of = |key: &str| values.and_then(|values| values.get(key));
    let _ = writeln!(out, "[{path}]");
    for (key, _) in entries.iter().filter(|(_, value)| !value.is_object()) {
        let full = format!("{path}.{key}");
        let Some(value) = value_of(key) else {
            let _ = writeln!(out, "# {} is not set", bare(key));
            continue;
        };
        let line = format!("{} = {}", bare(key), scalar(key, value));
        match comment(&full) {
            Some(remark) => {
                let _ = writeln!(out, "{line:<COMMENT_COLUMN$}  # {remark}");
            }
            None => {
                let _ = writeln!(out, "{line}");
            }
        }
    }
    for (key, value) in entries.iter().filter(|(_, value)| value.is_object()) {
        table(out, &format!("{path}.{}", bare(key)), value, value_of(key), comment);
    }
}

/// A key as TOML writes it.
fn bare(key: &str) -> String {
    let plain = !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    if plain {
        key.to_owned()
    } else {
        toml::Value::String(key.to_owned()).to_string()
    }
}

fn scalar(key: &str, value: &toml::Value) -> String {
    match value {
        toml::Value::String(text) if secret::is_secret(key, text) => "\"***\"".to_owned(),
        toml::Value::Array(items) => {
            format!(
                "[{}]",
                items
                    .iter()
                    .map(|item| scalar(key, item))
                    .collect::<Vec<_>>()
                    .join(", ")
            )
        }
        other => other.to_string(),
    }
}
