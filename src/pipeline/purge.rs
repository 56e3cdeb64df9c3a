//! Results that failed by infrastructure, taken back so that the same command runs their trials again.
//!
//! Nothing is deleted: a manifest in the rollout's folder names what does not count any more.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::Path;

use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::PipelineError;
use crate::run_dir::RunDir;
use crate::shard::ShardReader;
use crate::task::write_atomically;
use crate::trajectory::{Episode, Outcome};

/// Version of purged.jsonl.
const VERSION: u32 = 1;
const FILE: &str = "purged.jsonl";

/// A line of purged.jsonl: a result that does not count any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Purged {
    /// Version of the line.
    pub v: u32,
    /// The trial, by the name of its folder.
    pub trial: String,
    /// What shards call it.
    pub episode_id: String,
    /// Which attempt at it.
    pub attempt: i32,
    /// The task.
    pub instance_id: String,
    /// How it ended.
    pub outcome: String,
    /// When it was taken back.
    #[schemars(with = "String")]
    pub at: Timestamp,
}

/// Whether a trial failed by what the agent has no part in.
fn is_infrastructure(episode: &Episode) -> bool {
    matches!(
        episode.outcome,
        Outcome::EnvSetupFailed | Outcome::InfraError | Outcome::VerifierError | Outcome::Cancelled
    )
}

/// Finds what failed by infrastructure and counts; with `confirmed` it does not count from now on.
pub async fn purge(out: &Path, confirmed: bool) -> Result<Vec<Purged>, PipelineError> {
    if !out.is_dir() {
        return Err(PipelineError::Nothing(format!("no rollout in {}", out.display())));
    }
    let dir = RunDir::create(out)?;
    let _lock = dir.lock()?;
    if !dir.rollouts().is_dir() {
        return Err(PipelineError::Nothing(format!(
            "no shard in {}",
            dir.rollouts().display()
        )));
    }
    let known = read(out)?;
    let ids: BTreeSet<(&str, i32)> = known.iter().map(|row| (row.episode_id.as_str(), row.attempt)).collect();
    let episodes = ShardReader::open(&[dir.rollouts()])?.episodes(None).await?;
    let found: Vec<Purged> = episodes
        .iter()
        .filter(|episode| {
            is_infrastructure(episode) && !ids.contains(&(episode.episode_id.0.as_str(), episode.attempt))
        })
        .map(|episode| Purged {
            v: VERSION,
            trial: episode.trial_name.clone(),
            episode_id: episode.episode_id.0.clone(),
            attempt: episode.attempt,
            instance_id: episode.task_id.clone(),
            outcome: episode.outcome.name().to_owned(),
            at: Timestamp::now(),
        })
        .collect();
    if confirmed && !found.is_empty() {
        write_atomically(&out.join(FILE), |file| {
            for row in known.iter().chain(&found) {
                let line = serde_json::to_string(row).map_err(std::io::Error::from)?;
                writeln!(file, "{line}")?;
            }
            Ok::<_, PipelineError>(())
        })?;
    }
    Ok(found)
}

/// What was taken back of a rollout.
pub(super) fn read(out: &Path) -> Result<Vec<Purged>, PipelineError> {
    let path = out.join(FILE);
    let text = match fs_err::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    let row = |(at, line): (usize, &str)| {
        serde_json::from_str(line)
            .map_err(|error| PipelineError::Config(format!("{}:{}: {error}", path.display(), at + 1)))
    };
    text.lines().enumerate().map(row).collect()
}
