//! What was sampled: tokens, masks, log-probs, segments, episodes, outcomes.
//!
//! Plain data and the arithmetic over it, the call forest included. This module never re-tokenises
//! text: every id in it is one that an engine saw or sampled.

mod episode;
#[cfg(test)]
pub(crate) mod fixture;
pub mod forest;
mod identity;
mod outcome;
mod routing;
mod segment;

pub use episode::{CaptureAudit, Episode, SamplingParams, Timings};
pub use forest::{CallForest, CallRecord, ConversationId, Ledger, NodeId};
pub use identity::{EpisodeId, GroupId, PolicyVersion, SessionKey, TokenId, TrialId, VersionParseError};
pub use outcome::{FinishReason, Outcome};
pub use routing::{Experts, RoutedRows};
pub use segment::{Segment, VersionSpan, is_logprob};
