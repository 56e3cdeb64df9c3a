//! JSON as policies write it: raw line breaks inside strings, objects wrapped in a string.

use std::borrow::Cow;
use std::fmt::Write as _;

use serde_json::Value;

/// Escapes control characters that stand raw inside strings; everything else stays as it is.
pub(super) fn escape_control_characters(json: &str) -> Cow<'_, str> {
    if !json.bytes().any(|byte| byte < 0x20) {
        return Cow::Borrowed(json);
    }
    let mut text = String::with_capacity(json.len() + 16);
    let (mut in_string, mut escaped) = (false, false);
    for char in json.chars() {
        match char {
            '"' if !escaped => in_string = !in_string,
            '\n' if in_string && !escaped => {
                text.push_str("\\n");
                continue;
            }
            '\r' if in_string && !escaped => {
                text.push_str("\\r");
                continue;
            }
            '\t' if in_string && !escaped => {
                text.push_str("\\t");
                continue;
            }
            char if in_string && !escaped && u32::from(char) < 0x20 => {
                let _ = write!(text, "\\u{:04x}", u32::from(char));
                continue;
            }
            _ => {}
        }
        escaped = in_string && char == '\\' && !escaped;
        text.push(char);
    }
    Cow::Owned(text)
}

/// The text of a JSON object; also where it is wrapped in a string, and `{}` for null.
pub(super) fn object_text(json: &str) -> Option<String> {
    match json.as_bytes().first()? {
        b'{' => Some(json.to_owned()),
        b'n' => Some("{}".to_owned()),
        b'"' => {
            let inner: String = serde_json::from_str(json).ok()?;
            matches!(serde_json::from_str(&inner), Ok(Value::Object(_))).then_some(inner)
        }
        _ => None,
    }
}
