//! What a step samples: rows that are durable already, groups that give no signal, and trials that all failed.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::PipelineError;
use crate::buffer::meeting::Meeting;
use crate::rollout::TrialPlan;
use crate::run_dir::RunDir;
use crate::shard::ShardReader;
use crate::trajectory::{Episode, EpisodeId, Outcome};

/// What a step samples.
pub(super) struct Sampled {
    pub episodes: Vec<Episode>,
    /// Of groups that `dynamic_sampling` replaced.
    pub replaced: Vec<Episode>,
    /// Tasks drawn, this step's included.
    pub cursor: u64,
}

/// What earlier starts made durable.
#[derive(Default)]
pub(super) struct Durable {
    /// Episodes that count.
    standing: BTreeMap<EpisodeId, Episode>,
    /// Of those that do not: the number of their next try.
    next_attempt: HashMap<EpisodeId, u32>,
}

impl Durable {
    /// Of one step of a run.
    pub(super) async fn of_step(dir: &RunDir, step: u32) -> Result<Self, PipelineError> {
        Self::read(&dir.rollouts().join(format!("{step:06}"))).await
    }

    /// Of a whole rollout.
    pub(super) async fn of_rollout(dir: &RunDir) -> Result<Self, PipelineError> {
        let mut durable = Self::read(&dir.rollouts()).await?;
        let purged = super::purge::read(dir.path())?.into_iter();
        let purged = purged.map(|row| (row.episode_id, row.attempt)).collect();
        durable.forget(&purged);
        Ok(durable)
    }

    /// Takes results back: their trials are run again, under the number of another try.
    fn forget(&mut self, purged: &HashSet<(String, i32)>) {
        let taken = |episode: &Episode| purged.contains(&(episode.episode_id.0.clone(), episode.attempt));
        for episode in self.standing.values().filter(|episode| taken(episode)) {
            let next = episode.attempt.unsigned_abs() + 1;
            self.next_attempt.insert(episode.episode_id.clone(), next);
        }
        self.standing.retain(|_, episode| !taken(episode));
    }

    async fn read(folder: &std::path::Path) -> Result<Self, PipelineError> {
        if !folder.is_dir() {
            return Ok(Self::default());
        }
        Ok(Self::of(ShardReader::open(&[folder])?.episodes(None).await?))
    }

    /// Of one step, where rollouters and a trainer meet.
    pub(super) async fn of_meeting(meeting: &Meeting, step: u32) -> Result<Self, PipelineError> {
        if let Some(rollouts) = meeting.local_rollouts() {
            return Self::read(&rollouts.join(format!("{step:06}"))).await;
        }
        let place = format!("{}/{step:06}", meeting.rollouts());
        Ok(Self::of(
            ShardReader::open_places(&[place]).await?.episodes(None).await?,
        ))
    }

    /// A failure that began before any trial was graded does not count, since what broke all trials may be mended by
    /// now; nor does a trial that we ended ourselves. Both are tried again.
    fn of(episodes: Vec<Episode>) -> Self {
        let graded = episodes.iter().filter(|episode| episode.outcome.is_graded());
        let worked = graded.map(|episode| episode.started_at).min();
        let mut durable = Self::default();
        for episode in episodes {
            let outcome = episode.outcome;
            let failed = outcome != Outcome::Cancelled && worked.is_some_and(|worked| worked <= episode.started_at);
            let id = episode.episode_id.clone();
            if outcome.is_graded() || failed {
                durable.standing.insert(id, episode);
            } else {
                durable.next_attempt.insert(id, episode.attempt.unsigned_abs() + 1);
            }
        }
        durable
    }

    /// The episodes that stand for some of the plans; those that are still to run are left.
    pub(super) fn take(&mut self, plans: &mut Vec<TrialPlan>) -> Vec<Episode> {
        let mut known = Vec::new();
        plans.retain_mut(|plan| {
            let id = plan.episode_id();
            if let Some(attempt) = self.next_attempt.get(&id) {
                plan.first_attempt = *attempt;
            }
            let found = self.standing.remove(&id);
            let is_open = found.is_none();
            known.extend(found);
            is_open
        });
        known
    }

    /// Episodes that no plan has asked for.
    pub(super) fn rest(self) -> impl Iterator<Item = Episode> {
        self.standing.into_values()
    }
}

/// Refuses trials of which not one could be graded: an environment that fails all of them is broken, and going on
/// would only use up steps. `what` are these trials.
pub(super) fn refuse_failed<'a>(
    episodes: impl IntoIterator<Item = &'a Episode>,
    what: &str,
) -> Result<(), PipelineError> {
    let mut trials = 0;
    let mut kinds: BTreeMap<Outcome, BTreeMap<&str, usize>> = BTreeMap::new();
    for episode in episodes {
        trials += 1;
        match episode.outcome {
            outcome if outcome.is_graded() => return Ok(()),
            // Our own doing.
            Outcome::Cancelled => {}
            outcome => {
                let reason = episode.failure.as_deref().unwrap_or("no reason is known");
                *kinds.entry(outcome).or_default().entry(reason).or_default() += 1;
            }
        }
    }
    // Reasons may name their trials, so that no two are the same: the kind is what counts first.
    let kind = kinds.iter().max_by_key(|(_, reasons)| reasons.values().sum::<usize>());
    let Some((&outcome, reasons)) = kind else { return Ok(()) };
    let reason = reasons.iter().max_by_key(|(_, count)| **count);
    Err(PipelineError::AllFailed {
        what: what.to_owned(),
        trials,
        failed: reasons.values().sum(),
        outcome,
        reason: reason.map_or_else(String::new, |(reason, _)| (*reason).to_owned()),
    })
}

/// Takes out the episodes of at most `most` groups in which all valid rewards are equal.
pub(super) fn take_silent_groups(episodes: &mut Vec<Episode>, most: usize) -> Vec<Episode> {
    let mut rewards: HashMap<_, Vec<f32>> = HashMap::new();
    for episode in episodes.iter() {
        rewards
            .entry(episode.group_id.clone())
            .or_default()
            .extend(episode.reward);
    }
    let mut silent: Vec<_> = rewards
        .into_iter()
        .filter(|(_, rewards)| rewards.windows(2).all(|pair| pair[0].total_cmp(&pair[1]).is_eq()))
        .map(|(group, _)| group)
        .collect();
    silent.sort();
    silent.truncate(most);
    let (out, kept) = std::mem::take(episodes)
        .into_iter()
        .partition(|episode| silent.contains(&episode.group_id));
    *episodes = kept;
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trajectory::fixture::episode;

    fn failed(id: &str, outcome: Outcome, reason: &str) -> Episode {
        Episode {
            outcome,
            failure: Some(reason.to_owned()),
            attempt: 2,
            ..episode(id)
        }
    }

    #[test]
    fn trials_that_all_failed_are_refused_with_the_most_frequent_reason() {
        let mut episodes = vec![
            failed("a", Outcome::InfraError, "one"),
            failed("b", Outcome::EnvSetupFailed, "two"),
            failed("c", Outcome::InfraError, "three"),
            failed("d", Outcome::InfraError, "three"),
            failed("e", Outcome::Cancelled, "cancelled"),
        ];
        let said = refuse_failed(&episodes, "step 3").unwrap_err().to_string();
        assert_eq!(
            said,
            "not one of the 5 trials of step 3 could be graded: 3 of them ended with infra_error, most often: three"
        );
        assert!(refuse_failed(&episodes[4..], "step 3").is_ok(), "only cancelled");
        assert!(refuse_failed(&[], "step 3").is_ok());
        episodes.push(episode("f"));
        assert!(refuse_failed(&episodes, "step 3").is_ok());
    }

    #[test]
    fn what_failed_before_anything_was_graded_is_tried_again() {
        let folder = tempfile::tempdir().unwrap();
        fs_err::create_dir(folder.path().join("tests")).unwrap();
        fs_err::write(folder.path().join("tests/test.sh"), "").unwrap();
        fs_err::write(folder.path().join("instruction.md"), "mend").unwrap();
        let entry = super::super::TaskEntry {
            task: std::sync::Arc::new(crate::task::Task::load(folder.path()).unwrap()),
            data_source: "set".to_owned(),
        };
        let mut config = crate::config::RunConfig::default();
        config.rollout.group_size = 3;
        let plans = super::super::plans::training(&config, &entry, 1);
        let ids: Vec<String> = plans.iter().map(|plan| plan.episode_id().0).collect();
        let after = |outcome: Outcome, second: i64| Episode {
            started_at: jiff::Timestamp::from_second(second).unwrap(),
            ..failed(&ids[0], outcome, "gone")
        };
        let graded = Episode {
            started_at: jiff::Timestamp::from_second(5).unwrap(),
            ..episode(&ids[1])
        };
        // The first tries still to be made, in the order of the plans; a trial that stands has none.
        let open = |episodes: Vec<Episode>| {
            let mut open = plans.clone();
            let known = Durable::of(episodes).take(&mut open).len();
            assert_eq!(known + open.len(), 3);
            open.iter().map(|plan| plan.first_attempt).collect::<Vec<_>>()
        };
        assert_eq!(open(vec![after(Outcome::InfraError, 6), graded.clone()]), [0]);
        assert_eq!(open(vec![after(Outcome::InfraError, 4), graded.clone()]), [3, 0]);
        assert_eq!(open(vec![after(Outcome::Cancelled, 6), graded.clone()]), [3, 0]);
        // What was taken back is run again, under another number.
        let mut taken = Durable::of(vec![after(Outcome::InfraError, 6), graded]);
        taken.forget(&HashSet::from([(ids[0].clone(), 2)]));
        assert_eq!(taken.next_attempt.get(&plans[0].episode_id()), Some(&3));
        assert_eq!(open(vec![after(Outcome::InfraError, 6)]), [3, 0, 0]);
    }
}
