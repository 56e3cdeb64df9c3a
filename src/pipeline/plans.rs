//! The trials of one task: the only place that says how training and validation sample.

use crate::config::{AdvantageName, LossName, RunConfig};
use crate::rollout::{Purpose, TrialPlan, group_plans};
use crate::trajectory::SamplingParams;

use super::TaskEntry;

/// The group of a task, sampled as `[rollout]` says; for advantage `remax` with one more episode at temperature 0, the
/// last one, that the others are compared with.
pub(super) fn training(config: &RunConfig, entry: &TaskEntry, step: u32) -> Vec<TrialPlan> {
    let rollout = &config.rollout;
    let resolved = config.train.resolve(rollout.groups_per_step);
    let greedy = resolved.is_ok_and(|train| train.advantage == AdvantageName::Remax && train.loss != LossName::Sft);
    let size = rollout.group_size + u32::from(greedy);
    let mut plans = plans(config, entry, step, size, rollout.sampling(), Purpose::Train);
    if let (true, Some(last)) = (greedy, plans.last_mut()) {
        last.sampling = SamplingParams {
            temperature: 0.0,
            top_p: 1.0,
            top_k: -1,
        };
    }
    plans
}

/// `eval.samples` samples at `eval.temperature` and, with `eval.greedy`, a last one at temperature 0.
///
/// They are drawn from the whole distribution: what is scored is the policy, not a truncation of it, so that
/// `rollout.top_p` and `rollout.top_k` do not count here.
pub(super) fn validation(config: &RunConfig, entry: &TaskEntry, step: u32) -> Vec<TrialPlan> {
    let eval = &config.eval;
    let sampling = SamplingParams {
        temperature: eval.temperature,
        top_p: 1.0,
        top_k: -1,
    };
    let size = eval.samples + u32::from(eval.greedy);
    let mut plans = plans(config, entry, step, size, sampling, Purpose::Evaluate);
    if let (true, Some(last)) = (eval.greedy, plans.last_mut()) {
        last.sampling.temperature = 0.0;
    }
    plans
}

fn plans(
    config: &RunConfig,
    entry: &TaskEntry,
    step: u32,
    size: u32,
    sampling: SamplingParams,
    purpose: Purpose,
) -> Vec<TrialPlan> {
    let seed = config.run.seed;
    group_plans(&entry.task, &entry.data_source, step, size, sampling, seed, purpose)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::task::Task;

    #[test]
    fn validation_samples_the_whole_distribution_and_ends_greedily() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("tests")).unwrap();
        fs_err::write(folder.path().join("tests/test.sh"), "").unwrap();
        fs_err::write(folder.path().join("instruction.md"), "mend").unwrap();
        let entry = TaskEntry {
            task: Arc::new(Task::load(folder.path()).unwrap()),
            data_source: "val/kind".to_owned(),
        };
        let mut config = RunConfig::default();
        config.rollout.group_size = 3;
        config.rollout.top_p = 0.5;
        config.rollout.top_k = 7;
        config.rollout.temperature = 0.25;
        config.eval.samples = 2;
        config.eval.temperature = 0.75;
        config.eval.greedy = true;
        let of = |plans: Vec<TrialPlan>| -> Vec<(f32, f32, i32)> {
            let of = |plan: &TrialPlan| (plan.sampling.temperature, plan.sampling.top_p, plan.sampling.top_k);
            plans.iter().map(of).collect()
        };
        assert_eq!(of(training(&config, &entry, 1)), [(0.25, 0.5, 7); 3]);
        assert_eq!(
            of(validation(&config, &entry, 1)),
            [(0.75, 1.0, -1), (0.75, 1.0, -1), (0.0, 1.0, -1)]
        );
        config.train.algorithm = crate::config::AlgorithmName::Remax;
        let mut with_baseline = vec![(0.25, 0.5, 7); 3];
        with_baseline.push((0.0, 1.0, -1));
        assert_eq!(of(training(&config, &entry, 1)), with_baseline);
        config.train.algorithm = crate::config::AlgorithmName::Grpo;
        let seeds: std::collections::BTreeSet<u64> = [training(&config, &entry, 1), validation(&config, &entry, 1)]
            .concat()
            .iter()
            .map(|plan| plan.seed)
            .collect();
        assert_eq!(seeds.len(), 6, "a validation repeats a training trial's seed");
    }
}
