//! The trials of a run as short records, from its shards, read as they appear. Ids and texts stay on disk.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Value, json};

use super::series::number;
use crate::shard::{Row, ShardReader};

/// Rows that go through memory at a time.
const BATCH: usize = 128;
/// Trials that are held at most; later ones are counted.
pub(super) const MOST_TRIALS: usize = 400_000;
/// Faulty files that are named.
const MOST_FAULTS: usize = 20;
/// What is read of a row.
const COLUMNS: [&str; 30] = [
    "step",
    "task_id",
    "data_source",
    "trial_name",
    "attempt",
    "segment_index",
    "n_segments",
    "is_main_agent",
    "agent",
    "model",
    "endpoint",
    "response_mask",
    "reward",
    "temperature",
    "outcome",
    "dropped",
    "drop_reason",
    "num_turns",
    "num_tool_calls",
    "num_calls",
    "delivered_fraction",
    "n_rewrites",
    "hack_flags",
    "started_at",
    "env_setup_s",
    "agent_s",
    "model_s",
    "tool_s",
    "verify_s",
    "total_s",
];

/// One trial.
#[derive(Debug, Clone)]
pub(super) struct Trial {
    pub(super) step: u32,
    pub(super) validation: bool,
    pub(super) task: Arc<str>,
    pub(super) source: Arc<str>,
    pub(super) name: Box<str>,
    pub(super) attempt: u16,
    pub(super) agent: Arc<str>,
    pub(super) endpoint: Arc<str>,
    pub(super) outcome: Arc<str>,
    /// Why it does not train; empty where it does.
    pub(super) dropped: Arc<str>,
    /// NaN: none.
    pub(super) reward: f32,
    pub(super) greedy: bool,
    pub(super) turns: u16,
    pub(super) tool_calls: u16,
    pub(super) tokens: u32,
    pub(super) trained: u32,
    pub(super) segments: u16,
    pub(super) delivered: f32,
    pub(super) rewrites: u16,
    pub(super) flags: Vec<Arc<str>>,
    pub(super) started: f64,
    pub(super) seconds: Seconds,
    /// Where its rows are.
    pub(super) file: u32,
    pub(super) row: u32,
}

/// Where a trial's time went.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Seconds {
    pub(super) setup: f32,
    pub(super) agent: f32,
    pub(super) model: f32,
    pub(super) tool: f32,
    pub(super) verify: f32,
    pub(super) total: f32,
}

/// The trials of a run.
#[derive(Debug, Default)]
pub(super) struct Trials {
    pub(super) list: Vec<Trial>,
    pub(super) files: Vec<PathBuf>,
    known: HashSet<PathBuf>,
    names: HashMap<Box<str>, Arc<str>>,
    pub(super) faults: Vec<String>,
    pub(super) more_faults: usize,
    /// Trials that were not held for want of room.
    pub(super) beyond: usize,
}

impl Trials {
    /// Of these shards those that were not read, in order; and whether all was forgotten since some are gone: the run was
    /// begun anew or taken back.
    pub(super) fn unread(&mut self, mut found: Vec<(PathBuf, bool)>) -> (Vec<(PathBuf, bool)>, bool) {
        let there: HashSet<&PathBuf> = found.iter().map(|(path, _)| path).collect();
        let anew = self.known.iter().any(|path| !there.contains(path));
        if anew {
            *self = Self::default();
        }
        found.retain(|(path, _)| !self.known.contains(path));
        found.sort();
        (found, anew)
    }

    /// What one shard holds; its fault, where it cannot be read.
    pub(super) fn of(path: &Path, validation: bool) -> Self {
        let mut trials = Self::default();
        if let Err(error) = trials.read(path, validation) {
            trials.fault(error.to_string());
        }
        trials
    }

    /// Adds what another shard holds.
    pub(super) fn take(&mut self, path: &Path, other: Self) {
        let file = self.files.len() as u32;
        self.files.push(path.to_owned());
        self.known.insert(path.to_owned());
        let room = MOST_TRIALS.saturating_sub(self.list.len());
        self.beyond += other.list.len().saturating_sub(room) + other.beyond;
        for mut trial in other.list.into_iter().take(room) {
            for text in [
                &mut trial.task,
                &mut trial.source,
                &mut trial.agent,
                &mut trial.endpoint,
                &mut trial.outcome,
                &mut trial.dropped,
            ] {
                *text = self.name(text);
            }
            for flag in &mut trial.flags {
                *flag = self.name(flag);
            }
            trial.file = file;
            self.list.push(trial);
        }
        other.faults.into_iter().for_each(|fault| self.fault(fault));
        self.more_faults += other.more_faults;
    }

    fn fault(&mut self, fault: String) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        } else {
            self.more_faults += 1;
        }
    }

    fn read(&mut self, path: &Path, validation: bool) -> Result<(), crate::shard::ShardError> {
        let reader = ShardReader::open(&[path])?.with_columns(&COLUMNS)?;
        let mut at = 0;
        reader.each_batch(path, BATCH, (0, None), |rows| {
            for row in rows {
                self.add(&row, validation, at);
                at += 1;
            }
        })
    }

    fn name(&mut self, text: &str) -> Arc<str> {
        if let Some(name) = self.names.get(text) {
            return Arc::clone(name);
        }
        let name: Arc<str> = Arc::from(text);
        self.names.insert(text.into(), Arc::clone(&name));
        name
    }

    fn add(&mut self, row: &Row, validation: bool, at: u32) {
        let mask = row.response_mask.as_deref().unwrap_or_default();
        let trained = mask.iter().filter(|bit| **bit != 0).count() as u32;
        if let Some(last) = self.list.last_mut()
            && row.segment_index > 0
            && *last.name == *row.trial_name
        {
            last.tokens += mask.len() as u32;
            last.trained += trained;
            return;
        }
        if self.list.len() >= MOST_TRIALS {
            self.beyond += 1;
            return;
        }
        let small = |count: i32| count.clamp(0, i32::from(u16::MAX)) as u16;
        let dropped = match (&row.drop_reason, row.dropped) {
            (Some(reason), true) => reason.as_str(),
            (None, true) => "dropped",
            _ => "",
        };
        let trial = Trial {
            step: row.step.max(0) as u32,
            validation,
            task: self.name(&row.task_id),
            source: self.name(&row.data_source),
            name: row.trial_name.as_str().into(),
            attempt: small(row.attempt),
            agent: self.name(&row.agent),
            endpoint: self.name(&row.endpoint),
            outcome: self.name(&row.outcome),
            dropped: self.name(dropped),
            reward: row.reward.unwrap_or(f32::NAN),
            greedy: validation && row.temperature == 0.0,
            turns: small(row.num_turns),
            tool_calls: small(row.num_tool_calls),
            tokens: mask.len() as u32,
            trained,
            segments: small(row.n_segments),
            delivered: row.delivered_fraction,
            rewrites: small(row.n_rewrites),
            flags: row.hack_flags.iter().map(|flag| self.name(flag)).collect(),
            started: row.started_at.as_millisecond() as f64 / 1000.0,
            seconds: Seconds {
                setup: row.env_setup_s,
                agent: row.agent_s,
                model: row.model_s,
                tool: row.tool_s,
                verify: row.verify_s,
                total: row.total_s,
            },
            file: 0,
            row: at,
        };
        self.list.push(trial);
    }

    /// A page of trials: those that fit, sorted, and how many there are.
    pub(super) fn page(&self, wanted: &Wanted) -> Value {
        let mut fitting: Vec<usize> = (0..self.list.len()).filter(|at| wanted.fits(&self.list[*at])).collect();
        let of = |at: &usize| wanted.sort_key(&self.list[*at]);
        if let Some(by_text) = wanted.text_key() {
            fitting.sort_by(|one, other| by_text(&self.list[*one]).cmp(by_text(&self.list[*other])));
        } else {
            fitting.sort_by(|one, other| of(one).total_cmp(&of(other)));
        }
        if wanted.descending {
            fitting.reverse();
        }
        let mut outcomes: BTreeMap<&str, usize> = BTreeMap::new();
        for at in &fitting {
            *outcomes.entry(self.list[*at].label()).or_default() += 1;
        }
        let rows: Vec<Value> = fitting
            .iter()
            .skip(wanted.offset)
            .take(wanted.limit)
            .map(|at| self.list[*at].to_json(*at))
            .collect();
        json!({
            "total": fitting.len(),
            "all": self.list.len(),
            "offset": wanted.offset,
            "rows": rows,
            "outcomes": outcomes,
            "faults": self.faults,
            "more_faults": self.more_faults,
            "beyond": self.beyond,
        })
    }
}

impl Trial {
    /// How it ended; a solved trial apart from one that merely came to its end.
    pub(super) fn label(&self) -> &str {
        match (&*self.outcome, self.solved()) {
            ("completed", true) => "solved",
            ("completed", false) => "unsolved",
            (outcome, _) => outcome,
        }
    }

    pub(super) fn solved(&self) -> bool {
        self.reward >= 1.0
    }

    pub(super) fn to_json(&self, index: usize) -> Value {
        let short = |value: f32| number((f64::from(value) * 1000.0).round() / 1000.0);
        json!({
            "i": index,
            "step": self.step,
            "set": if self.validation { "val" } else { "train" },
            "task": &*self.task,
            "source": &*self.source,
            "name": &*self.name,
            "attempt": self.attempt,
            "agent": &*self.agent,
            "endpoint": &*self.endpoint,
            "outcome": &*self.outcome,
            "dropped": &*self.dropped,
            "reward": short(self.reward),
            "greedy": self.greedy,
            "turns": self.turns,
            "tools": self.tool_calls,
            "tokens": self.tokens,
            "trained": self.trained,
            "segments": self.segments,
            "delivered": short(self.delivered),
            "rewrites": self.rewrites,
            "flags": self.flags.iter().map(|flag| &**flag).collect::<Vec<_>>(),
            "started": self.started,
            "setup_s": short(self.seconds.setup),
            "agent_s": short(self.seconds.agent),
            "model_s": short(self.seconds.model),
            "tool_s": short(self.seconds.tool),
            "verify_s": short(self.seconds.verify),
            "total_s": short(self.seconds.total),
        })
    }
}

/// Which trials, and in what order.
#[derive(Debug, Clone, Default)]
pub(super) struct Wanted {
    pub(super) set: String,
    pub(super) outcome: String,
    pub(super) task: String,
    pub(super) search: String,
    pub(super) reward: String,
    pub(super) step: Option<u32>,
    pub(super) sort: String,
    pub(super) descending: bool,
    pub(super) offset: usize,
    pub(super) limit: usize,
}

impl Wanted {
    fn fits(&self, trial: &Trial) -> bool {
        let set = if trial.validation { "val" } else { "train" };
        (self.set.is_empty() || self.set == set)
            && (self.outcome.is_empty()
                || [trial.label(), &trial.outcome, &trial.dropped].contains(&self.outcome.as_str()))
            && (self.task.is_empty() || *self.task == *trial.task)
            && (self.search.is_empty() || trial.name.contains(&self.search) || trial.task.contains(&self.search))
            && self.step.is_none_or(|step| step == trial.step)
            && match self.reward.as_str() {
                "solved" => trial.solved(),
                "unsolved" => trial.reward < 1.0,
                "none" => trial.reward.is_nan(),
                "flagged" => !trial.flags.is_empty(),
                _ => true,
            }
    }

    fn text_key(&self) -> Option<fn(&Trial) -> &str> {
        match self.sort.as_str() {
            "task" => Some(|trial| &trial.task),
            "name" => Some(|trial| &trial.name),
            "outcome" => Some(|trial| &trial.outcome),
            _ => None,
        }
    }

    fn sort_key(&self, trial: &Trial) -> f64 {
        match self.sort.as_str() {
            "reward" => f64::from(trial.reward),
            "turns" => f64::from(trial.turns),
            "tools" => f64::from(trial.tool_calls),
            "tokens" => f64::from(trial.tokens),
            "total_s" => f64::from(trial.seconds.total),
            "setup_s" => f64::from(trial.seconds.setup),
            "started" => trial.started,
            _ => f64::from(trial.step) + trial.started / 1e11,
        }
    }
}
