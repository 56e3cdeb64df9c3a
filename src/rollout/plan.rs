//! Which trials are to run: tasks × group size, each with its own name and seed.

use std::sync::Arc;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use crate::task::Task;
use crate::trajectory::{EpisodeId, GroupId, SamplingParams};

/// What a trial is for. Evaluation never trains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Its episode goes to the trainer.
    Train,
    /// Its episode is scored only.
    Evaluate,
}

/// One trial to run.
#[derive(Debug, Clone)]
pub struct TrialPlan {
    /// What to work on.
    pub task: Arc<Task>,
    /// Where the task came from.
    pub data_source: String,
    /// Training step it is sampled for.
    pub step: u32,
    /// Which episode of its group.
    pub episode_index: u32,
    /// How to sample.
    pub sampling: SamplingParams,
    /// Seed of its model calls.
    pub seed: u64,
    /// What it is for.
    pub purpose: Purpose,
    /// Fires when this trial is to stop.
    pub cancel: CancellationToken,
    /// Number of its first try; above 0 where an earlier start has tried it and is not counted.
    pub first_attempt: u32,
}

impl TrialPlan {
    /// All episodes of this task in this step.
    pub fn group_id(&self) -> GroupId {
        match self.purpose {
            Purpose::Train => GroupId::training(&self.task.id, self.step),
            Purpose::Evaluate => GroupId::validation(&self.task.id, self.step),
        }
    }

    /// The same in every attempt at this trial, also after a crash.
    pub fn episode_id(&self) -> EpisodeId {
        self.group_id().episode(self.episode_index)
    }

    /// Readable name, unique within a step; also the name of the trial's folder.
    pub fn name(&self) -> String {
        format!("{}__{:02}", self.task.id, self.episode_index)
    }
}

/// `group_size` trials of one task.
pub fn group_plans(
    task: &Arc<Task>,
    data_source: &str,
    step: u32,
    group_size: u32,
    sampling: SamplingParams,
    run_seed: u64,
    purpose: Purpose,
) -> Vec<TrialPlan> {
    (0..group_size)
        .map(|episode_index| TrialPlan {
            task: Arc::clone(task),
            data_source: data_source.to_owned(),
            step,
            episode_index,
            sampling,
            seed: trial_seed(run_seed, &task.id, step, episode_index, purpose),
            purpose,
            cancel: CancellationToken::new(),
            first_attempt: 0,
        })
        .collect()
}

/// A seed that depends on nothing but what the trial is, so that a run repeats whatever the order of its trials.
fn trial_seed(run_seed: u64, task_id: &str, step: u32, episode_index: u32, purpose: Purpose) -> u64 {
    let mut hash = Sha256::new();
    hash.update(run_seed.to_le_bytes());
    hash.update(task_id.as_bytes());
    hash.update(step.to_le_bytes());
    hash.update(episode_index.to_le_bytes());
    hash.update([u8::from(purpose == Purpose::Evaluate)]);
    let digest = hash.finalize();
    let mut bytes = [0; 8];
    bytes.copy_from_slice(&digest[..8]);
    u64::from_le_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_differ_in_every_part_of_the_name() {
        let base = trial_seed(1, "a", 2, 3, Purpose::Train);
        for other in [
            trial_seed(2, "a", 2, 3, Purpose::Train),
            trial_seed(1, "b", 2, 3, Purpose::Train),
            trial_seed(1, "a", 3, 3, Purpose::Train),
            trial_seed(1, "a", 2, 4, Purpose::Train),
            trial_seed(1, "a", 2, 3, Purpose::Evaluate),
        ] {
            assert_ne!(base, other);
        }
        assert_eq!(base, trial_seed(1, "a", 2, 3, Purpose::Train));
    }
}
