//! Scores of an evaluation: pass@k with its standard error, for each series and in all.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::metrics::{mean, standard_error};
use crate::trajectory::Episode;

/// Score of one series of tasks.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SeriesScore {
    /// Where the tasks came from.
    pub series: String,
    /// Tasks with at least one valid reward.
    pub tasks: usize,
    /// Tasks of which no trial gave a valid reward; they are in no score.
    pub tasks_without_reward: usize,
    /// Trials with a valid reward: those that are scored.
    pub trials: usize,
    /// Trials that ended, whatever came of them.
    pub landed: usize,
    /// Trials that ended without a valid reward: failures of the infrastructure, the environment or the tests.
    pub infra: usize,
    /// Chance that one sample solves a task, mean over tasks.
    pub pass_at_1: f64,
    /// Standard error of `pass_at_1` over tasks.
    pub pass_at_1_se: f64,
    /// 95 % interval of `pass_at_1`: from its standard error, or, where all tasks agree, Wilson's for their number.
    pub pass_at_1_interval: (f64, f64),
    /// Samples a task, of the task with the fewest.
    pub k: usize,
    /// Chance that one of `k` samples solves a task.
    pub pass_at_k: f64,
    /// Standard error of `pass_at_k` over tasks.
    pub pass_at_k_se: f64,
    /// Mean reward.
    pub reward_mean: f64,
}

/// Scores of an evaluation.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct EvalReport {
    /// One score a series, in order of their names.
    pub series: Vec<SeriesScore>,
}

/// Unbiased estimate of the chance that at least one of `k` samples is right, from `n` samples of which `c` are
/// (Chen et al. 2021, "Evaluating Large Language Models Trained on Code", eq. 1).
pub fn pass_at_k(n: usize, c: usize, k: usize) -> f64 {
    if n < c + k {
        return 1.0;
    }
    1.0 - (n - c + 1..=n).map(|i| 1.0 - k as f64 / i as f64).product::<f64>()
}

/// Scores episodes by the series that `series_of` puts them in; an episode may count in several.
///
/// An episode is solved where its reward is at least 1. Episodes without a valid reward are in no score.
pub fn score<'a>(
    episodes: impl IntoIterator<Item = &'a Episode>,
    series_of: impl Fn(&Episode) -> Vec<String>,
) -> EvalReport {
    let mut tasks: BTreeMap<String, BTreeMap<&str, Vec<Option<f32>>>> = BTreeMap::new();
    for episode in episodes {
        for series in series_of(episode) {
            tasks
                .entry(series)
                .or_default()
                .entry(&episode.task_id)
                .or_default()
                .push(episode.reward);
        }
    }
    EvalReport {
        series: tasks
            .into_iter()
            .map(|(series, tasks)| series_score(series, &tasks))
            .collect(),
    }
}

/// The two-sided 95 % quantile of the normal distribution.
const Z: f64 = 1.959_963_984_540_054;

/// 95 % interval of a mean of `n` shares with this standard error. Where they are all the same the standard error is 0 and
/// says nothing: then Wilson's (1927) of `n` yes or no answers.
fn interval(mean: f64, error: f64, n: usize) -> (f64, f64) {
    if n == 0 {
        return (0.0, 1.0);
    }
    let (middle, half) = if error > 0.0 {
        (mean, Z * error)
    } else {
        let n = n as f64;
        let scale = 1.0 + Z * Z / n;
        let half = Z * (mean * (1.0 - mean) / n + Z * Z / (4.0 * n * n)).sqrt();
        ((mean + Z * Z / (2.0 * n)) / scale, half / scale)
    };
    ((middle - half).max(0.0), (middle + half).min(1.0))
}

fn series_score(series: String, tasks: &BTreeMap<&str, Vec<Option<f32>>>) -> SeriesScore {
    let graded: Vec<Vec<f32>> = tasks
        .values()
        .map(|rewards| rewards.iter().copied().flatten().collect::<Vec<f32>>())
        .filter(|rewards| !rewards.is_empty())
        .collect();
    let k = graded.iter().map(Vec::len).min().unwrap_or(0);
    let solved = |rewards: &[f32]| rewards.iter().filter(|&&reward| reward >= 1.0).count();
    let mean_of = |values: &[f64]| if values.is_empty() { 0.0 } else { mean(values) };
    let firsts: Vec<f64> = graded
        .iter()
        .map(|rewards| pass_at_k(rewards.len(), solved(rewards), 1))
        .collect();
    let anys: Vec<f64> = graded
        .iter()
        .map(|rewards| pass_at_k(rewards.len(), solved(rewards), k.max(1)))
        .collect();
    let rewards: Vec<f64> = graded.iter().flatten().map(|&reward| f64::from(reward)).collect();
    let landed: usize = tasks.values().map(Vec::len).sum();
    let error_of = |values: &[f64]| if values.len() > 1 { standard_error(values) } else { 0.0 };
    let (pass_at_1, pass_at_1_se) = (mean_of(&firsts), error_of(&firsts));
    SeriesScore {
        series,
        tasks: graded.len(),
        tasks_without_reward: tasks.len() - graded.len(),
        trials: rewards.len(),
        landed,
        infra: landed - rewards.len(),
        pass_at_1,
        pass_at_1_se,
        pass_at_1_interval: interval(pass_at_1, pass_at_1_se, firsts.len()),
        k,
        pass_at_k: mean_of(&anys),
        pass_at_k_se: error_of(&anys),
        reward_mean: mean_of(&rewards),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pass_at_k_by_hand() {
        // 4 samples, 1 right: one draw of two without replacement misses it with 3/4 · 2/3.
        assert!((pass_at_k(4, 1, 2) - 0.5).abs() < 1e-12);
        assert!((pass_at_k(4, 1, 1) - 0.25).abs() < 1e-12);
        assert!((pass_at_k(4, 0, 4) - 0.0).abs() < 1e-12);
        assert!((pass_at_k(4, 4, 1) - 1.0).abs() < 1e-12);
        assert!((pass_at_k(4, 1, 4) - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_score_by_hand() {
        let episode = |task: &str, reward: Option<f32>| Episode {
            task_id: task.to_owned(),
            reward,
            ..crate::trajectory::fixture::episode("t@1#0")
        };
        // Chances 1, 1/2 and 0: mean 1/2, variance 1/4 (n − 1), standard error 1/2 / √3. Task d has no reward.
        let episodes = [
            episode("a", Some(1.0)),
            episode("a", Some(1.0)),
            episode("b", Some(1.0)),
            episode("b", Some(0.0)),
            episode("c", Some(0.0)),
            episode("c", Some(0.0)),
            episode("d", None),
        ];
        let report = score(&episodes, |episode| vec![episode.data_source.clone()]);
        let series = &report.series[0];
        assert_eq!(
            (series.tasks, series.tasks_without_reward, series.trials, series.k),
            (3, 1, 6, 2)
        );
        assert_eq!((series.landed, series.infra), (7, 1));
        let half = 1.96 * 0.5 / 3.0_f64.sqrt();
        let (low, high) = series.pass_at_1_interval;
        assert!(
            low.abs() < 1e-12 && (high - (0.5 + half).min(1.0)).abs() < 1e-3,
            "{low} {high}"
        );
        // All of 10 solved: Wilson's interval ends at 1 and begins at 10 / (10 + z²).
        let (low, high) = interval(1.0, 0.0, 10);
        assert!((low - 10.0 / (10.0 + Z * Z)).abs() < 1e-9 && (high - 1.0).abs() < 1e-9);
        assert_eq!(interval(0.0, 0.0, 0), (0.0, 1.0));
        assert!((series.pass_at_1 - 0.5).abs() < 1e-12);
        assert!((series.pass_at_1_se - 0.5 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert!((series.pass_at_k - 2.0 / 3.0).abs() < 1e-12);
        assert!((series.reward_mean - 0.5).abs() < 1e-12);
        let none = score(&episodes[6..], |episode| vec![episode.data_source.clone()]);
        assert!(none.series[0].pass_at_1.abs() < 1e-12 && none.series[0].pass_at_1_se.abs() < 1e-12);
    }
}
