//! What the crate's tests make their episodes from: one in which nothing happened.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{CaptureAudit, Episode, EpisodeId, GroupId, Outcome, SamplingParams, Timings, TrialId};

/// Completed, ungraded, nothing sampled; its trial is named after it.
pub(crate) fn episode(id: &str) -> Episode {
    Episode {
        run_id: "run".to_owned(),
        step: 1,
        task_id: "t".to_owned(),
        data_source: "set/source".to_owned(),
        group_id: GroupId("t@1".to_owned()),
        episode_id: EpisodeId(id.to_owned()),
        trial_id: TrialId(id.to_owned()),
        trial_name: id.to_owned(),
        attempt: 0,
        agent: "builtin".to_owned(),
        agent_version: "1".to_owned(),
        model: "policy".to_owned(),
        tool_parser: "hermes".to_owned(),
        endpoint: "openai_chat_completions".to_owned(),
        segments: Vec::new(),
        reward: None,
        rewards: BTreeMap::new(),
        sampling: SamplingParams {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
        },
        outcome: Outcome::Completed,
        failure: None,
        drop_reason: None,
        audit: CaptureAudit::default(),
        hack_flags: Vec::new(),
        started_at: Timestamp::UNIX_EPOCH,
        timings: Timings::default(),
        messages: "[]".to_owned(),
    }
}
