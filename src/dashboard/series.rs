//! Fewer points that look the same: of each bucket of rows the lowest and the highest value, so that spikes survive.

use serde_json::{Value, json};

use crate::metrics::{quantile, trend};
use crate::run_dir::{Column, History};

/// Points of a series at most.
pub(super) const MOST_POINTS: usize = 4000;

/// One metric, thinned.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Series {
    pub(super) x: Vec<u64>,
    pub(super) t: Vec<f64>,
    pub(super) y: Vec<f64>,
    /// Values there were in the range.
    pub(super) n: usize,
    /// Of those, how many were not finite.
    pub(super) broken: usize,
}

/// At most `most` points of a metric between two steps.
pub(super) fn thin(history: &History, column: &Column, most: usize, range: (u64, u64)) -> Series {
    let (steps, times) = (history.steps(), history.times());
    let inside: Vec<(usize, f64)> = column
        .iter()
        .filter(|(row, _)| (range.0..=range.1).contains(&steps[*row]))
        .collect();
    let mut series = Series {
        n: inside.len(),
        broken: inside.iter().filter(|(_, value)| !value.is_finite()).count(),
        ..Series::default()
    };
    let mut push = |&(row, value): &(usize, f64)| {
        series.x.push(steps[row]);
        series.t.push(times[row]);
        series.y.push(value);
    };
    let most = most.clamp(4, MOST_POINTS);
    if inside.len() <= most {
        inside.iter().for_each(&mut push);
        return series;
    }
    let size = inside.len().div_ceil(most / 2);
    for bucket in inside.chunks(size) {
        let by_value = |one: &&(usize, f64), other: &&(usize, f64)| one.1.total_cmp(&other.1);
        let finite = || bucket.iter().filter(|(_, value)| value.is_finite());
        match (finite().min_by(by_value), finite().max_by(by_value)) {
            (Some(low), Some(high)) if low.0 == high.0 => push(low),
            (Some(low), Some(high)) if low.0 < high.0 => [low, high].into_iter().for_each(&mut push),
            (Some(low), Some(high)) => [high, low].into_iter().for_each(&mut push),
            _ => bucket.iter().take(1).for_each(&mut push),
        }
    }
    series
}

/// A finite number, or null.
pub(super) fn number(value: f64) -> Value {
    serde_json::Number::from_f64(value).map_or(Value::Null, Value::Number)
}

/// Numbers as short as they are shown: six significant digits.
fn short(values: &[f64]) -> Value {
    Value::Array(values.iter().map(|value| number(rounded(*value))).collect())
}

fn rounded(value: f64) -> f64 {
    if value == 0.0 || !value.is_finite() {
        return value;
    }
    let scale = 10f64.powi(6 - value.abs().log10().ceil() as i32);
    if scale.is_finite() && scale > 0.0 {
        (value * scale).round() / scale
    } else {
        value
    }
}

impl Series {
    pub(super) fn to_json(&self) -> Value {
        let timed = self.t.iter().any(|time| !time.is_nan());
        json!({
            "x": self.x,
            "t": if timed { Value::Array(self.t.iter().map(|time| number(*time)).collect()) } else { Value::Null },
            "y": short(&self.y),
            "n": self.n,
            "broken": self.broken,
        })
    }
}

/// A metric in numbers: newest, range, and whether it moves (|t| < 2 is flat).
pub(super) fn summary(history: &History, name: &str, column: &Column) -> Value {
    let steps = history.steps();
    let finite: Vec<(f64, f64)> = column
        .iter()
        .filter(|(_, value)| value.is_finite())
        .map(|(row, value)| (steps[row] as f64, value))
        .collect();
    let values: Vec<f64> = finite.iter().map(|point| point.1).collect();
    let line = trend(&finite);
    let t = line.map_or(f64::NAN, |line| line.t);
    let moves = match t {
        t if t >= 2.0 => "up",
        t if t <= -2.0 => "down",
        _ => "flat",
    };
    let about = crate::metrics::describe(name);
    json!({
        "key": name,
        "n": column.len(),
        "last": column.last().map_or(Value::Null, number),
        "first": values.first().map_or(Value::Null, |value| number(*value)),
        "min": number(values.iter().copied().fold(f64::NAN, f64::min)),
        "max": number(values.iter().copied().fold(f64::NAN, f64::max)),
        "median": number(quantile(&values, 0.5)),
        "slope": line.map_or(Value::Null, |line| number(line.slope)),
        "t": if t.is_infinite() { json!(1e9 * t.signum()) } else { number(t) },
        "trend": moves,
        "unit": about.map_or("", |metric| metric.unit),
        "help": about.map_or("", |metric| metric.help),
        "direction": about.map(|metric| metric.direction),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(rows: u64, value: impl Fn(u64) -> f64) -> History {
        let lines: Vec<String> = (1..=rows)
            .map(|step| format!("step:{step} - a:{}\n", value(step)))
            .collect();
        History::parse("log", &lines.concat())
    }

    #[test]
    fn spikes_survive_and_few_points_are_left_as_they_are() {
        let history = history(10_000, |step| if step == 7_001 { 99.0 } else { (step % 7) as f64 });
        let column = history.column("a").unwrap();
        let series = thin(&history, column, 500, (0, u64::MAX));
        assert!(series.y.len() <= 500 && series.n == 10_000, "{}", series.y.len());
        assert!(series.x.is_sorted());
        let spike = series.y.iter().position(|value| *value > 98.0).unwrap();
        assert_eq!(series.x[spike], 7_001);
        let few = thin(&history, column, 500, (10, 12));
        assert_eq!((few.x, few.y), (vec![10, 11, 12], vec![3.0, 4.0, 5.0]));
    }

    #[test]
    fn a_summary_says_where_it_goes() {
        let rising = history(20, |step| step as f64 + if step % 2 == 0 { 0.3 } else { 0.0 });
        let summary = summary(&rising, "a", rising.column("a").unwrap());
        assert_eq!(
            (summary["trend"].as_str(), summary["n"].as_u64()),
            (Some("up"), Some(20))
        );
        assert!((rounded(0.123_456_789) - 0.123_457).abs() < 1e-12);
        assert!((rounded(1_234_567.8) - 1_234_570.0).abs() < 1e-6);
    }
}
