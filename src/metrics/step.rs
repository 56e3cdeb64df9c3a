//! The metrics of one step, as a line of metrics.jsonl and of train.log.

use std::fmt::Write as _;

use jiff::Timestamp;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde_json::{Map, Value};

use super::{METRICS, describe};

/// Version of a line of metrics.jsonl.
const LINE_VERSION: u64 = 1;
/// Keys of a line that are no metrics.
const OWN_KEYS: [&str; 3] = ["v", "step", "time"];

/// The metrics of one step, in the order in which they were set.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct StepMetrics {
    /// The step.
    pub step: u64,
    /// When it ended.
    pub time: Timestamp,
    values: Vec<(String, f64)>,
}

/// A line that is no line of metrics.jsonl.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
#[error("not a line of metrics: {0}")]
pub struct MetricsLineError(String);

impl StepMetrics {
    /// No metrics yet.
    pub fn new(step: u64, time: Timestamp) -> Self {
        Self {
            step,
            time,
            values: Vec::new(),
        }
    }

    /// Sets a metric; one that is set already keeps its place and takes the new value.
    pub fn set(&mut self, name: impl Into<String>, value: f64) {
        let name = name.into();
        debug_assert!(!OWN_KEYS.contains(&name.as_str()));
        match self.values.iter_mut().find(|(known, _)| *known == name) {
            Some(entry) => entry.1 = value,
            None => self.values.push((name, value)),
        }
    }

    /// `<name>/mean`, `/max` and `/min` of samples; nothing of none.
    pub fn set_spread(&mut self, name: &str, values: &[f64]) {
        if values.is_empty() {
            return;
        }
        self.set(format!("{name}/mean"), super::mean(values));
        self.set(
            format!("{name}/max"),
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        );
        self.set(
            format!("{name}/min"),
            values.iter().copied().fold(f64::INFINITY, f64::min),
        );
    }

    /// A metric's value, if it is set.
    pub fn get(&self, name: &str) -> Option<f64> {
        self.values
            .iter()
            .find(|(known, _)| known == name)
            .map(|(_, value)| *value)
    }

    /// Names and values.
    pub fn iter(&self) -> impl Iterator<Item = (&str, f64)> {
        self.values.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// Adds the metrics of `other`.
    pub fn extend(&mut self, other: &Self) {
        for (name, value) in other.iter() {
            self.set(name, value);
        }
    }

    /// Names that the table of metrics does not explain.
    pub fn unexplained(&self) -> Vec<&str> {
        self.iter()
            .map(|(name, _)| name)
            .filter(|name| describe(name).is_none())
            .collect()
    }

    /// One JSON object without a line break: `v`, `step`, `time`, then every metric. What is not finite is `null`.
    pub fn to_json_line(&self) -> String {
        let mut object = Map::new();
        object.insert("v".to_owned(), LINE_VERSION.into());
        object.insert("step".to_owned(), self.step.into());
        object.insert("time".to_owned(), self.time.to_string().into());
        for (name, value) in self.iter() {
            object.insert(name.to_owned(), Value::from(value));
        }
        Value::Object(object).to_string()
    }

    /// Reads a line back; `null` becomes NaN.
    pub fn from_json_line(line: &str) -> Result<Self, MetricsLineError> {
        let wrong = |reason: String| MetricsLineError(reason);
        let object: Map<String, Value> = serde_json::from_str(line).map_err(|error| wrong(error.to_string()))?;
        match object.get("v").and_then(Value::as_u64) {
            Some(LINE_VERSION) => {}
            found => return Err(wrong(format!("`v` is {found:?}, this release reads {LINE_VERSION}"))),
        }
        let step = object
            .get("step")
            .and_then(Value::as_u64)
            .ok_or_else(|| wrong("`step` is no whole number".to_owned()))?;
        let time = object
            .get("time")
            .and_then(Value::as_str)
            .and_then(|time| time.parse().ok());
        let mut metrics = Self::new(
            step,
            time.ok_or_else(|| wrong("`time` is no RFC 3339 time".to_owned()))?,
        );
        for (name, value) in object.iter().filter(|(name, _)| !OWN_KEYS.contains(&name.as_str())) {
            let value = if value.is_null() {
                Some(f64::NAN)
            } else {
                value.as_f64()
            };
            metrics.set(name, value.ok_or_else(|| wrong(format!("`{name}` is no number")))?);
        }
        Ok(metrics)
    }

    /// `step:12 - critic/score/mean:0.41 - …`, the line that dashboards of this field parse.
    pub fn to_log_line(&self) -> String {
        let mut line = format!("step:{}", self.step);
        for (name, value) in self.iter() {
            let _ = write!(line, " - {name}:{}", six_digits(value));
        }
        line
    }
}

/// A number with six significant digits, as Python's `float` reads it.
fn six_digits(value: f64) -> String {
    if value.is_nan() {
        return "nan".to_owned();
    }
    let rounded: f64 = format!("{value:.5e}").parse().unwrap_or(value);
    if rounded != 0.0 && rounded.is_finite() && !(1e-5..1e15).contains(&rounded.abs()) {
        format!("{rounded:e}")
    } else {
        rounded.to_string()
    }
}

impl JsonSchema for StepMetrics {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "StepMetrics".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let mut properties = Map::new();
        properties.insert("v".to_owned(), serde_json::json!({ "const": LINE_VERSION }));
        properties.insert(
            "step".to_owned(),
            serde_json::json!({ "type": "integer", "minimum": 0 }),
        );
        properties.insert(
            "time".to_owned(),
            serde_json::json!({ "type": "string", "format": "date-time" }),
        );
        for metric in METRICS.iter().filter(|metric| !metric.name.contains('<')) {
            let unit = if metric.unit.is_empty() {
                String::new()
            } else {
                format!(" [{}]", metric.unit)
            };
            let help = format!("{}{unit}", metric.help);
            properties.insert(
                metric.name.to_owned(),
                serde_json::json!({ "type": ["number", "null"], "description": help }),
            );
        }
        json_schema!({
            "description": "One line of metrics.jsonl: the metrics of one step",
            "type": "object",
            "properties": properties,
            "required": ["v", "step", "time"],
            "additionalProperties": { "type": ["number", "null"] }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> StepMetrics {
        let mut metrics = StepMetrics::new(12, Timestamp::UNIX_EPOCH);
        metrics.set("critic/score/mean", 0.41);
        metrics.set("actor/lr", 1e-6);
        metrics.set("actor/grad_norm", f64::NAN);
        metrics.set("perf/total_num_tokens", 12_345_678.0);
        metrics.set("critic/score/mean", 1.0 / 3.0);
        metrics
    }

    #[test]
    fn lines_of_both_kinds() {
        assert_eq!(
            sample().to_json_line(),
            r#"{"v":1,"step":12,"time":"1970-01-01T00:00:00Z","critic/score/mean":0.3333333333333333,"actor/lr":1e-6,"actor/grad_norm":null,"perf/total_num_tokens":12345678.0}"#
        );
        assert_eq!(
            sample().to_log_line(),
            "step:12 - critic/score/mean:0.333333 - actor/lr:1e-6 - actor/grad_norm:nan - perf/total_num_tokens:12345700"
        );
    }

    #[test]
    fn a_line_reads_back_and_fits_its_schema() {
        let line = sample().to_json_line();
        let back = StepMetrics::from_json_line(&line).unwrap();
        assert_eq!(back.to_json_line(), line);
        assert_eq!(back.get("actor/lr"), Some(1e-6));
        let schema = schemars::schema_for!(StepMetrics).to_value();
        let value: Value = serde_json::from_str(&line).unwrap();
        assert!(jsonschema::is_valid(&schema, &value));
        assert!(
            StepMetrics::from_json_line(r#"{"v":2,"step":1}"#)
                .unwrap_err()
                .to_string()
                .contains("this release reads 1")
        );
        assert!(StepMetrics::from_json_line("{").is_err());
    }

    #[test]
    fn spreads_and_names_without_an_entry() {
        let mut metrics = StepMetrics::new(0, Timestamp::UNIX_EPOCH);
        metrics.set_spread("num_turns", &[1.0, 3.0]);
        metrics.set("made/up", 1.0);
        assert_eq!(metrics.get("num_turns/mean"), Some(2.0));
        assert_eq!(metrics.get("num_turns/min"), Some(1.0));
        assert_eq!(metrics.unexplained(), ["made/up"]);
    }
}
