//! Values of task.toml that may be written in more than one way.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::{self, Deserialize, Deserializer, MapAccess, Visitor};

/// A time in seconds, whole or not: finite and not negative.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Seconds(pub f64);

impl Seconds {
    /// As a duration; times beyond a century count as one.
    pub fn duration(self) -> Duration {
        Duration::from_secs_f64(self.0.clamp(0.0, 3.2e9))
    }
}

/// A size in MiB, where old files write `"8G"`, `"512M"` or `"4096K"`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MegaBytes(pub u64);

/// A user by name or by number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UserName {
    /// Looked up in the environment.
    Name(String),
    /// Taken as it is.
    Id(u32),
}

impl std::fmt::Display for UserName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Name(name) => f.write_str(name),
            Self::Id(id) => write!(f, "{id}"),
        }
    }
}

/// The reward that a step must reach: of the scalar, or of each named reward.
#[derive(Debug, Clone, PartialEq)]
pub enum MinReward {
    /// Of the scalar reward.
    Scalar(f64),
    /// Of the rewards named.
    Named(BTreeMap<String, f64>),
}

/// A file of the environment to keep after the trial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Artifact {
    /// Path in the environment.
    pub source: String,
    /// Path below the trial's artifacts folder; absent: the source's own path there.
    pub destination: Option<String>,
    /// Patterns of what a folder is taken without.
    pub exclude: Vec<String>,
    /// The container of a compose file that it is in; absent: the agent's.
    pub service: Option<String>,
}

struct Any<T>(std::marker::PhantomData<T>);

/// Builds a value out of whichever TOML type stands in the file.
trait FromAny: Sized {
    const EXPECTED: &'static str;
    fn integer(_: i64) -> Option<Self> {
        None
    }
    fn float(_: f64) -> Option<Self> {
        None
    }
    fn text(_: &str) -> Option<Self> {
        None
    }
    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        drop(map);
        Err(de::Error::invalid_type(de::Unexpected::Map, &Self::EXPECTED))
    }
}

impl<'de, T: FromAny> Visitor<'de> for Any<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTED)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<T, E> {
        T::integer(value).ok_or_else(|| E::invalid_value(de::Unexpected::Signed(value), &self))
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<T, E> {
        i64::try_from(value)
            .ok()
            .and_then(T::integer)
            .ok_or_else(|| E::invalid_value(de::Unexpected::Unsigned(value), &self))
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<T, E> {
        T::float(value).ok_or_else(|| E::invalid_value(de::Unexpected::Float(value), &self))
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<T, E> {
        T::text(value).ok_or_else(|| E::invalid_value(de::Unexpected::Str(value), &self))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<T, A::Error> {
        T::table(map)
    }
}

impl FromAny for Seconds {
    const EXPECTED: &'static str = "a number of seconds, 0 or more";
    fn integer(value: i64) -> Option<Self> {
        Self::float(value as f64)
    }
    fn float(value: f64) -> Option<Self> {
        (value.is_finite() && value >= 0.0).then_some(Self(value))
    }
}

impl FromAny for MegaBytes {
    const EXPECTED: &'static str = "a size such as \"8G\", \"512M\" or \"4096K\"";
    fn text(value: &str) -> Option<Self> {
        let value = value.trim();
        let (number, unit) = value.split_at(value.len().checked_sub(1).filter(|&at| value.is_char_boundary(at))?);
        let number: f64 = number
            .trim()
            .parse()
            .ok()
            .filter(|number: &f64| number.is_finite() && *number >= 0.0)?;
        match unit {
            "G" | "g" => Some(Self((number * 1024.0) as u64)),
            "M" | "m" => Some(Self(number as u64)),
            "K" | "k" => Some(Self((number / 1024.0) as u64)),
            _ => None,
        }
    }
}

impl FromAny for UserName {
    const EXPECTED: &'static str = "a user name or a user id";
    fn integer(value: i64) -> Option<Self> {
        u32::try_from(value).ok().map(Self::Id)
    }
    fn text(value: &str) -> Option<Self> {
        (!value.is_empty()).then(|| Self::Name(value.to_owned()))
    }
}

impl FromAny for MinReward {
    const EXPECTED: &'static str = "a reward, or a table of named rewards";
    fn integer(value: i64) -> Option<Self> {
        Some(Self::Scalar(value as f64))
    }
    fn float(value: f64) -> Option<Self> {
        value.is_finite().then_some(Self::Scalar(value))
    }
    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        BTreeMap::deserialize(de::value::MapAccessDeserializer::new(map)).map(Self::Named)
    }
}

/// The table form of an artifact.
#[derive(serde::Deserialize)]
struct ArtifactTable {
    source: String,
    destination: Option<String>,
    #[serde(default)]
    exclude: Vec<String>,
    service: Option<String>,
}

impl FromAny for Artifact {
    const EXPECTED: &'static str = "a path, or a table with `source` and `destination`";
    fn text(value: &str) -> Option<Self> {
        (!value.is_empty()).then(|| Self {
            source: value.to_owned(),
            destination: None,
            exclude: Vec::new(),
            service: None,
        })
    }
    fn table<'de, A: MapAccess<'de>>(map: A) -> Result<Self, A::Error> {
        let table = ArtifactTable::deserialize(de::value::MapAccessDeserializer::new(map))?;
        Ok(Self {
            source: table.source,
            destination: table.destination.filter(|path| !path.is_empty()),
            exclude: table.exclude,
            service: table.service,
        })
    }
}

macro_rules! from_any {
    ($type:ident, $schema:expr) => {
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_any(Any(std::marker::PhantomData))
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut SchemaGenerator) -> Schema {
                $schema
            }
        }
    };
}

from_any!(Seconds, json_schema!({ "type": "number", "minimum": 0 }));
from_any!(
    MegaBytes,
    json_schema!({ "type": "string", "pattern": "^ *[0-9.]+ *[GMKgmk] *$" })
);
from_any!(UserName, json_schema!({ "type": ["string", "integer"] }));
from_any!(
    MinReward,
    json_schema!({ "type": ["number", "object"], "additionalProperties": { "type": "number" } })
);
from_any!(
    Artifact,
    json_schema!({
        "type": ["string", "object"],
        "properties": {
            "source": { "type": "string" },
            "destination": { "type": "string" },
            "exclude": { "type": "array", "items": { "type": "string" } },
            "service": { "type": "string" }
        },
        "required": ["source"]
    })
);
