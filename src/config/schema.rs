//! The JSON Schema of run.toml, made from the section structs, and how to look into it.
//!
//! What a key may hold is written once, in its struct; checking and the reference both read it here.

use std::sync::LazyLock;

use serde_json::Value;

use super::RunConfig;

static SCHEMA: LazyLock<Value> = LazyLock::new(|| schemars::schema_for!(RunConfig).to_value());

/// The whole schema.
pub fn run_schema() -> &'static Value {
    &SCHEMA
}

/// One key's schema: references followed, the absent case of an option taken off, and what the field
/// adds (description, range, default, format) laid over what its type says.
#[derive(Debug, Clone)]
pub(super) struct KeySchema {
    merged: serde_json::Map<String, Value>,
    /// Name of the type, where it has one of its own.
    pub(super) type_name: Option<String>,
    /// Whether the key may be left out without a default.
    pub(super) optional: bool,
}

impl KeySchema {
    /// The schema of the whole file.
    pub(super) fn root() -> Self {
        Self::of(&SCHEMA)
    }

    fn of(raw: &Value) -> Self {
        let mut out = Self {
            merged: serde_json::Map::new(),
            type_name: None,
            optional: false,
        };
        out.absorb(raw);
        out
    }

    fn absorb(&mut self, raw: &Value) {
        for (key, value) in raw.as_object().into_iter().flatten() {
            match key.as_str() {
                "$ref" | "anyOf" => {}
                _ => {
                    self.merged.entry(key.clone()).or_insert_with(|| value.clone());
                }
            }
        }
        if let Some(types) = self.merged.get("type").and_then(Value::as_array) {
            self.optional = true;
            if let Some(kept) = types.iter().find(|kind| *kind != "null").cloned() {
                self.merged.insert("type".to_owned(), kept);
            }
        }
        if let Some(name) = raw
            .get("$ref")
            .and_then(Value::as_str)
            .and_then(|path| path.rsplit('/').next())
        {
            self.type_name.get_or_insert_with(|| name.to_owned());
            self.absorb(&SCHEMA["$defs"][name]);
        }
        for branch in raw.get("anyOf").and_then(Value::as_array).into_iter().flatten() {
            if branch.get("type").is_some_and(|kind| kind == "null") {
                self.optional = true;
            } else {
                self.absorb(branch);
            }
        }
    }

    /// An entry of it.
    pub(super) fn get(&self, entry: &str) -> Option<&Value> {
        self.merged.get(entry)
    }

    /// Text of an entry.
    pub(super) fn text(&self, entry: &str) -> Option<&str> {
        self.get(entry).and_then(Value::as_str)
    }

    /// Names of a table's keys, in the order of the struct; absent for what is no such table.
    pub(super) fn keys(&self) -> Option<Vec<String>> {
        Some(self.get("properties")?.as_object()?.keys().cloned().collect())
    }

    /// Schema of a table's key, or of any value of a free table.
    pub(super) fn child(&self, key: &str) -> Option<Self> {
        let named = self.get("properties").and_then(|properties| properties.get(key));
        let free = self.get("additionalProperties").filter(|value| value.is_object());
        named.or(free).map(Self::of)
    }

    /// Schema of a list's items.
    pub(super) fn items(&self) -> Option<Self> {
        self.get("items").map(Self::of)
    }
}

/// Schema of a dotted key.
#[cfg(test)]
pub(super) fn lookup(path: &str) -> Option<KeySchema> {
    path.split('.')
        .try_fold(KeySchema::root(), |schema, key| schema.child(key))
}

/// The choices of an enumeration.
pub(super) fn choices(schema: &KeySchema) -> Option<Vec<String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(list) = schema.get("enum").and_then(Value::as_array) {
        return Some(list.iter().filter_map(text).collect());
    }
    let branches = schema.get("oneOf")?.as_array()?;
    Some(
        branches
            .iter()
            .filter_map(|branch| branch.get("const").and_then(text))
            .collect(),
    )
}
