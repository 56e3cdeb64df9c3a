//! What a signature may look at: the metrics of the newest attempt, those of the run's beginning, and what lies in
//! the run's directory. Windows and tests are defined here once, so that every signature means the same by "recent".

use crate::metrics::{Trend, quantile, trend};
use crate::run_dir::History;

use super::surroundings::Surroundings;

/// Rows that a judgement needs at least.
pub(super) const FEWEST: usize = 3;
/// Rows of a window at most.
const WINDOW: usize = 10;

/// Metrics and surroundings of one attempt.
pub(super) struct Evidence<'a> {
    pub(super) history: &'a History,
    pub(super) around: &'a Surroundings,
    /// First row that counts.
    pub(super) from: usize,
}

/// Values of a metric with their steps.
pub(super) type Points = Vec<(f64, f64)>;

impl Evidence<'_> {
    fn points_from(&self, name: &str, from: usize) -> Points {
        let steps = self.history.steps();
        self.history
            .column(name)
            .map(|column| {
                let rows = column.iter().filter(|(row, _)| *row >= from);
                rows.map(|(row, value)| (steps[row] as f64, value)).collect()
            })
            .unwrap_or_default()
    }

    /// All values of the attempt, those that are not finite included.
    pub(super) fn raw(&self, name: &str) -> Points {
        self.points_from(name, self.from)
    }

    /// Finite values of the attempt. Step 0 is the validation before training: it is no step.
    pub(super) fn points(&self, name: &str) -> Points {
        let mut points = self.raw(name);
        points.retain(|(_, value)| value.is_finite());
        points
    }

    /// The newest values of the attempt; `None` below three.
    pub(super) fn recent(&self, name: &str) -> Option<Vec<f64>> {
        let points = self.points(name);
        (points.len() >= FEWEST).then(|| {
            let window = window(points.len());
            points[points.len() - window..].iter().map(|point| point.1).collect()
        })
    }

    /// The first values of the whole run; `None` where they are not before the recent ones.
    pub(super) fn early(&self, name: &str) -> Option<Vec<f64>> {
        let mut points = self.points_from(name, 0);
        points.retain(|(_, value)| value.is_finite());
        (points.len() >= 2 * FEWEST).then(|| points[..window(points.len())].iter().map(|point| point.1).collect())
    }

    /// Medians of the newest and of the first values.
    pub(super) fn late_and_early(&self, name: &str) -> Option<(f64, f64)> {
        Some((median(&self.recent(name)?), median(&self.early(name)?)))
    }

    /// The least-squares line through the attempt's values; `None` below six.
    pub(super) fn line(&self, name: &str) -> Option<Trend> {
        let points = self.points(name);
        (points.len() >= 2 * FEWEST).then(|| trend(&points)).flatten()
    }

    /// Values of a count of which a step without any writes nothing: 0 there.
    pub(super) fn counts(&self, name: &str) -> Points {
        let steps = self.history.steps();
        let found: std::collections::HashMap<usize, f64> = self
            .history
            .column(name)
            .into_iter()
            .flat_map(crate::run_dir::Column::iter)
            .collect();
        (self.from..steps.len())
            .map(|row| (steps[row] as f64, found.get(&row).copied().unwrap_or(0.0)))
            .collect()
    }

    /// Whether a metric falls: its line's t is −2 or less.
    pub(super) fn falls(&self, name: &str) -> Option<bool> {
        Some(self.line(name)?.t <= -2.0)
    }

    /// Whether it rises.
    pub(super) fn rises(&self, name: &str) -> Option<bool> {
        Some(self.line(name)?.t >= 2.0)
    }

    /// Whether the mean reward rises; unknown counts as no.
    pub(super) fn learns(&self) -> bool {
        self.rises(REWARD).unwrap_or(false)
    }

    /// Names that begin so.
    pub(super) fn names_with<'b>(&'b self, prefix: &'b str) -> impl Iterator<Item = &'b str> {
        let names = self.history.names().iter().map(String::as_str);
        names.filter(move |name| name.starts_with(prefix))
    }

    /// Whether the model has experts: it is routed, by its metrics or its config.
    pub(super) fn has_experts(&self) -> bool {
        self.around.experts.unwrap_or(false)
            || self.names_with("rollout/moe/").next().is_some()
            || self.names_with("moe/").next().is_some()
    }

    /// What the newest attempt's rows are called.
    pub(super) fn has_steps(&self) -> bool {
        self.history.steps().len() > self.from
    }

    pub(super) fn steps_text(&self) -> String {
        match self.history.steps().get(self.from..) {
            Some([first, .., last]) => format!("steps {first} to {last}"),
            Some([only]) => format!("step {only}"),
            _ => "no step".to_owned(),
        }
    }
}

/// The mean verifier reward.
pub(super) const REWARD: &str = "critic/score/mean";

/// Rows of a window: a fifth, from 3 to 10.
fn window(rows: usize) -> usize {
    (rows / 5).clamp(FEWEST, WINDOW).min(rows)
}

pub(super) fn median(values: &[f64]) -> f64 {
    quantile(values, 0.5)
}

/// A number as people read it.
pub(super) fn shown(value: f64) -> String {
    let size = value.abs();
    match () {
        () if value == 0.0 => "0".to_owned(),
        () if !(1e-3..1e5).contains(&size) => format!("{value:.2e}"),
        () if size >= 100.0 => format!("{value:.0}"),
        () if size >= 1.0 => format!("{value:.2}"),
        () => format!("{value:.4}"),
    }
}

/// What a line says, in words.
pub(super) fn told(name: &str, line: &Trend) -> String {
    let t = if line.t.is_infinite() {
        "∞".to_owned()
    } else {
        format!("{:.1}", line.t)
    };
    format!("{name}: slope {} a step, t = {t}", shown(line.slope))
}
