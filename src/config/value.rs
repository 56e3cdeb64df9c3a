//! Values that people write in a form of their own: durations (`90s`, `15m`), sizes (`8GiB`), bounds (`0.5_2`).

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A duration, written as a whole number with `ms`, `s`, `m`, `h` or `d`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct HumanDuration(pub Duration);

/// A size in bytes, written with `B`, `KiB`, `MiB`, `GiB`, `TiB` or their decimal kin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct ByteSize(pub u64);

const DURATIONS: [(&str, u64); 5] = [
    ("d", 86_400_000),
    ("h", 3_600_000),
    ("m", 60_000),
    ("s", 1000),
    ("ms", 1),
];
const SIZES: [(&str, u64); 9] = [
    ("TiB", 1 << 40),
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("TB", 1_000_000_000_000),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1000),
    ("B", 1),
];

impl HumanDuration {
    /// A whole number of seconds.
    pub const fn from_secs(seconds: u64) -> Self {
        Self(Duration::from_secs(seconds))
    }
}

/// Splits a number from its unit and multiplies them.
fn scaled(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let end = text.find(|c: char| !c.is_ascii_digit())?;
    let number: u64 = text[..end].parse().ok()?;
    let unit = text[end..].trim();
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.checked_mul(*factor)
}

/// The largest unit that divides the value.
fn unscaled(value: u64, units: &[(&str, u64)], smallest: &str) -> String {
    units
        .iter()
        .find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor))
        .map_or_else(
            || format!("{value}{smallest}"),
            |(unit, factor)| format!("{}{unit}", value / factor),
        )
}

impl FromStr for HumanDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, &DURATIONS)
            .map(|millis| Self(Duration::from_millis(millis)))
            .ok_or_else(|| format!("expected a duration such as `90s`, `15m` or `2h`, found `{text}`"))
    }
}

impl FromStr for ByteSize {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        scaled(text, &SIZES)
            .map(Self)
            .ok_or_else(|| format!("expected a size such as `512MiB` or `8GiB`, found `{text}`"))
    }
}

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unscaled(self.0.as_millis() as u64, &DURATIONS, "ms"))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&unscaled(self.0, &SIZES, "B"))
    }
}

/// An upper bound (`"2"`), or a lower and an upper one (`"0.5_5"`); each above 0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct RatioBounds {
    /// The lower one, if there is one.
    pub lower: Option<f64>,
    /// The upper one.
    pub upper: f64,
}

impl FromStr for RatioBounds {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |part: &str| part.trim().parse().ok().filter(|n: &f64| n.is_finite() && *n > 0.0);
        let found = match text.split_once('_') {
            Some((lower, upper)) => number(lower).zip(number(upper)).map(|(lower, upper)| Self {
                lower: Some(lower),
                upper,
            }),
            None => number(text).map(|upper| Self { lower: None, upper }),
        };
        found
            .filter(|bounds| bounds.lower.is_none_or(|lower| lower <= bounds.upper))
            .ok_or_else(|| {
                format!("expected bounds such as `2.0`, or `0.5_2.0` with the lower one first, found `{text}`")
            })
    }
}

impl fmt::Display for RatioBounds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lower {
            Some(lower) => write!(f, "{lower}_{}", self.upper),
            None => write!(f, "{}", self.upper),
        }
    }
}

macro_rules! as_text {
    ($type:ident, $pattern:literal) => {
        impl Serialize for $type {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
            }
        }

        impl JsonSchema for $type {
            fn schema_name() -> Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": $pattern })
            }
        }
    };
}

as_text!(HumanDuration, "^[0-9]+ *(ms|s|m|h|d)$");
as_text!(ByteSize, "^[0-9]+ *(B|[KMGT]i?B)$");
as_text!(RatioBounds, "^[0-9.]+(_[0-9.]+)?$");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_read_and_print() {
        assert_eq!("90s".parse(), Ok(HumanDuration::from_secs(90)));
        assert_eq!("2h".parse::<HumanDuration>().unwrap().to_string(), "2h");
        assert_eq!(HumanDuration::from_secs(90).to_string(), "90s");
        assert!("90".parse::<HumanDuration>().unwrap_err().contains("found `90`"));
        assert!("-1s".parse::<HumanDuration>().is_err());
    }

    #[test]
    fn sizes_read_and_print() {
        assert_eq!("8GiB".parse(), Ok(ByteSize(8 << 30)));
        assert_eq!(ByteSize(8 << 30).to_string(), "8GiB");
        assert_eq!("1 MB".parse(), Ok(ByteSize(1_000_000)));
        assert!("8 gigs".parse::<ByteSize>().is_err());
        assert!("99999999999TiB".parse::<ByteSize>().is_err());
    }

    #[test]
    fn bounds_are_one_number_or_two_in_order() {
        let read = |text: &str| text.parse::<RatioBounds>();
        assert_eq!(
            read("2.0"),
            Ok(RatioBounds {
                lower: None,
                upper: 2.0
            })
        );
        let both = RatioBounds {
            lower: Some(0.5),
            upper: 5.0,
        };
        assert_eq!(read("0.5_5"), Ok(both));
        assert_eq!(both.to_string(), "0.5_5");
        for wrong in ["", "0", "-1", "2_1", "a_b", "_2", "2_", "inf", "nan", "1_2_3"] {
            assert!(read(wrong).unwrap_err().contains("0.5_2.0"), "{wrong}");
        }
    }
}
