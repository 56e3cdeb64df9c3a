//! The validations of a whole run, as metrics.jsonl keeps them, whichever start made them.

use crate::metrics::StepMetrics;

/// The score of one series.
#[derive(Debug, Clone, PartialEq)]
pub struct ValidationScore {
    /// The set, or the source of its tasks.
    pub series: String,
    /// Tasks with a valid reward.
    pub tasks: Option<f64>,
    /// Chance that one sample solves a task.
    pub pass_at_1: f64,
    /// Standard error of `pass_at_1`.
    pub pass_at_1_se: Option<f64>,
    /// Share of tasks that are solved greedily.
    pub greedy: Option<f64>,
}

/// A validation.
#[derive(Debug, Clone, PartialEq)]
pub struct Validation {
    /// After this step; 0 is the untrained policy.
    pub step: u64,
    /// Its scores, one a series.
    pub scores: Vec<ValidationScore>,
}

/// The validations among a run's steps, in their order.
pub(super) fn validations(steps: &[StepMetrics]) -> Vec<Validation> {
    steps
        .iter()
        .map(|metrics| Validation {
            // One that ran beside the updates ends during a later step.
            step: metrics.get("val/of_step").map_or(metrics.step, |step| step as u64),
            scores: scores(metrics),
        })
        .filter(|validation| !validation.scores.is_empty())
        .collect()
}

fn scores(metrics: &StepMetrics) -> Vec<ValidationScore> {
    let of = |(name, pass_at_1): (&str, f64)| {
        let series = name.strip_prefix("val/")?.strip_suffix("/pass@1")?;
        let get = |metric: &str| metrics.get(&format!("val/{series}/{metric}"));
        Some(ValidationScore {
            series: series.to_owned(),
            tasks: get("tasks"),
            pass_at_1,
            pass_at_1_se: get("standard_error"),
            greedy: get("greedy"),
        })
    };
    metrics.iter().filter_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pipeline::Evaluation;
    use crate::pipeline::evaluation::scores as evaluate;
    use crate::pipeline::meter;
    use crate::trajectory::Episode;
    use crate::trajectory::fixture::episode;

    #[test]
    fn what_the_meter_writes_is_read_back() {
        let of = |task: &str, reward: f32, temperature: f32| {
            let mut episode = Episode {
                task_id: task.to_owned(),
                reward: Some(reward),
                ..episode(task)
            };
            episode.sampling.temperature = temperature;
            episode
        };
        let episodes = [
            of("a", 1.0, 1.0),
            of("b", 0.0, 1.0),
            of("a", 1.0, 0.0),
            of("b", 1.0, 0.0),
        ];
        let evaluation: Evaluation = evaluate(&episodes, true);
        let mut validated = StepMetrics::new(4, jiff::Timestamp::UNIX_EPOCH);
        meter::evaluation(&mut validated, &evaluation);
        assert_eq!(validated.unexplained(), Vec::<&str>::new());
        let steps = [StepMetrics::new(3, jiff::Timestamp::UNIX_EPOCH), validated];
        let expected = |series: &str| ValidationScore {
            series: series.to_owned(),
            tasks: Some(2.0),
            pass_at_1: 0.5,
            pass_at_1_se: Some(0.5),
            greedy: Some(1.0),
        };
        let found = validations(&steps);
        assert_eq!(
            found,
            [Validation {
                step: 4,
                scores: vec![expected("set"), expected("set/source")]
            }]
        );
    }
}
