//! What became of a run's episodes, by its ledger: each trained once, dropped for a reason, or waiting.

use std::collections::{BTreeMap, BTreeSet};

use super::AccountRow;
use crate::buffer::{Fate, Ledger, LedgerView};
use crate::run_dir::{RunDir, read_metrics};
use crate::trajectory::{EpisodeId, GroupId};

/// An episode of the shards, as far as its consumption goes.
pub(super) struct Sampled {
    pub(super) episode: EpisodeId,
    pub(super) group: GroupId,
    /// Whether we ended it ourselves: it is sampled again.
    pub(super) cut_off: bool,
}

/// Episodes by what became of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consumption {
    /// In the shards, each once; validations are not counted.
    pub sampled: u64,
    /// Taken by an update.
    pub trained: u64,
    /// Left out for good, by reason.
    pub dropped: BTreeMap<String, u64>,
    /// Ended by ourselves before they could be graded.
    pub cut_off: u64,
    /// Neither yet.
    pub waiting: u64,
}

impl Consumption {
    /// Of a run that has a ledger, and what is wrong with it.
    pub(super) fn of(run: &RunDir, sampled: &[Sampled]) -> Option<(Self, Vec<String>)> {
        let path = run.ledger();
        if !path.is_file() {
            return None;
        }
        let view = match Ledger::read_view(&path) {
            Ok(view) => view,
            Err(error) => return Some((Self::default(), vec![error.to_string()])),
        };
        let mut faults = Vec::new();
        let steps = match read_metrics(&run.metrics()) {
            Ok(steps) => steps.iter().map(|step| step.step).filter(|step| *step > 0).collect(),
            Err(error) => {
                faults.push(error.to_string());
                BTreeSet::new()
            }
        };
        let (consumption, more) = settle(&view, &steps, sampled);
        faults.extend(more.into_iter().map(|fault| format!("{}: {fault}", path.display())));
        Some((consumption, faults))
    }

    /// One row an account.
    pub fn rows(&self) -> Vec<AccountRow> {
        let row = |account: String, episodes: u64| AccountRow {
            account,
            tokens: None,
            episodes: Some(episodes),
        };
        let mut rows = vec![row("episodes trained".to_owned(), self.trained)];
        let dropped = self.dropped.iter();
        rows.extend(dropped.map(|(reason, episodes)| row(format!("episodes dropped: {reason}"), *episodes)));
        rows.push(row("episodes cut off".to_owned(), self.cut_off));
        rows.push(row("episodes waiting".to_owned(), self.waiting));
        rows.retain(|row| row.episodes != Some(0) || row.account == "episodes trained");
        rows
    }
}

/// What the ledger says of what was sampled, and where the two differ.
fn settle(view: &LedgerView, steps: &BTreeSet<u64>, sampled: &[Sampled]) -> (Consumption, Vec<String>) {
    let mut consumption = Consumption::default();
    let mut faults = Vec::new();
    // A trial that was repeated has rows of every try.
    let mut episodes: BTreeMap<&EpisodeId, &Sampled> = BTreeMap::new();
    for one in sampled.iter().filter(|one| !one.group.is_validation()) {
        let known = episodes.entry(&one.episode).or_insert(one);
        if known.cut_off {
            *known = one;
        }
    }
    let mut groups: BTreeMap<&GroupId, BTreeSet<u64>> = BTreeMap::new();
    for (episode, one) in &episodes {
        consumption.sampled += 1;
        match view.fate(episode) {
            Some(Fate::Consumed { update }) => {
                consumption.trained += 1;
                groups.entry(&one.group).or_default().insert(*update);
            }
            Some(Fate::Dropped { reason, .. }) => *consumption.dropped.entry(reason.clone()).or_default() += 1,
            None if one.cut_off => consumption.cut_off += 1,
            None => consumption.waiting += 1,
        }
    }
    for (group, updates) in groups {
        if updates.len() > 1 {
            let updates: Vec<String> = updates.iter().map(u64::to_string).collect();
            faults.push(format!(
                "group {} is torn: updates {} took parts of it",
                group.0,
                updates.join(", ")
            ));
        }
    }
    let mut lost: Vec<_> = view
        .consumed()
        .filter(|(episode, _)| !episodes.contains_key(episode))
        .collect();
    lost.sort();
    faults.extend(lost.into_iter().map(|(episode, update)| {
        format!(
            "episode {} was trained by update {update}, and no row of it is in the shards",
            episode.0
        )
    }));
    let settled = view.updates();
    faults.extend(steps.difference(&settled).map(|step| {
        format!("step {step} is in metrics.jsonl, and no episode is settled by it: entries of the ledger are lost")
    }));
    (consumption, faults)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sampled(episode: &str, group: &str, cut_off: bool) -> Sampled {
        Sampled {
            episode: EpisodeId(episode.to_owned()),
            group: GroupId(group.to_owned()),
            cut_off,
        }
    }

    #[test]
    fn episodes_add_up_and_what_is_lost_or_torn_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let mut ledger = Ledger::open(&folder.path().join("buffer.jsonl")).unwrap();
        let ids = |names: &[&str]| {
            names
                .iter()
                .map(|name| EpisodeId((*name).to_owned()))
                .collect::<Vec<_>>()
        };
        ledger.consume(1, &ids(&["a0", "a1", "b0"])).unwrap();
        ledger.consume(2, &ids(&["b1", "gone"])).unwrap();
        ledger.drop_episodes(2, &ids(&["c0"]), "stale").unwrap();
        let episodes = [
            sampled("a0", "a", true),
            sampled("a0", "a", false),
            sampled("a1", "a", false),
            sampled("b0", "b", false),
            sampled("b1", "b", false),
            sampled("c0", "c", false),
            sampled("d0", "d", true),
            sampled("d1", "d", false),
        ];
        let (consumption, faults) = settle(ledger.view(), &BTreeSet::from([1, 2, 3]), &episodes);
        let Consumption {
            sampled,
            trained,
            dropped,
            cut_off,
            waiting,
        } = consumption;
        assert_eq!((sampled, trained, cut_off, waiting), (7, 4, 1, 1));
        assert_eq!(dropped, BTreeMap::from([("stale".to_owned(), 1)]));
        assert_eq!(
            faults,
            [
                "group b is torn: updates 1, 2 took parts of it",
                "episode gone was trained by update 2, and no row of it is in the shards",
                "step 3 is in metrics.jsonl, and no episode is settled by it: entries of the ledger are lost",
            ]
        );
    }
}
