//! The order of groups by their numbers, and up to which all are settled: the same for whoever knows tasks and settings.

use std::collections::{BTreeMap, BTreeSet};

use super::plans;
use super::{TaskOrder, TaskSet};
use crate::buffer::LedgerView;
use crate::buffer::meeting::{Order, Published};
use crate::config::RunConfig;
use crate::task::sha256_hex;
use crate::trajectory::{EpisodeId, GroupId};

/// Groups of the steps from one on, of which earlier ones are settled.
#[derive(Debug, Clone)]
pub(super) struct GroupOrder {
    order: TaskOrder,
    ids: Vec<String>,
    known: BTreeSet<String>,
    required: usize,
    trials: u32,
    /// The first step that is not settled, the task that it begins with, and how many groups there are before it.
    first: (u32, u64, u64),
    /// Its groups, once it was looked at, and the task that the one behind it begins with.
    open: Vec<GroupId>,
    after: u64,
    /// Of all epochs.
    groups: Option<u64>,
}

impl GroupOrder {
    /// Of a configuration's tasks, from the first step on.
    pub(super) fn new(config: &RunConfig, train: &TaskSet) -> Self {
        let data = &config.data;
        let order = TaskOrder::new(train.tasks.len(), config.run.seed, data.shuffle, data.epochs);
        let required = config.groups_per_update() as usize;
        let trials = train
            .tasks
            .first()
            .map_or(0, |entry| plans::training(config, entry, 1).len());
        let mut made = Self {
            order,
            ids: train.tasks.iter().map(|entry| entry.task.id.clone()).collect(),
            known: train.tasks.iter().map(|entry| entry.task.id.clone()).collect(),
            required,
            trials: trials as u32,
            first: (1, 0, 0),
            open: Vec::new(),
            after: 0,
            groups: None,
        };
        made.groups = data.epochs.map(|_| made.count());
        made
    }

    /// What says that two mean the same.
    pub(super) fn identity(&self, config: &RunConfig) -> Order {
        Order {
            seed: config.run.seed,
            tasks: self.ids.len() as u64,
            tasks_sha256: sha256_hex(self.ids.join("\n").as_bytes()),
            shuffle: config.data.shuffle,
            epochs: config.data.epochs,
            required: self.required as u32,
            trials: self.trials,
            settings: shaping(config),
        }
    }

    /// Groups of all epochs, where they end.
    pub(super) fn groups(&self) -> Option<u64> {
        self.groups
    }

    /// Moves on over settled steps.
    pub(super) fn settle(&mut self, ledger: &LedgerView) {
        let trials = self.trials;
        while self.look() && self.open.iter().all(|group| is_settled(group, trials, ledger)) {
            let (step, _, groups) = self.first;
            self.first = (step + 1, self.after, groups + self.open.len() as u64);
            self.open.clear();
        }
    }

    /// Groups that the ledger knows.
    pub(super) fn settled_groups(ledger: &LedgerView) -> BTreeSet<GroupId> {
        groups_of(ledger).map(|group| GroupId(group.to_owned())).collect()
    }

    /// Tasks of a step that begins with this one, by their place in the index, and what the next one begins with.
    pub(super) fn tasks_of(&self, cursor: u64) -> (Vec<usize>, u64) {
        self.order.take(cursor, self.required, &mut BTreeSet::new())
    }

    /// The last step of which all groups are settled, and the task that the next one begins with.
    pub(super) fn settled(&self) -> (u32, u64) {
        (self.first.0 - 1, self.first.1)
    }

    /// Writes down how far it is settled.
    pub(super) fn describe(&self, published: &mut Published) {
        (published.settled_step, published.cursor) = self.settled();
        published.settled_groups = self.first.2;
    }

    /// Whether a group is one of this order, by the step and task that its name says.
    pub(super) fn holds(&self, group: &GroupId) -> bool {
        step_of(&group.0).is_some_and(|(task, step)| step > 0 && self.known.contains(task))
    }

    /// Looks at the first step that is not settled; whether there is one.
    fn look(&mut self) -> bool {
        if self.open.is_empty() {
            let (step, cursor, _) = self.first;
            let (picked, after) = self.tasks_of(cursor);
            let groups = picked.iter().map(|&task| GroupId::training(&self.ids[task], step));
            (self.open, self.after) = (groups.collect(), after);
        }
        !self.open.is_empty()
    }

    fn count(&self) -> u64 {
        let (mut cursor, mut groups) = (0, 0);
        loop {
            let (picked, after) = self.tasks_of(cursor);
            if picked.is_empty() {
                return groups;
            }
            groups += picked.len() as u64;
            cursor = after;
        }
    }
}

/// What decides what a trial samples and what it is worth. What is of a machine alone is not in it: folders, engines,
/// sandboxes, numbers at a time.
fn shaping(config: &RunConfig) -> BTreeMap<String, String> {
    let (rollout, data, scaffold) = (&config.rollout, &config.data, &config.scaffold);
    let pairs = [
        ("rollout.temperature", rollout.temperature.to_string()),
        ("rollout.top_p", rollout.top_p.to_string()),
        ("rollout.top_k", rollout.top_k.to_string()),
        ("rollout.max_tokens", rollout.max_tokens.to_string()),
        ("rollout.reward_unfinished", rollout.reward_unfinished.to_string()),
        ("data.max_prompt_tokens", data.max_prompt_tokens.to_string()),
        ("data.max_response_tokens", data.max_response_tokens.to_string()),
        ("policy.max_model_len", format!("{:?}", config.policy.max_model_len)),
        ("scaffold.name", scaffold.name.clone()),
        ("scaffold.max_turns", scaffold.max_turns.to_string()),
        (
            "scaffold.max_consecutive_no_tool",
            scaffold.max_consecutive_no_tool.to_string(),
        ),
        ("capture", format!("{:?}", config.capture)),
        ("proxy.turn_cap", format!("{:?}", config.proxy.turn_cap)),
        ("sandbox.hack_policy", format!("{:?}", config.sandbox.hack_policy)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn is_settled(group: &GroupId, trials: u32, ledger: &LedgerView) -> bool {
    (0..trials).any(|at| !ledger.is_available(&group.episode(at)))
}

/// Groups of the episodes that a ledger knows.
fn groups_of(ledger: &LedgerView) -> impl Iterator<Item = &str> {
    let consumed = ledger.consumed().map(|(episode, _)| episode);
    let all = consumed.chain(ledger.dropped().map(|(episode, _)| episode));
    all.filter_map(|episode: &EpisodeId| {
        let (group, _) = episode.0.rsplit_once('#')?;
        step_of(group).map(|_| group)
    })
}

/// Task and step of a group's name.
fn step_of(group: &str) -> Option<(&str, u32)> {
    let (task, step) = group.rsplit_once('@')?;
    Some((task, step.parse().ok()?))
}
