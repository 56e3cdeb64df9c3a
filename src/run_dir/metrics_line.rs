//! One line of metrics, without building a map of it: of metrics.jsonl, or `step:N - key:value - …` of any log.

use std::borrow::Cow;
use std::fmt;

use jiff::Timestamp;
use serde::de::{Deserializer as _, IgnoredAny, MapAccess, Visitor};

/// A line of metrics.jsonl.
#[derive(Debug, Default)]
pub(super) struct JsonLine<'a> {
    pub(super) step: u64,
    pub(super) time: Option<Cow<'a, str>>,
    pub(super) values: Vec<(Cow<'a, str>, f64)>,
    seen: bool,
}

impl JsonLine<'_> {
    /// Seconds since 1970; NaN where the line does not say.
    pub(super) fn seconds(&self) -> f64 {
        let time = self.time.as_ref().and_then(|time| time.parse::<Timestamp>().ok());
        time.map_or(f64::NAN, |time| time.as_millisecond() as f64 / 1000.0)
    }
}

struct Name<'a>(Cow<'a, str>);

impl<'de: 'a, 'a> serde::Deserialize<'de> for Name<'a> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl<'de> Visitor<'de> for Text {
            type Value = Cow<'de, str>;
            fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
                out.write_str("a text")
            }
            fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
                Ok(Cow::Borrowed(text))
            }
            fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
                Ok(Cow::Owned(text.to_owned()))
            }
        }
        deserializer.deserialize_str(Text).map(Self)
    }
}

struct Object;

impl<'de> Visitor<'de> for Object {
    type Value = JsonLine<'de>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("an object of metrics")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut line = JsonLine::default();
        while let Some(Name(name)) = map.next_key()? {
            match &*name {
                "v" => drop(map.next_value::<IgnoredAny>()?),
                "step" => {
                    line.step = map.next_value()?;
                    line.seen = true;
                }
                "time" => line.time = Some(map.next_value::<Name<'de>>()?.0),
                _ => {
                    let value: Option<f64> = map.next_value()?;
                    line.values.push((name, value.unwrap_or(f64::NAN)));
                }
            }
        }
        Ok(line)
    }
}

/// # Errors
/// What is wrong with it.
pub(super) fn json_line(line: &str) -> Result<JsonLine<'_>, String> {
    let mut reader = serde_json::Deserializer::from_str(line);
    let line = reader.deserialize_map(Object).map_err(|error| error.to_string())?;
    if !line.seen {
        return Err("no `step`".to_owned());
    }
    Ok(line)
}

/// A line `step:N - key:value - …`, whatever stands before it.
pub(super) struct LogLine<'a> {
    pub(super) step: u64,
    rest: &'a str,
}

impl<'a> LogLine<'a> {
    pub(super) fn of(line: &'a str) -> Option<Self> {
        let (before, after) = line.split_once("step:")?;
        if before.ends_with(|last: char| last.is_alphanumeric() || matches!(last, '_' | '/')) && !before.ends_with('m')
        {
            return None;
        }
        let (step, rest) = after.split_once(" - ")?;
        Some(Self {
            step: step.trim().parse().ok()?,
            rest,
        })
    }

    /// Hands over what is a number.
    pub(super) fn each(&self, mut take: impl FnMut(&str, f64)) {
        for pair in self.rest.split(" - ") {
            if let Some((name, value)) = pair.rsplit_once(':')
                && let Some(value) = number(value)
                && !name.trim().is_empty()
            {
                take(name.trim(), value);
            }
        }
    }
}

/// A number, also as Python prints those of numpy, and with the end of a colour behind it.
fn number(text: &str) -> Option<f64> {
    let text = text.trim();
    let text = text.split('\u{1b}').next().unwrap_or(text);
    let inner = text
        .strip_prefix("np.")
        .and_then(|text| text.split_once('('))
        .and_then(|(_, text)| text.strip_suffix(')'));
    inner.unwrap_or(text).trim().parse().ok()
}
