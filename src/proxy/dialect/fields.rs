//! Reads fields of a request's JSON. Unknown fields are ignored; wrong ones are named.

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

use crate::proxy::error::ApiError;
use crate::proxy::generate::hex;

/// The object that a body is.
pub(in crate::proxy) fn object(body: &[u8]) -> Result<Map<String, Value>, ApiError> {
    match serde_json::from_slice(body) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(other) => Err(ApiError::bad_request(format!(
            "expected a JSON object, found {}",
            kind(&other)
        ))),
        Err(error) => Err(ApiError::bad_request(format!("the body is not valid JSON: {error}"))),
    }
}

/// Tells one request from another, whatever the order of its keys: codex writes them in another one when it asks again.
pub(in crate::proxy) fn digest(fields: &Map<String, Value>) -> String {
    let mut hash = Sha256::new();
    feed_object(&mut hash, fields);
    hex(&hash.finalize())
}

fn feed_object(hash: &mut Sha256, fields: &Map<String, Value>) {
    let mut keys: Vec<&String> = fields.keys().collect();
    keys.sort_unstable();
    hash.update(b"{");
    for key in keys {
        feed_text(hash, key);
        feed(hash, &fields[key]);
    }
    hash.update(b"}");
}

/// With its kind and its end, so that no two values are fed alike.
fn feed(hash: &mut Sha256, value: &Value) {
    match value {
        Value::Object(fields) => feed_object(hash, fields),
        Value::Array(items) => {
            hash.update(b"[");
            for item in items {
                feed(hash, item);
            }
            hash.update(b"]");
        }
        Value::String(text) => feed_text(hash, text),
        Value::Null => hash.update(b"n"),
        Value::Bool(true) => hash.update(b"t"),
        Value::Bool(false) => hash.update(b"f"),
        Value::Number(number) => {
            hash.update(number.to_string());
            hash.update(b",");
        }
    }
}

fn feed_text(hash: &mut Sha256, text: &str) {
    hash.update(b"s");
    hash.update((text.len() as u64).to_le_bytes());
    hash.update(text);
}

/// A flag that is false where it is absent.
pub(in crate::proxy) fn flag(fields: &Map<String, Value>, key: &str) -> Result<bool, ApiError> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(expected(key, "true or false", other)),
    }
}

/// A list that may be absent.
pub(in crate::proxy) fn list(
    fields: &mut Map<String, Value>,
    key: &str,
    what: &str,
) -> Result<Option<Vec<Value>>, ApiError> {
    match fields.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Array(list)) => Ok(Some(list)),
        Some(other) => Err(expected(key, what, &other)),
    }
}

/// A list that must be there and hold something.
pub(in crate::proxy) fn messages(fields: &mut Map<String, Value>) -> Result<Vec<Value>, ApiError> {
    match list(fields, "messages", "a list of messages")? {
        Some(list) if !list.is_empty() => Ok(list),
        Some(_) => Err(ApiError::field("messages", "expected at least one message")),
        None => Err(ApiError::field("messages", "is missing")),
    }
}

/// A limit of tokens, at least 1.
pub(in crate::proxy) fn limit(fields: &Map<String, Value>, key: &str) -> Result<Option<u32>, ApiError> {
    match number(fields, key, Value::as_u64, "a whole number")? {
        Some(0) => Err(ApiError::field(key, "expected at least 1")),
        limit => Ok(limit.map(|limit| u32::try_from(limit).unwrap_or(u32::MAX))),
    }
}

/// A number that may be absent.
pub(in crate::proxy) fn float(fields: &Map<String, Value>, key: &str) -> Result<Option<f32>, ApiError> {
    Ok(number(fields, key, Value::as_f64, "a number")?.map(|value| value as f32))
}

/// A whole number that may be absent; one that is out of reach is the nearest.
pub(in crate::proxy) fn whole(fields: &Map<String, Value>, key: &str) -> Result<Option<i32>, ApiError> {
    let value = number(fields, key, Value::as_i64, "a whole number")?;
    Ok(value.map(|value| value.clamp(i32::MIN.into(), i32::MAX.into()) as i32))
}

/// `temperature`, from 0 to 2.
pub(in crate::proxy) fn temperature(fields: &Map<String, Value>) -> Result<Option<f32>, ApiError> {
    let value = float(fields, "temperature")?;
    let fits = value.is_none_or(|value| (0.0..=2.0).contains(&value));
    within(fields, "temperature", fits, "a number from 0 to 2")?;
    Ok(value)
}

/// `top_p`, above 0 and at most 1.
pub(in crate::proxy) fn top_p(fields: &Map<String, Value>) -> Result<Option<f32>, ApiError> {
    let value = float(fields, "top_p")?;
    let fits = value.is_none_or(|value| value > 0.0 && value <= 1.0);
    within(fields, "top_p", fits, "a number above 0 and at most 1")?;
    Ok(value)
}

/// `top_k`; 0 and -1 keep all candidates.
pub(in crate::proxy) fn top_k(fields: &Map<String, Value>) -> Result<Option<i32>, ApiError> {
    let value = whole(fields, "top_k")?;
    let fits = value.is_none_or(|value| value >= -1);
    within(fields, "top_k", fits, "a whole number of at least -1")?;
    Ok(value)
}

fn within(fields: &Map<String, Value>, key: &str, fits: bool, what: &str) -> Result<(), ApiError> {
    match fields.get(key) {
        Some(found) if !fits => Err(expected(key, what, found)),
        _ => Ok(()),
    }
}

/// The name of a tool or function, which templates and schemas go by.
pub(in crate::proxy) fn name(value: Option<&Value>, at: &str) -> Result<String, ApiError> {
    match value {
        Some(Value::String(name)) if !name.is_empty() => Ok(name.clone()),
        None => Err(ApiError::field(at, "is missing; expected a string")),
        Some(Value::String(_)) => Err(ApiError::field(at, "expected a name, found an empty string")),
        Some(other) => Err(expected(at, "a string", other)),
    }
}

/// The model's name as the client wrote it.
pub(in crate::proxy) fn model(fields: &Map<String, Value>, served: &str) -> String {
    fields.get("model").and_then(Value::as_str).unwrap_or(served).to_owned()
}

/// Texts that end an answer: one, or a list of them. Empty ones are left out.
pub(in crate::proxy) fn stops(fields: &Map<String, Value>, key: &str) -> Result<Vec<String>, ApiError> {
    let texts = match fields.get(key) {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => list
            .iter()
            .map(|text| match text.as_str() {
                Some(text) => Ok(text.to_owned()),
                None => Err(expected(key, "a list of strings", text)),
            })
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(expected(key, "a string or a list of strings", other)),
    };
    Ok(texts.into_iter().filter(|text| !text.is_empty()).collect())
}

fn number<T>(
    fields: &Map<String, Value>,
    key: &str,
    read: fn(&Value) -> Option<T>,
    what: &str,
) -> Result<Option<T>, ApiError> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => read(value).map(Some).ok_or_else(|| expected(key, what, value)),
    }
}

/// Moves the text out of a string; anything else is none.
pub(in crate::proxy) fn text(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) => Some(text),
        _ => None,
    }
}

/// A refusal that names the place, what was expected there and what was found.
pub(in crate::proxy) fn expected(at: &str, what: &str, found: &Value) -> ApiError {
    ApiError::field(at, &format!("expected {what}, found {}", kind(found)))
}

fn kind(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a string".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_the_same_in_whatever_order_its_keys_stand() {
        let of = |text: &str| digest(&object(text.as_bytes()).unwrap());
        let first = of(r#"{"model": "m", "input": [{"a": 1, "b": {"c": "x", "d": null}}]}"#);
        assert_eq!(first, of(r#"{"input":[{"b":{"d":null,"c":"x"},"a":1}],"model":"m"}"#));
        for other in [
            r#"{"model": "m", "input": [{"a": 1, "b": {"c": "x", "d": false}}]}"#,
            r#"{"model": "m", "input": [{"a": "1", "b": {"c": "x", "d": null}}]}"#,
            r#"{"model": "m", "input": [{"a": 1}, {"b": {"c": "x", "d": null}}]}"#,
            r#"{"model": "m", "input": [[{"a": 1, "b": {"c": "x", "d": null}}]]}"#,
        ] {
            assert_ne!(first, of(other), "{other}");
        }
        // Of a list, the order counts; texts do not run into each other.
        assert_ne!(of(r#"{"a": ["b", "c"]}"#), of(r#"{"a": ["c", "b"]}"#));
        assert_ne!(of(r#"{"a": ["bc", "d"]}"#), of(r#"{"a": ["b", "cd"]}"#));
        assert_ne!(of(r#"{"a": [1, 23]}"#), of(r#"{"a": [12, 3]}"#));
    }
}
