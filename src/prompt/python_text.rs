//! Values as Python prints them, which is what Jinja puts into a prompt: `True`, `None`, `{'a': 1.0}`.

use std::fmt::Write as _;

use minijinja::value::ValueKind;
use minijinja::{Environment, Error, ErrorKind, Output, State, Value, escape_formatter};
use serde_json::Value as Json;

use super::template_functions::python_float;

/// Makes `{{ value }}` and `value | string` print as Python does.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.set_formatter(|out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value| {
        if differs(value) {
            out.write_str(&text(value)?).map_err(Error::from)
        } else {
            escape_formatter(out, state, value)
        }
    });
    environment.add_filter("string", |value: Value| -> Result<Value, Error> {
        Ok(if differs(&value) {
            Value::from(text(&value)?)
        } else if value.kind() == ValueKind::String {
            value
        } else {
            Value::from(value.to_string())
        })
    });
}

/// Whether minijinja prints this kind of value in its own way.
fn differs(value: &Value) -> bool {
    matches!(
        value.kind(),
        ValueKind::Bool | ValueKind::None | ValueKind::Number | ValueKind::Seq | ValueKind::Map
    )
}

fn text(value: &Value) -> Result<String, Error> {
    let json: Json =
        serde_json::to_value(value).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let mut out = String::new();
    write_repr(&json, &mut out);
    Ok(out)
}

/// Python's `repr`.
fn write_repr(value: &Json, out: &mut String) {
    match value {
        Json::Null => out.push_str("None"),
        Json::Bool(true) => out.push_str("True"),
        Json::Bool(false) => out.push_str("False"),
        Json::Number(number) => match number.as_f64() {
            Some(float) if number.is_f64() => out.push_str(&python_float(float)),
            _ => out.push_str(&number.to_string()),
        },
        Json::String(text) => write_string(text, out),
        Json::Array(items) => {
            out.push('[');
            for (at, item) in items.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_repr(item, out);
            }
            out.push(']');
        }
        Json::Object(map) => {
            out.push('{');
            for (at, (key, item)) in map.iter().enumerate() {
                out.push_str(if at > 0 { ", " } else { "" });
                write_string(key, out);
                out.push_str(": ");
                write_repr(item, out);
            }
            out.push('}');
        }
    }
}

fn write_string(text: &str, out: &mut String) {
    let quote = if text.contains('\'') && !text.contains('"') {
        '"'
    } else {
        '\''
    };
    out.push(quote);
    for char in text.chars() {
        match char {
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\\' => out.push_str("\\\\"),
            char if char == quote => out.extend(['\\', char]),
            char if char.is_control() => {
                let _ = write!(out, "\\x{:02x}", u32::from(char));
            }
            char => out.push(char),
        }
    }
    out.push(quote);
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    /// The expected texts are what Python's `str` gives.
    #[test]
    fn values_print_as_in_python() {
        let mut environment = Environment::new();
        super::add_to(&mut environment);
        environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
        let value = serde_json::json!({"a": [true, null, 1, 2.0, 1e20], "it's": "x\n\"'"});
        let value = minijinja::Value::from(minijinja::value::Serde(value));
        let render = |source: &str| {
            environment
                .render_str(source, context! { value => value.clone() })
                .unwrap()
        };
        let dict = r#"{'a': [True, None, 1, 2.0, 1e+20], "it's": 'x\n"\''}"#;
        assert_eq!(render("{{ value }}"), dict);
        assert_eq!(render("{{ value | string }}"), dict);
        assert_eq!(
            render("{{ true }} {{ none }} {{ 'a' | string }} {{ 3 | string }} {{ missing }}"),
            "True None a 3 "
        );
    }
}
