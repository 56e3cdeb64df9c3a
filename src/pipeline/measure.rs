//! How hard are these tasks? Several attempts at each, by the way that training takes, and what share of them solves it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tokio_util::sync::CancellationToken;

use super::collect::{Check, CollectJob, collect};
use super::tasks::work_folder;
use super::{PipelineError, PipelineObserver, StackOptions};
use crate::config::Loaded;
use crate::prepare::{Measured, read_measured, write_measured};
use crate::task::IndexRow;

/// Folder of the trials, below that of the tasks.
const WORK: &str = ".filter";

/// Tasks to measure.
pub struct MeasureJob {
    /// Policy, agent and sandboxes; `rollout.group_size` attempts at each task.
    pub loaded: Loaded,
    /// Who tries, in a word: what another policy has done is not its.
    pub policy: String,
    /// Folder of the tasks, where what is found is kept.
    pub tasks: PathBuf,
    /// The tasks: with absolute paths and checksums.
    pub rows: Vec<IndexRow>,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more trials are to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// What became of the tasks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasureEnd {
    /// Tasks that were tried now.
    pub tried: usize,
    /// Tasks that had been tried often enough.
    pub known: usize,
    /// Tasks without one valid reward.
    pub without_reward: usize,
    /// Whether it was asked to stop before all trials had run.
    pub interrupted: bool,
}

/// Tries every task until it has as many attempts as asked for, and keeps what was found in attempts.jsonl.
pub async fn measure(job: MeasureJob) -> Result<MeasureEnd, PipelineError> {
    let wanted = job.loaded.config.rollout.group_size as usize;
    let mut known = read_measured(&job.tasks)?;
    known.retain(|id, row| {
        let same =
            |task: &&IndexRow| task.instance_id == *id && task.task_checksum.as_ref() == Some(&row.task_checksum);
        row.policy == job.policy
            && row.attempts + row.failed >= wanted
            && row.attempts > 0
            && job.rows.iter().any(|task| same(&task))
    });
    let open: Vec<IndexRow> = job
        .rows
        .iter()
        .filter(|row| !known.contains_key(&row.instance_id))
        .cloned()
        .collect();
    let mut end = MeasureEnd {
        tried: open.len(),
        known: known.len(),
        ..MeasureEnd::default()
    };
    if !open.is_empty() {
        let said = format!("{} {wanted}", job.policy);
        let (work, index) = work_folder(&job.tasks.join(WORK), &said, &open)?;
        let mut loaded = job.loaded;
        loaded.config.data.train = Some(index);
        let ended = Box::pin(collect(CollectJob {
            loaded,
            out: work.join("trials"),
            tasks: None,
            patches: None,
            max_failures: None,
            evaluate: false,
            check: Some(Check {
                asks_model: true,
                network: None,
            }),
            stack: job.stack,
            stop: job.stop,
            observer: job.observer,
        }))
        .await?;
        let mut rewards: BTreeMap<String, Vec<Option<f32>>> = BTreeMap::new();
        for episode in &ended.episodes {
            rewards.entry(episode.task_id.clone()).or_default().push(episode.reward);
        }
        // What is whole is kept also where it was asked to stop.
        for row in &open {
            if let Some(found) = rewards.get(&row.instance_id).filter(|found| found.len() >= wanted) {
                let sum = row.task_checksum.as_deref().unwrap_or_default();
                known.insert(
                    row.instance_id.clone(),
                    Measured::of(&row.instance_id, sum, &job.policy, found),
                );
            }
        }
        end.interrupted = ended.interrupted;
        write_measured(&job.tasks, &known)?;
        if !end.interrupted {
            fs_err::remove_dir_all(&work)?;
        }
    }
    end.without_reward = known.values().filter(|row| row.attempts == 0).count();
    Ok(end)
}
