//! `[name(key="value"), …]`: calls written as Python.

use serde_json::{Map, Value};

use super::ParsedCall;
use super::python_literal::Reader;

/// Whether an answer that starts like this is a list of calls: a bracket, a name, a parenthesis.
pub(super) fn begins_call(text: &str) -> Option<bool> {
    let Some(inner) = text.strip_prefix('[') else {
        return Some(false);
    };
    let inner = inner.trim_start();
    let name = inner.find(|char: char| !is_name(char)).unwrap_or(inner.len());
    match inner[name..].chars().next() {
        None => None,
        Some('(') => Some(name > 0),
        Some(_) => Some(false),
    }
}

/// The calls of a list.
pub(super) fn calls(body: &str) -> Result<Vec<ParsedCall>, String> {
    let mut reader = Reader::new(body);
    reader.expect('[')?;
    let mut calls = Vec::new();
    loop {
        if reader.take(']') {
            break;
        }
        let name = reader.name(is_name)?.to_owned();
        reader.expect('(')?;
        let mut arguments = Map::new();
        while !reader.take(')') {
            let key = reader.name(is_name)?.to_owned();
            reader.expect('=')?;
            let value = reader.value()?;
            arguments.insert(key, value);
            if !reader.take(',') {
                reader.expect(')')?;
                break;
            }
        }
        calls.push(ParsedCall {
            name,
            arguments: Value::Object(arguments).to_string(),
            id: None,
        });
        if !reader.take(',') {
            reader.expect(']')?;
            break;
        }
    }
    reader.end()?;
    if calls.is_empty() {
        return Err("the list of calls is empty".to_owned());
    }
    Ok(calls)
}

fn is_name(char: char) -> bool {
    char.is_alphanumeric() || matches!(char, '_' | '.' | '-')
}
