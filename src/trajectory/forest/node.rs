//! One recorded call.

use serde::{Deserialize, Serialize};

use super::ForestError;
use crate::trajectory::{FinishReason, RoutedRows, TokenId, VersionSpan};

/// A call of one forest, counted from 0 in the order of recording.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeId(pub(super) u32);

impl NodeId {
    pub(super) fn index(self) -> usize {
        self.0 as usize
    }
}

/// One conversation of a session: the agent's own, a sub-agent's, a title generator's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ConversationId(pub u32);

/// One call, as it is handed in.
#[derive(Debug, Clone, Copy)]
pub struct CallRecord<'a> {
    /// Everything the engine saw before the first sampled token.
    pub prompt: &'a [TokenId],
    /// What it sampled.
    pub output: &'a [TokenId],
    /// Log-probs at sampling temperature, one a sampled token; `None` if the engine gave none.
    pub logprobs: Option<&'a [f32]>,
    /// Which weights sampled which positions of `output`.
    pub versions: &'a [VersionSpan],
    /// Experts that positions went through, prompt and output counted together; in order.
    pub routing: &'a [RoutedRows],
    /// What the template emits after the end of the answer.
    pub tail: &'a [TokenId],
    /// How it ended.
    pub finish: FinishReason,
    /// The conversation it belongs to.
    pub conversation: ConversationId,
}

impl CallRecord<'_> {
    pub(super) fn check(&self) -> Result<(), ForestError> {
        let output = self.output.len();
        if let Some(logprobs) = self.logprobs
            && logprobs.len() != output
        {
            return Err(ForestError::LogprobCount {
                logprobs: logprobs.len(),
                output,
            });
        }
        let mut end = 0;
        for span in self.versions {
            if span.start < end || span.end <= span.start || span.end as usize > output {
                return Err(ForestError::VersionSpans { output });
            }
            end = span.end;
        }
        let (mut next, total) = (0, self.prompt.len() + output);
        for run in self.routing {
            let whole = run.rows.len().is_multiple_of(run.experts.row_bytes().max(1));
            if !whole || (run.start as usize) < next || run.end() > total {
                return Err(ForestError::Routing { total });
            }
            next = run.end();
        }
        Ok(())
    }
}

/// One call, as it is kept: only what it adds to its parent's path.
#[derive(Debug, Clone, PartialEq)]
pub struct CallNode {
    /// The call it extends.
    pub parent: Option<NodeId>,
    /// What its prompt has beyond the parent's path.
    pub context: Vec<TokenId>,
    /// What was sampled.
    pub output: Vec<TokenId>,
    /// One log-prob a sampled token.
    pub logprobs: Option<Vec<f32>>,
    /// Which weights sampled which positions of `output`.
    pub versions: Vec<VersionSpan>,
    /// Experts that positions of the whole path went through, as this call returned them.
    pub routing: Vec<RoutedRows>,
    /// What the template emits after the answer; part of no path, since the next prompt brings it along.
    pub tail: Vec<TokenId>,
    /// How the call ended.
    pub finish: FinishReason,
    /// The conversation it belongs to.
    pub conversation: ConversationId,
    pub(super) children: Vec<NodeId>,
    pub(super) discarded: bool,
    pub(super) unseen: bool,
    /// Length of the path, `output` included.
    pub(super) path_len: usize,
    /// Equal for equal prompts, and seldom for others: their last tokens.
    pub(super) prompt_end: [TokenId; 4],
}

impl CallNode {
    pub(super) fn new(call: CallRecord<'_>, parent: Option<NodeId>, inherited: usize) -> Self {
        Self {
            parent,
            context: call.prompt[inherited..].to_vec(),
            output: call.output.to_vec(),
            logprobs: call.logprobs.map(<[f32]>::to_vec),
            versions: call.versions.to_vec(),
            routing: call.routing.to_vec(),
            tail: call.tail.to_vec(),
            finish: call.finish,
            conversation: call.conversation,
            children: Vec::new(),
            discarded: false,
            unseen: false,
            path_len: call.prompt.len() + call.output.len(),
            prompt_end: std::array::from_fn(|back| call.prompt.iter().rev().nth(back).copied().unwrap_or_default()),
        }
    }

    /// Length of the path from the root to the end of this output.
    pub fn path_len(&self) -> usize {
        self.path_len
    }

    /// Whether an answer took its place.
    pub fn is_discarded(&self) -> bool {
        self.discarded
    }

    /// Whether nobody was there to take its end in, and nothing goes on from it either.
    pub fn is_unseen(&self) -> bool {
        self.unseen && self.children.is_empty()
    }

    /// Whether a later call begins with this one's path.
    pub fn is_continued(&self) -> bool {
        !self.children.is_empty()
    }

    /// Whether the policy or its budget ended the answer, so that it can be trained and built upon. An abort
    /// is not a stop.
    pub fn finish_is_an_end(&self) -> bool {
        matches!(self.finish, FinishReason::Stop | FinishReason::Length)
    }

    /// Whether `prompt`, from the end of the parent's path on, begins with this node's tokens.
    pub(super) fn matches(&self, prompt: &[TokenId]) -> bool {
        let split = self.context.len();
        prompt.len() >= split + self.output.len()
            && prompt[..split] == self.context[..]
            && prompt[split..split + self.output.len()] == self.output[..]
    }
}
