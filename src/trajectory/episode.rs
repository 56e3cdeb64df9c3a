//! An episode: everything known about one trial once it has ended.

use std::collections::BTreeMap;

use jiff::Timestamp;

use super::{EpisodeId, FinishReason, GroupId, Outcome, Segment, TrialId};

/// What the log-probs were taken under.
#[derive(Debug, Clone, Copy, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct SamplingParams {
    /// Softmax temperature; 0 is greedy.
    pub temperature: f32,
    /// Nucleus; 1.0 is off.
    pub top_p: f32,
    /// Kept candidates; -1 is off.
    pub top_k: i32,
}

/// Where the time of a trial went, in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timings {
    /// Starting the sandbox.
    pub env_setup_s: f32,
    /// Preparing the agent in it.
    pub agent_setup_s: f32,
    /// The agent's run.
    pub agent_s: f32,
    /// Waiting for the policy, within `agent_s`.
    pub model_s: f32,
    /// Tools, within `agent_s`.
    pub tool_s: f32,
    /// The verifier.
    pub verify_s: f32,
    /// From start to end.
    pub total_s: f32,
    /// 90th percentile of the time between two model calls.
    pub tool_gap_p90_s: f32,
    /// Waiting for a free worker or for admission.
    pub queue_wait_s: f32,
}

/// What became of the tokens that were sampled (proxy.md §4 and §6).
#[derive(Debug, Clone, PartialEq, Default)]
pub struct CaptureAudit {
    /// Tokens that the engine sampled for this session.
    pub sampled_tokens: u64,
    /// Trained sampled tokens / sampled tokens; 1.0 where nothing was sampled.
    pub delivered_fraction: f32,
    /// Calls whose history was rewritten by the agent.
    pub n_rewrites: u32,
    /// Generations rolled back because the agent asked for another answer.
    pub n_discarded: u32,
    /// Identical prompts of which none was continued: copies beyond the first.
    pub n_unresolved_retries: u32,
    /// Model calls.
    pub num_calls: u32,
    /// Assistant turns of the main conversation.
    pub num_turns: u32,
    /// Tool calls in them.
    pub num_tool_calls: u32,
    /// Attempts preempted by a newer one.
    pub num_preempted: u32,
    /// Generations aborted.
    pub num_aborts: u32,
    /// Malformed tool calls.
    pub num_parse_errors: u32,
    /// How the last generation ended.
    pub finish_reason: Option<FinishReason>,
}

/// One trial, ended: identity, outcome, reward, what was sampled and what it cost.
#[derive(Debug, Clone, PartialEq)]
pub struct Episode {
    /// The run.
    pub run_id: String,
    /// Trainer step it was sampled for.
    pub step: i32,
    /// The task.
    pub task_id: String,
    /// Where the task came from (one validation series each).
    pub data_source: String,
    /// Its group: task × step.
    pub group_id: GroupId,
    /// Its id, shared by all its segments.
    pub episode_id: EpisodeId,
    /// The attempt that counted.
    pub trial_id: TrialId,
    /// Readable name of the trial, also its folder's.
    pub trial_name: String,
    /// 0 for the first try, counted up by infrastructure retries.
    pub attempt: i32,
    /// Scaffold.
    pub agent: String,
    /// Its version.
    pub agent_version: String,
    /// Served model name.
    pub model: String,
    /// Tool-call parser.
    pub tool_parser: String,
    /// API dialect spoken by the agent.
    pub endpoint: String,
    /// What was sampled.
    pub segments: Vec<Segment>,
    /// `None` where the outcome has no valid reward.
    pub reward: Option<f32>,
    /// The verifier's named rewards.
    pub rewards: BTreeMap<String, f64>,
    /// What the log-probs were taken under.
    pub sampling: SamplingParams,
    /// How it ended.
    pub outcome: Outcome,
    /// What went wrong, where the outcome is not the agent's doing. For people: shards do not hold it.
    pub failure: Option<String>,
    /// Why it is left out of training, if it is.
    pub drop_reason: Option<String>,
    /// What became of its tokens.
    pub audit: CaptureAudit,
    /// Evidence of reward hacking.
    pub hack_flags: Vec<String>,
    /// When it began.
    pub started_at: Timestamp,
    /// Where its time went.
    pub timings: Timings,
    /// Transcript for people, as JSON text.
    pub messages: String,
}
