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
    /// Trials with a valid reward.
    pub trials: usize,
    /// Chance that one sample solves a task, mean over tasks.
    pub pass_at_1: f64,
    /// Standard error of `pass_at_1` over tasks.
    pub pass_at_1_se: f64,
    /// Samples a task, of the task with the fewest.
    pub k: usize,
    /// Chance that one of `k` samples solves a task.
    pub pass_at_k: f64,
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
    SeriesScore {
        series,
        tasks: graded.len(),
        tasks_without_reward: tasks.len() - graded.len(),
        trials: rewards.len(),
        pass_at_1: mean_of(&firsts),
        pass_at_1_se: if firsts.len() > 1 { standard_error(&firsts) } else { 0.0 },
        k,
        pass_at_k: mean_of(&anys),
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
        assert!((series.pass_at_1 - 0.5).abs() < 1e-12);
        assert!((series.pass_at_1_se - 0.5 / 3.0_f64.sqrt()).abs() < 1e-12);
        assert!((series.pass_at_k - 2.0 / 3.0).abs() < 1e-12);
        assert!((series.reward_mean - 0.5).abs() < 1e-12);
        let none = score(&episodes[6..], |episode| vec![episode.data_source.clone()]);
        assert!(none.series[0].pass_at_1.abs() < 1e-12 && none.series[0].pass_at_1_se.abs() < 1e-12);
    }
}
