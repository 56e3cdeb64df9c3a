//! What a step samples: rows that are durable already, and groups that give no signal.

use std::collections::HashMap;

use super::PipelineError;
use super::run::OpenRun;
use crate::shard::ShardReader;
use crate::trajectory::{Episode, EpisodeId};

/// What a step samples.
pub(super) struct Sampled {
    pub episodes: Vec<Episode>,
    /// Of groups that `dynamic_sampling` replaced.
    pub replaced: Vec<EpisodeId>,
    /// Tasks drawn, this step's included.
    pub cursor: u64,
}

/// Episodes of this step that an earlier start made durable.
pub(super) async fn durable_episodes(run: &OpenRun, step: u32) -> Result<HashMap<EpisodeId, Episode>, PipelineError> {
    let folder = run.dir.rollouts().join(format!("{step:06}"));
    if !folder.is_dir() {
        return Ok(HashMap::new());
    }
    let episodes = ShardReader::open(&[folder])?.episodes(None).await?;
    Ok(episodes
        .into_iter()
        .map(|episode| (episode.episode_id.clone(), episode))
        .collect())
}

/// Takes out the episodes of at most `most` groups in which all valid rewards are equal, and names them.
pub(super) fn take_silent_groups(episodes: &mut Vec<Episode>, most: usize) -> Vec<EpisodeId> {
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
    Vec::into_iter(out).map(|episode| episode.episode_id).collect()
}
