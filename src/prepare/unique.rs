//! JSON whose objects name each key once: of two, one would be left out without a word.

use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Why a text is none.
pub(super) struct NotUnique {
    /// What is wrong, with its line and column.
    pub(super) error: serde_json::Error,
    /// Whether it is that a key is there twice.
    pub(super) twice: bool,
}

/// Reads one value.
pub(super) fn parse(text: &str) -> Result<Value, NotUnique> {
    let twice = Cell::new(false);
    let mut reader = serde_json::Deserializer::from_str(text);
    let read = Unique(&twice).deserialize(&mut reader);
    let ended = read.and_then(|value| reader.end().map(|()| value));
    ended.map_err(|error| NotUnique {
        error,
        twice: twice.get(),
    })
}

/// Reads a value, and says whether a key was there twice.
#[derive(Clone, Copy)]
struct Unique<'a>(&'a Cell<bool>);

impl<'de> DeserializeSeed<'de> for Unique<'_> {
    type Value = Value;

    fn deserialize<D: serde::Deserializer<'de>>(self, reader: D) -> Result<Value, D::Error> {
        reader.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Unique<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Number::from_f64(value).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let mut values = Vec::new();
        while let Some(value) = list.next_element_seed(self)? {
            values.push(value);
        }
        Ok(Value::Array(values))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut object: A) -> Result<Value, A::Error> {
        let mut values = Map::new();
        while let Some(key) = object.next_key::<String>()? {
            if values.contains_key(&key) {
                self.0.set(true);
                return Err(A::Error::custom(format!(
                    "the key `{}` is there twice",
                    key.escape_debug()
                )));
            }
            let value = object.next_value_seed(self)?;
            values.insert(key, value);
        }
        Ok(Value::Object(values))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_each_key_once_is_read_as_it_is() {
        let text = r#"{"a": [1, -2, 1.5, true, null, "xé\n", {"a": {}}], "b": 18446744073709551615}"#;
        let expected: Value = serde_json::from_str(text).unwrap();
        assert!(parse(text).is_ok_and(|value| value == expected));
        for wrong in ["", "{", "{} x", r#"{"a" 1}"#] {
            let ours = parse(wrong).err().map(|error| (error.error.to_string(), error.twice));
            let theirs = serde_json::from_str::<Value>(wrong).unwrap_err().to_string();
            assert_eq!(ours, Some((theirs, false)), "{wrong}");
        }
    }

    #[test]
    fn a_key_that_is_there_twice_is_named_with_its_line() {
        for (text, key, line) in [
            ("{\"a\": 1,\n \"b\": 2,\n \"a\": 3}", "a", 3),
            ("{\"files\": {\"x\": \"\",\n \"x\": \"\"}}", "x", 2),
            ("[{\"k\": 1, \"k\": 1}]", "k", 1),
        ] {
            let found = parse(text)
                .err()
                .map(|error| (error.error.line(), error.twice, error.error.to_string()));
            let (at, twice, said) = found.unwrap();
            assert_eq!((at, twice), (line, true), "{said}");
            assert!(said.starts_with(&format!("the key `{key}` is there twice")), "{said}");
        }
    }
}
