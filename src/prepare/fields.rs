//! Fields of a record of others: taken by name, with the type that they have in some data set or other.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use super::record::{Fault, fault};

/// A record's fields, and which of them were read.
pub(super) struct Fields {
    object: Map<String, Value>,
    read: BTreeSet<String>,
}

impl Fields {
    pub(super) fn of(object: Map<String, Value>) -> Self {
        Self {
            object,
            read: BTreeSet::new(),
        }
    }

    /// The first of these fields that is there and not null.
    fn get(&mut self, names: &[&str]) -> Option<(String, Value)> {
        self.read.extend(names.iter().map(|name| (*name).to_owned()));
        let name = names
            .iter()
            .find(|name| self.object.get(**name).is_some_and(|value| !value.is_null()))?;
        Some(((*name).to_owned(), self.object[*name].clone()))
    }

    /// Fields that say nothing here, and that nobody misses.
    pub(super) fn skip(&mut self, names: &[&str]) {
        self.read.extend(names.iter().map(|name| (*name).to_owned()));
    }

    /// A text; numbers are taken as written.
    pub(super) fn text(&mut self, names: &[&str]) -> Result<Option<String>, Fault> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text)),
            Some((_, Value::Number(number))) => Ok(Some(number.to_string())),
            Some((name, other)) => Err(wrong_type(&name, "a text", &other)),
        }
    }

    /// A text that has to be there.
    pub(super) fn needed(&mut self, names: &[&str]) -> Result<String, Fault> {
        let text = self.text(names)?.filter(|text| !text.trim().is_empty());
        text.ok_or_else(|| {
            let empty = names.iter().any(|name| self.object.contains_key(*name));
            let what = if empty { "is empty" } else { "is missing" };
            fault("missing_field", format!("field `{}` {what}", names.join("` or `")))
        })
    }

    /// A list of texts, also as JSON in a text; one text alone where `single` is set.
    pub(super) fn list(&mut self, names: &[&str], single: bool) -> Result<Option<Vec<String>>, Fault> {
        let Some((name, value)) = self.get(names) else {
            return Ok(None);
        };
        let value = match value {
            Value::String(text) if text.trim().is_empty() => return Ok(None),
            Value::String(text) if single && !text.trim_start().starts_with('[') => return Ok(Some(vec![text])),
            Value::String(text) => serde_json::from_str(&text)
                .or_else(|error| python_list(&text).ok_or(error))
                .map_err(|error| {
                    fault(
                        "bad_list",
                        format!("field `{name}` is a text and no JSON list ({error})"),
                    )
                })?,
            // Names with how they ended before and after: Multi-SWE-bench.
            Value::Object(tests) => return Ok(Some(tests.keys().cloned().collect())),
            value => value,
        };
        serde_json::from_value::<Vec<String>>(value.clone())
            .map(Some)
            .map_err(|_| wrong_type(&name, "a list of texts", &value))
    }

    /// A table, also as JSON in a text.
    pub(super) fn table(&mut self, names: &[&str]) -> Result<Option<Map<String, Value>>, Fault> {
        let Some((name, value)) = self.get(names) else {
            return Ok(None);
        };
        let value = match value {
            Value::String(text) => serde_json::from_str(&text)
                .map_err(|error| fault("wrong_type", format!("field `{name}` is a text and no JSON ({error})")))?,
            value => value,
        };
        match value {
            Value::Object(table) => Ok(Some(table)),
            Value::Null => Ok(None),
            other => Err(wrong_type(&name, "a table", &other)),
        }
    }

    /// A list of tables.
    pub(super) fn objects(&mut self, name: &str) -> Result<Vec<Map<String, Value>>, Fault> {
        let Some((name, value)) = self.get(&[name]) else {
            return Ok(Vec::new());
        };
        serde_json::from_value(value.clone()).map_err(|_| wrong_type(&name, "a list of tables", &value))
    }

    /// Fields that nobody asked for.
    pub(super) fn ignored(self) -> Vec<String> {
        let read = self.read;
        self.object
            .into_iter()
            .map(|(name, _)| name)
            .filter(|name| !read.contains(name))
            .collect()
    }
}

fn wrong_type(name: &str, expected: &str, found: &Value) -> Fault {
    let kind = match found {
        Value::Null => "null",
        Value::Bool(_) => "a truth value",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    };
    fault(
        "wrong_type",
        format!("field `{name}`: expected {expected}, found {kind}"),
    )
}

/// A list as Python prints it: `['a', "b"]`.
fn python_list(text: &str) -> Option<Value> {
    let inner = text.trim().strip_prefix('[')?.strip_suffix(']')?;
    let mut items = Vec::new();
    let mut chars = inner.chars().peekable();
    loop {
        while chars.next_if(|c| c.is_whitespace() || *c == ',').is_some() {}
        let Some(quote) = chars.next() else { break };
        if !matches!(quote, '\'' | '"') {
            return None;
        }
        let mut item = String::new();
        loop {
            match chars.next()? {
                '\\' => match chars.next()? {
                    'n' => item.push('\n'),
                    't' => item.push('\t'),
                    other => item.push(other),
                },
                c if c == quote => break,
                c => item.push(c),
            }
        }
        items.push(Value::String(item));
    }
    Some(Value::Array(items))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(text: &str) -> Fields {
        match serde_json::from_str(text).unwrap() {
            Value::Object(object) => Fields::of(object),
            _ => unreachable!("an object was written"),
        }
    }

    #[test]
    fn lists_come_in_many_shapes() {
        let list = |text: &str| fields(text).list(&["a"], false).map_err(|fault| fault.reason);
        let two = Ok(Some(vec!["x".to_owned(), "y's".to_owned()]));
        assert_eq!(list(r#"{"a": ["x", "y's"]}"#), two);
        assert_eq!(list(r#"{"a": "[\"x\", \"y's\"]"}"#), two);
        assert_eq!(list(r#"{"a": "['x', \"y's\"]"}"#), two);
        assert_eq!(list(r#"{"a": {"x": {}, "y's": {}}}"#), two);
        assert_eq!(list(r#"{"a": null}"#), Ok(None));
        assert_eq!(list(r#"{"a": "x, y"}"#), Err("bad_list"));
        assert_eq!(list(r#"{"a": [1]}"#), Err("wrong_type"));
        assert_eq!(list(r#"{"a": 1}"#), Err("wrong_type"));
        assert_eq!(
            fields(r#"{"a": "x y"}"#).list(&["a"], true).unwrap(),
            Some(vec!["x y".to_owned()])
        );
    }

    #[test]
    fn what_nobody_asked_for_is_told() {
        let mut some = fields(r#"{"a": "x", "b": 2, "c": ""}"#);
        assert_eq!(some.text(&["z", "b"]).unwrap().as_deref(), Some("2"));
        assert_eq!(some.needed(&["c"]).unwrap_err().detail, "field `c` is empty");
        assert_eq!(some.ignored(), ["a"]);
    }
}
