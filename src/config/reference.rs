//! The reference of run.toml, written from its schema.

use std::fmt::Write as _;

use serde_json::Value as Json;

use super::check::in_words;
use super::schema::{KeySchema, choices};

/// Markdown: one table a section, one row a key.
pub fn reference() -> String {
    let mut out = String::from(
        "# run.toml\n\nGenerated from the types by `lego preflight --reference`. Later layers win: defaults, files named by `extends`, \
         run.toml, `LEGO_<SECTION>__<KEY>`, flags and `--set section.key=value`. Tables merge, lists are replaced. \
         Paths start from the folder of the file that writes them.\n",
    );
    let root = KeySchema::root();
    for name in root.keys().unwrap_or_default() {
        let Some(schema) = root.child(&name) else { continue };
        if schema.keys().is_some() {
            section(&mut out, &name, &schema);
        } else {
            let _ = writeln!(
                out,
                "\n## {name}\n\n{} {}",
                sentence(&in_words(&schema)),
                meaning(&schema)
            );
        }
    }
    out
}

fn section(out: &mut String, path: &str, schema: &KeySchema) {
    let _ = write!(
        out,
        "\n## [{path}]\n\n{}\n\n| key | takes | default | meaning |\n|---|---|---|---|\n",
        meaning(schema)
    );
    let mut deeper = Vec::new();
    for key in schema.keys().unwrap_or_default() {
        let Some(child) = schema.child(&key) else { continue };
        if child.keys().is_some() {
            deeper.push((format!("{path}.{key}"), child));
            continue;
        }
        let default = schema
            .get("default")
            .and_then(|defaults| defaults.get(&key))
            .or_else(|| child.get("default"));
        let _ = writeln!(
            out,
            "| `{key}` | {} | {} | {} |",
            takes(&child),
            default.map_or_else(|| "—".to_owned(), shown),
            meaning(&child)
        );
    }
    for (name, child) in deeper {
        section(out, &name, &child);
    }
}

/// What a key takes: its range or its choices, in words.
fn takes(schema: &KeySchema) -> String {
    let bound = |entry: &str, words: &str| {
        schema
            .get(entry)
            .map(|limit| format!("{words} {}", shown_number(limit)))
            .unwrap_or_default()
    };
    let base = if choices(schema).is_some() || schema.keys().is_some() {
        in_words(schema)
    } else {
        in_words(schema)
            .split(" such as ")
            .next()
            .unwrap_or_default()
            .to_owned()
    };
    format!(
        "{base}{}{}{}",
        bound("minimum", " ≥"),
        bound("exclusiveMinimum", " >"),
        bound("maximum", " ≤")
    )
}

fn shown_number(limit: &Json) -> String {
    limit
        .as_f64()
        .map_or_else(|| limit.to_string(), |number| number.to_string())
}

fn shown(default: &Json) -> String {
    match default {
        Json::Null => "—".to_owned(),
        Json::Object(entries) if entries.is_empty() => "`{}`".to_owned(),
        // Widened from f32: its shortest spelling is the one that was meant.
        Json::Number(number) if number.is_f64() => {
            let wide = number.as_f64().unwrap_or_default();
            let narrow = wide as f32;
            let exact = f64::from(narrow).to_bits() == wide.to_bits();
            if exact {
                format!("`{narrow}`")
            } else {
                format!("`{wide}`")
            }
        }
        other => format!("`{other}`"),
    }
}

/// The description on one line.
fn meaning(schema: &KeySchema) -> String {
    schema
        .text("description")
        .unwrap_or_default()
        .replace('\n', " ")
        .replace('|', "\\|")
}

fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    letters.next().map_or_else(String::new, |first| {
        format!("{}{}.", first.to_uppercase(), letters.as_str())
    })
}
