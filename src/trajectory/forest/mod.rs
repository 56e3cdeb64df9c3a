//! The call forest: every model call of one session, as tokens, and its export to segments.
//!
//! A node is one call's sampled output; its path is everything from the root to the end of that output,
//! exactly as an engine saw it. A call whose prompt begins with a node's path becomes that node's child
//! and stores only what it adds, so a conversation of any length takes linear space. The forest compares
//! tokens and nothing else: it knows no text, no messages and no template.

mod audit;
mod export;
mod ledger;
mod node;
#[cfg(test)]
mod routing_tests;
#[cfg(test)]
mod tests;

pub use export::{Export, ExportOptions, SegmentBuilder, TrainScope};
pub use ledger::Ledger;
pub use node::{CallNode, CallRecord, ConversationId, NodeId};

use super::TokenId;

/// Why a call cannot be recorded or rolled back.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ForestError {
    /// Log-probs are never padded or cut.
    #[error("{logprobs} log-probs came with {output} sampled tokens; a call with both must have as many of each")]
    LogprobCount {
        /// Log-probs given.
        logprobs: usize,
        /// Tokens sampled.
        output: usize,
    },
    /// The version spans leave the output, overlap or are out of order.
    #[error("version spans do not lie in order within {output} sampled tokens")]
    VersionSpans {
        /// Tokens sampled.
        output: usize,
    },
    /// Rows of experts overlap, are torn, or leave the call.
    #[error("rows of experts do not lie in order within {total} tokens")]
    Routing {
        /// Prompt and output together.
        total: usize,
    },
    /// There is no such node.
    #[error("no call {0:?} in this session")]
    UnknownNode(NodeId),
    /// Only a last answer can be rolled back.
    #[error("call {0:?} was continued and cannot be rolled back")]
    Continued(NodeId),
}

/// The calls of one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct CallForest {
    nodes: Vec<CallNode>,
    roots: Vec<NodeId>,
    empty_calls: u32,
}

impl CallForest {
    /// Records one call and says which node it became; `None` for a call that sampled nothing, which is
    /// counted and leaves no node.
    ///
    /// The parent is the deepest node, anywhere in the session, whose path is a prefix of the prompt (the
    /// latest of equals). What was cut by an abort or an error is no parent: nobody saw it as an answer.
    pub fn record(&mut self, call: CallRecord<'_>) -> Result<Option<NodeId>, ForestError> {
        call.check()?;
        if call.output.is_empty() {
            self.empty_calls += 1;
            return Ok(None);
        }
        let parent = self.parent_of(call.prompt);
        let inherited = parent.map_or(0, |id| self.node(id).path_len);
        let id = NodeId(self.nodes.len() as u32);
        self.nodes.push(CallNode::new(call, parent, inherited));
        match parent {
            Some(parent) => self.nodes[parent.index()].children.push(id),
            None => self.roots.push(id),
        }
        Ok(Some(id))
    }

    /// The node that a call with this prompt would extend.
    pub fn parent_of(&self, prompt: &[TokenId]) -> Option<NodeId> {
        let mut best: Option<NodeId> = None;
        let mut open: Vec<(NodeId, usize)> = self.roots.iter().map(|&root| (root, 0)).collect();
        while let Some((id, at)) = open.pop() {
            let node = self.node(id);
            if !node.finish_is_an_end() || !node.matches(&prompt[at..]) {
                continue;
            }
            let better = best.is_none_or(|best| {
                let best_node = self.node(best);
                (node.path_len, id) > (best_node.path_len, best)
            });
            if better {
                best = Some(id);
            }
            open.extend(node.children.iter().map(|&child| (child, node.path_len)));
        }
        best
    }

    /// Marks an answer as replaced by a later one. Call it once the replacement has been recorded.
    pub fn roll_back(&mut self, id: NodeId) -> Result<(), ForestError> {
        let node = self.nodes.get_mut(id.index()).ok_or(ForestError::UnknownNode(id))?;
        if !node.children.is_empty() {
            return Err(ForestError::Continued(id));
        }
        node.discarded = true;
        Ok(())
    }

    /// Notes whether its client was there for the end of an answer; tells whether that was not known before.
    ///
    /// # Panics
    /// If the id is another forest's.
    pub fn set_unseen(&mut self, id: NodeId, unseen: bool) -> bool {
        std::mem::replace(&mut self.nodes[id.index()].unseen, unseen) != unseen
    }

    /// Everything from the root to the end of this node's output.
    pub fn path(&self, id: NodeId) -> Vec<TokenId> {
        let mut chain = self.chain(id);
        chain.reverse();
        let mut tokens = Vec::with_capacity(self.node(id).path_len);
        for id in chain {
            let node = self.node(id);
            tokens.extend_from_slice(&node.context);
            tokens.extend_from_slice(&node.output);
        }
        tokens
    }

    /// A recorded call.
    ///
    /// # Panics
    /// If the id is another forest's.
    pub fn node(&self, id: NodeId) -> &CallNode {
        &self.nodes[id.index()]
    }

    /// All calls in the order in which they were recorded.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (NodeId, &CallNode)> {
        self.nodes
            .iter()
            .enumerate()
            .map(|(index, node)| (NodeId(index as u32), node))
    }

    /// Tokens sampled in all calls: what the engine's own usage must add up to.
    pub fn sampled_tokens(&self) -> u64 {
        self.nodes.iter().map(|node| node.output.len() as u64).sum()
    }

    /// Calls that sampled nothing.
    pub fn empty_calls(&self) -> u32 {
        self.empty_calls
    }

    /// Tokens held in memory, context and output together.
    pub fn stored_tokens(&self) -> usize {
        self.nodes
            .iter()
            .map(|node| node.context.len() + node.output.len() + node.tail.len())
            .sum()
    }

    /// Whether two calls had the same prompt.
    fn same_prompt(&self, left: NodeId, right: NodeId) -> bool {
        let (left_node, right_node) = (self.node(left), self.node(right));
        if left_node.parent == right_node.parent {
            return left_node.context == right_node.context;
        }
        let prompt = |id: NodeId| {
            let mut path = self.path(id);
            path.truncate(path.len() - self.node(id).output.len());
            path
        };
        prompt(left) == prompt(right)
    }

    /// The node and its ancestors, itself first.
    fn chain(&self, id: NodeId) -> Vec<NodeId> {
        std::iter::successors(Some(id), |&id| self.node(id).parent).collect()
    }
}
