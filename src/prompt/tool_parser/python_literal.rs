//! Python literals as JSON values: what `ast.literal_eval` reads, and JSON's own words.

use serde_json::{Map, Number, Value};

/// Nesting beyond which a literal is refused.
const DEPTH: usize = 64;

/// The value of a whole text; `None` if it is no literal.
pub(super) fn value(text: &str) -> Option<Value> {
    let mut reader = Reader::new(text);
    let value = reader.value().ok()?;
    reader.end().ok()?;
    Some(value)
}

/// Reads from left to right; space before anything is skipped.
pub(super) struct Reader<'t> {
    text: &'t str,
    rest: &'t str,
    depth: usize,
}

impl<'t> Reader<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self {
            text,
            rest: text,
            depth: 0,
        }
    }

    /// Steps over `char` if it comes next.
    pub(super) fn take(&mut self, char: char) -> bool {
        let rest = self.rest.trim_start().strip_prefix(char);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    pub(super) fn expect(&mut self, char: char) -> Result<(), String> {
        if self.take(char) {
            Ok(())
        } else {
            Err(self.wanted(&format!("`{char}`")))
        }
    }

    pub(super) fn end(&self) -> Result<(), String> {
        if self.rest.trim().is_empty() {
            Ok(())
        } else {
            Err(self.wanted("the end"))
        }
    }

    pub(super) fn name(&mut self, is_name: fn(char) -> bool) -> Result<&'t str, String> {
        let rest = self.rest.trim_start();
        let length = rest.find(|char| !is_name(char)).unwrap_or(rest.len());
        if length == 0 {
            return Err(self.wanted("a name"));
        }
        self.rest = &rest[length..];
        Ok(&rest[..length])
    }

    /// A string, number, list, tuple, dict or constant.
    pub(super) fn value(&mut self) -> Result<Value, String> {
        self.depth += 1;
        if self.depth > DEPTH {
            return Err("it is nested too deeply".to_owned());
        }
        let value = self.inner_value();
        self.depth -= 1;
        value
    }

    fn inner_value(&mut self) -> Result<Value, String> {
        self.rest = self.rest.trim_start();
        match self.rest.chars().next() {
            Some('"' | '\'') => {
                let mut text = self.string()?;
                // Adjacent strings are one.
                while self.rest.trim_start().starts_with(['"', '\'']) {
                    self.rest = self.rest.trim_start();
                    text.push_str(&self.string()?);
                }
                Ok(Value::String(text))
            }
            Some('[') => self.items('[', ']').map(Value::Array),
            Some('(') => self.items('(', ')').map(Value::Array),
            Some('{') => self.dict().map(Value::Object),
            Some(char) if char.is_ascii_digit() || matches!(char, '-' | '+' | '.') => self.number(),
            _ => self.constant(),
        }
    }

    fn items(&mut self, open: char, close: char) -> Result<Vec<Value>, String> {
        self.expect(open)?;
        let mut items = Vec::new();
        while !self.take(close) {
            items.push(self.value()?);
            if !self.take(',') {
                self.expect(close)?;
                break;
            }
        }
        Ok(items)
    }

    fn dict(&mut self) -> Result<Map<String, Value>, String> {
        self.expect('{')?;
        let mut map = Map::new();
        while !self.take('}') {
            let key = match self.value()? {
                Value::String(key) => key,
                other => other.to_string(),
            };
            self.expect(':')?;
            let value = self.value()?;
            map.insert(key, value);
            if !self.take(',') {
                self.expect('}')?;
                break;
            }
        }
        Ok(map)
    }

    fn number(&mut self) -> Result<Value, String> {
        let is_number = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.' | '_');
        let digits = self.name(is_number)?.replace('_', "");
        let digits = digits.trim_start_matches('+');
        let integer = digits.parse::<i64>().map(Number::from).ok();
        let number = integer.or_else(|| digits.parse::<f64>().ok().and_then(Number::from_f64));
        number
            .map(Value::Number)
            .ok_or_else(|| format!("`{digits}` is no number"))
    }

    fn constant(&mut self) -> Result<Value, String> {
        match self.name(|char| char.is_alphanumeric() || char == '_')? {
            "True" | "true" => Ok(Value::Bool(true)),
            "False" | "false" => Ok(Value::Bool(false)),
            "None" | "null" => Ok(Value::Null),
            other => Err(format!("`{other}` is no value")),
        }
    }

    fn string(&mut self) -> Result<String, String> {
        let mut chars = self.rest.chars();
        let quote = chars.next().unwrap_or('"');
        let mut text = String::new();
        loop {
            match chars.next() {
                None => return Err("a string is not closed".to_owned()),
                Some(char) if char == quote => break,
                Some('\\') => escape(&mut chars, &mut text)?,
                Some(char) => text.push(char),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }

    fn wanted(&self, what: &str) -> String {
        let rest = self.rest.trim_start();
        let found: String = rest.chars().take(16).collect();
        let at = self.text.len() - rest.len();
        format!("expected {what} at byte {at}, found `{found}`")
    }
}

/// What comes behind a backslash; unknown escapes stay as they are, as in Python.
fn escape(chars: &mut std::str::Chars<'_>, text: &mut String) -> Result<(), String> {
    let char = chars.next().ok_or("a string is not closed")?;
    let digits = match char {
        'x' => 2,
        'u' => 4,
        'U' => 8,
        _ => 0,
    };
    match char {
        'n' => text.push('\n'),
        't' => text.push('\t'),
        'r' => text.push('\r'),
        'b' => text.push('\u{8}'),
        'f' => text.push('\u{c}'),
        '0' => text.push('\0'),
        '\n' => {}
        '\\' | '\'' | '"' | '/' => text.push(char),
        _ if digits > 0 => {
            let code = hex(chars, digits)?;
            let high = (0xD800..0xDC00).contains(&code);
            let full = if high && chars.as_str().starts_with("\\u") {
                chars.nth(1);
                0x10000 + ((code - 0xD800) << 10) + (hex(chars, 4)?.wrapping_sub(0xDC00) & 0x3FF)
            } else {
                code
            };
            text.push(char::from_u32(full).unwrap_or(char::REPLACEMENT_CHARACTER));
        }
        other => text.extend(['\\', other]),
    }
    Ok(())
}

fn hex(chars: &mut std::str::Chars<'_>, digits: usize) -> Result<u32, String> {
    let text = chars.as_str();
    let code = text.get(..digits).and_then(|code| u32::from_str_radix(code, 16).ok());
    let code = code.ok_or("an escape is cut short")?;
    *chars = text[digits..].chars();
    Ok(code)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::value;

    /// The expected values are what Python's `ast.literal_eval` gives.
    #[test]
    fn literals_are_read_as_python_reads_them() {
        assert_eq!(
            value(r#"{'a': [1, -2.5, 1_000, (True, None)], "b": 'it\'s "x"\n\u00e9\d', 3: {}}"#),
            Some(json!({"a": [1, -2.5, 1000, [true, null]], "b": "it's \"x\"\né\\d", "3": {}}))
        );
        assert_eq!(value("'a' \"b\""), Some(json!("ab")));
        for bad in ["", "a", "[1", "'a", "1 2", "{1}", "f(1)", "1e999", &"[".repeat(1000)] {
            assert_eq!(value(bad), None, "{bad}");
        }
    }
}
