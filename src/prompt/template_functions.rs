//! What transformers puts into a chat template's environment beside Jinja itself.

use std::fmt::Write as _;

use minijinja::value::Kwargs;
use minijinja::{Environment, Error, ErrorKind, Value};
use serde_json::Value as Json;

pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter("tojson", tojson);
    environment.add_function("raise_exception", |message: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, message))
    });
    environment.add_function("strftime_now", |format: String| -> Result<String, Error> {
        jiff::fmt::strtime::format(&format, &jiff::Zoned::now())
            .map_err(|error| Error::new(ErrorKind::InvalidOperation, error.to_string()))
    });
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=…, separators=…, sort_keys=…)`.
#[expect(
    clippy::needless_pass_by_value,
    reason = "filters take their keyword arguments by value"
)]
fn tojson(value: &Value, options: Kwargs) -> Result<String, Error> {
    let json: Json =
        serde_json::to_value(value).map_err(|error| Error::new(ErrorKind::BadSerialization, error.to_string()))?;
    let indent: Option<usize> = options.get("indent")?;
    let separators: Option<(String, String)> = match options.get::<Option<Vec<String>>>("separators")? {
        None => None,
        Some(pair) => match <[String; 2]>::try_from(pair) {
            Ok([item, key]) => Some((item, key)),
            Err(_) => {
                return Err(Error::new(
                    ErrorKind::InvalidOperation,
                    "separators: expected two strings",
                ));
            }
        },
    };
    let (item, key) =
        separators.unwrap_or_else(|| (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()));
    let style = PythonStyle {
        item,
        key,
        indent,
        ascii: options.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false),
        sort: options.get::<Option<bool>>("sort_keys")?.unwrap_or(false),
    };
    options.assert_all_used()?;
    let mut text = String::new();
    style.write(&json, 0, &mut text);
    Ok(text)
}

/// Python's `json.dumps(value, ensure_ascii=False)`.
pub(super) fn python_json(value: &Json) -> String {
    let style = PythonStyle {
        item: ", ".to_owned(),
        key: ": ".to_owned(),
        indent: None,
        ascii: false,
        sort: false,
    };
    let mut text = String::new();
    style.write(value, 0, &mut text);
    text
}

struct PythonStyle {
    item: String,
    key: String,
    indent: Option<usize>,
    ascii: bool,
    sort: bool,
}

impl PythonStyle {
    fn write(&self, value: &Json, depth: usize, out: &mut String) {
        match value {
            Json::Null => out.push_str("null"),
            Json::Bool(value) => out.push_str(if *value { "true" } else { "false" }),
            Json::Number(number) => match number.as_f64() {
                Some(float) if number.is_f64() => out.push_str(&python_float(float)),
                _ => {
                    let _ = write!(out, "{number}");
                }
            },
            Json::String(text) => self.write_string(text, out),
            Json::Array(items) => self.write_list(('[', ']'), items.len(), depth, out, |at, out| {
                self.write(&items[at], depth + 1, out);
            }),
            Json::Object(map) => {
                let mut entries: Vec<(&String, &Json)> = map.iter().collect();
                if self.sort {
                    entries.sort_by_key(|(key, _)| *key);
                }
                self.write_list(('{', '}'), entries.len(), depth, out, |at, out| {
                    self.write_string(entries[at].0, out);
                    out.push_str(&self.key);
                    self.write(entries[at].1, depth + 1, out);
                });
            }
        }
    }

    fn write_list(
        &self,
        (open, close): (char, char),
        length: usize,
        depth: usize,
        out: &mut String,
        mut element: impl FnMut(usize, &mut String),
    ) {
        out.push(open);
        for at in 0..length {
            if at > 0 {
                out.push_str(&self.item);
            }
            self.new_line(depth + 1, out);
            element(at, out);
        }
        if length > 0 {
            self.new_line(depth, out);
        }
        out.push(close);
    }

    fn new_line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = self.indent {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent * depth));
        }
    }

    fn write_string(&self, text: &str, out: &mut String) {
        out.push('"');
        for char in text.chars() {
            match char {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                char if u32::from(char) < 0x20 || (self.ascii && !(' '..='~').contains(&char)) => {
                    for unit in char.encode_utf16(&mut [0; 2]) {
                        let _ = write!(out, "\\u{unit:04x}");
                    }
                }
                char => out.push(char),
            }
        }
        out.push('"');
    }
}

/// Python's `repr` of a float: shortest digits, exponent below 1e-4 and from 1e16 on.
pub(super) fn python_float(value: f64) -> String {
    let scientific = format!("{value:e}");
    let exponent: i32 = scientific
        .split_once('e')
        .and_then(|(_, exponent)| exponent.parse().ok())
        .unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let mantissa = scientific.split('e').next().unwrap_or_default();
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = format!("{value}");
    if plain.contains('.') { plain } else { plain + ".0" }
}

#[cfg(test)]
mod tests {
    use minijinja::{Environment, context};

    fn render(source: &str, value: serde_json::Value) -> Result<String, String> {
        let mut environment = Environment::new();
        super::add_to(&mut environment);
        let value = minijinja::Value::from(minijinja::value::Serde(value));
        environment
            .render_str(source, context! { value })
            .map_err(|error| error.to_string())
    }

    /// The expected texts are what Python's json.dumps writes.
    #[test]
    fn tojson_writes_what_python_writes() {
        let value = serde_json::json!({"b": [1, 2.0, 1e20, 0.00001], "a": "<é'&\u{1}\n\">", "n": null, "t": true, "e": {}, "l": []});
        assert_eq!(
            render("{{ value | tojson }}", value.clone()).unwrap(),
            r#"{"b": [1, 2.0, 1e+20, 1e-05], "a": "<é'&\u0001\n\">", "n": null, "t": true, "e": {}, "l": []}"#
        );
        assert_eq!(
            render("{{ value | tojson(indent=2) }}", serde_json::json!({"a": [1], "e": {}})).unwrap(),
            "{\n  \"a\": [\n    1\n  ],\n  \"e\": {}\n}"
        );
        assert_eq!(
            render(
                "{{ value | tojson(separators=(',', ':'), sort_keys=true, ensure_ascii=true) }}",
                value
            )
            .unwrap(),
            r#"{"a":"<\u00e9'&\u0001\n\">","b":[1,2.0,1e+20,1e-05],"e":{},"l":[],"n":null,"t":true}"#
        );
    }

    #[test]
    fn a_template_can_refuse_and_ask_for_the_date() {
        let refused = render("{{ raise_exception('roles must alternate') }}", ().into()).unwrap_err();
        assert!(refused.contains("roles must alternate"), "{refused}");
        assert!(render("{{ strftime_now('%Y') }}", ().into()).unwrap().starts_with("20"));
    }
}
