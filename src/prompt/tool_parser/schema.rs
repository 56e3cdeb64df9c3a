//! What the tools' schemas say about parameters that a policy writes as plain text.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::Value;

use super::lenient_json::escape_control_characters;
use super::python_literal;

/// The schema of every parameter of every tool that a request offers.
#[derive(Debug, Clone, Default)]
pub struct ToolSchemas(Arc<HashMap<String, Value>>);

impl ToolSchemas {
    /// From tool definitions: `{"function": {"name", "parameters"}}`, or the inner object alone, also with
    /// `input_schema`. What is shaped differently has no schemas.
    pub fn of(tools: &[Value]) -> Self {
        let one = |tool: &Value| {
            let function = tool.get("function").unwrap_or(tool);
            let schema = function.get("parameters").or_else(|| function.get("input_schema"))?;
            Some((function["name"].as_str()?.to_owned(), schema["properties"].clone()))
        };
        Self(Arc::new(tools.iter().filter_map(one).collect()))
    }

    /// `text` as the value that the parameter's schema asks for. What does not fit, and what has no schema,
    /// stays a string, so that the tool can say what is wrong with it.
    pub(super) fn cast(&self, tool: &str, parameter: &str, text: &str) -> Value {
        let schema = self.0.get(tool).and_then(|properties| properties.get(parameter));
        let types = schema.map(types_of).unwrap_or_default();
        let string = || Value::String(text.to_owned());
        let bare = text.trim();
        if types.contains(&"null") && matches!(bare, "null" | "None") {
            return Value::Null;
        }
        if types.is_empty() || types.contains(&"string") {
            return string();
        }
        let value = serde_json::from_str(&escape_control_characters(bare))
            .ok()
            .or_else(|| python_literal::value(bare));
        value
            .filter(|value| types.iter().any(|name| fits(value, name)))
            .unwrap_or_else(string)
    }
}

/// The types that a schema allows, those of its alternatives included.
fn types_of(schema: &Value) -> Vec<&str> {
    let mut types: Vec<&str> = match &schema["type"] {
        Value::String(name) => vec![name],
        Value::Array(names) => names.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    for key in ["anyOf", "oneOf", "allOf"] {
        types.extend(schema[key].as_array().into_iter().flatten().flat_map(types_of));
    }
    if types.is_empty()
        && let Some(values) = schema["enum"].as_array()
    {
        types.extend(values.iter().map(|value| match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        }));
    }
    types
}

fn fits(value: &Value, name: &str) -> bool {
    match name {
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|float| float.fract() == 0.0),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        "null" => value.is_null(),
        _ => false,
    }
}
