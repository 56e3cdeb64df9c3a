//! What a session has recorded: tokens in the forest, messages in the turns. Built live, or from the log.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use serde_json::Value;

use super::call_log::{Begin, End};
use super::turns::{NewTurn, Place, TurnId, Turns};
use super::{ProxyError, SessionCapture};
use crate::config::{BuilderName, CaptureScope};
use crate::prompt::{Message, PromptBuilder, Role};
use crate::trajectory::forest::{ExportOptions, SegmentBuilder, TrainScope};
use crate::trajectory::{CallForest, CallRecord, ConversationId, FinishReason, Ledger, NodeId, TokenId};

/// The account of tokens that an engine sampled before it knew of the stop text in front of them.
const BEHIND_STOP_TEXT: &str = "behind_stop_text";

/// Everything recorded in one session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Recording {
    forest: CallForest,
    turns: Turns,
    /// The node of each call, by the call's number.
    nodes: Vec<(u32, NodeId)>,
    tool_calls: u32,
    parse_errors: u32,
    preempted: u32,
    /// Tokens sampled behind stop texts.
    beyond: u64,
    /// Of a hosted API: how the last call ended, and the tokens that it counted.
    without_ids: Option<(FinishReason, u64)>,
    /// The dialect of each conversation's first answer.
    endpoints: BTreeMap<ConversationId, Cow<'static, str>>,
    /// Answers without a tool call, in sequence, of each conversation that offers tools.
    without_tool: HashMap<ConversationId, u32>,
}

impl Recording {
    /// Where a request belongs; see `Turns::place`.
    pub(super) fn place(&mut self, messages: &[Message], tools: Option<&[Value]>) -> Place {
        self.turns.place(messages, tools)
    }

    /// What a continuation needs of the answer it continues: its tokens from the root on, and what it was.
    pub(super) fn recorded(&self, turn: TurnId) -> Option<Recorded> {
        let turn_data = self.turns.turn(turn);
        let opening = &self.turns.conversation_of(turn).opening;
        Some(Recorded {
            path: self.forest.path(turn_data.node?),
            last_token: turn_data.last_token,
            answer: turn_data.answer.clone(),
            has_system: opening.first().is_some_and(|message| message.role == Role::System),
        })
    }

    /// The number of the call that a turn came from.
    pub(super) fn call_of(&self, turn: TurnId) -> u32 {
        self.turns.turn(turn).call
    }

    /// Everything said up to and with a call's answer; none if it has no answer to build upon.
    pub(super) fn said_up_to(&self, call: u32) -> Option<Vec<Message>> {
        let turn = self.turns.of_call(call)?;
        Some(self.turns.chain(turn).cloned().collect())
    }

    /// What a logged call's request said, history included, and its tools.
    pub(super) fn request_of(&self, begin: &Begin) -> Option<(Vec<Message>, Option<Vec<Value>>)> {
        let (mut messages, tools) = match begin.parent {
            None => (Vec::new(), begin.tools.clone()),
            Some(parent) => {
                let turn = self.turns.of_call(parent)?;
                (
                    self.turns.chain(turn).cloned().collect(),
                    self.turns.conversation_of(turn).tools.clone(),
                )
            }
        };
        messages.extend_from_slice(&begin.new);
        Some((messages, tools))
    }

    /// Answers without a tool call, in sequence, of a conversation that offers tools.
    pub(super) fn answers_without_tool(&self, conversation: ConversationId) -> u32 {
        let offers = |id: ConversationId| self.turns.conversations().get(id.0 as usize)?.tools.as_ref();
        match offers(conversation) {
            Some(_) => self.without_tool.get(&conversation).copied().unwrap_or_default(),
            None => 0,
        }
    }

    /// The call whose answer an identical request would replace.
    pub(super) fn repeated_call(&self, digest: &str) -> Option<u32> {
        self.turns.unanswered_repeat(digest).map(|turn| turn.call)
    }

    /// The call whose path the prompt begins with, and the length of that path: the log holds only the rest.
    pub(super) fn base(&self, prompt: &[TokenId]) -> (Option<u32>, usize) {
        let node = self.forest.parent_of(prompt);
        let call = node
            .and_then(|node| self.nodes.iter().find(|(_, other)| *other == node))
            .map(|(call, _)| *call);
        match (call, node) {
            (Some(call), Some(node)) => (Some(call), self.forest.node(node).path_len()),
            _ => (None, 0),
        }
    }

    /// The prompt that a log line stands for.
    pub(super) fn prompt(&self, begin: &Begin) -> Option<Vec<TokenId>> {
        let mut prompt = match begin.base {
            None => Vec::new(),
            Some(base) => self.forest.path(self.node_of(base)?),
        };
        (prompt.len() == begin.base_len).then(|| prompt.extend_from_slice(&begin.ids))?;
        Some(prompt)
    }

    /// Puts back what `place` did for a call that a log names.
    pub(super) fn restore_conversation(&mut self, begin: &Begin) {
        if begin.parent.is_none() {
            self.turns
                .restore_conversation(begin.conversation, &begin.new, begin.tools.as_deref());
        }
    }

    /// Records one ended call.
    pub(super) fn record(&mut self, prompt: &[TokenId], begin: Begin, end: &End) -> Result<(), ProxyError> {
        let node = self.forest.record(CallRecord {
            prompt,
            output: &end.ids,
            logprobs: end.logprobs.as_deref(),
            versions: &end.versions,
            routing: &end.routing,
            tail: &end.tail,
            finish: end.finish,
            conversation: begin.conversation,
        })?;
        self.tool_calls += end.answer.tool_calls.len() as u32;
        self.endpoints
            .entry(begin.conversation)
            .or_insert_with(|| begin.endpoint.clone());
        let streak = self.without_tool.entry(begin.conversation).or_default();
        *streak = if end.answer.tool_calls.is_empty() {
            *streak + 1
        } else {
            0
        };
        self.parse_errors += end.parse_errors;
        self.beyond += u64::from(end.beyond);
        if end.without_ids {
            let (last, tokens) = self.without_ids.get_or_insert((end.finish, 0));
            *last = end.finish;
            *tokens += u64::from(end.usage.completion);
            if !matches!(end.finish, FinishReason::Stop | FinishReason::Length) {
                return Ok(());
            }
        } else if let Some(node) = node {
            self.nodes.push((begin.call, node));
            if !self.forest.node(node).finish_is_an_end() {
                return Ok(());
            }
        } else {
            return Ok(());
        }
        if let Some(replaced) = begin.replaces.and_then(|call| self.node_of(call))
            && !self.forest.node(replaced).is_continued()
        {
            self.forest.roll_back(replaced)?;
        }
        self.turns.push(NewTurn {
            parent: begin.parent.and_then(|call| self.turns.of_call(call)),
            new: begin.new,
            answer: end.answer.clone(),
            node,
            last_token: end.ids.last().copied(),
            conversation: begin.conversation,
            call: begin.call,
            digest: begin.digest,
        });
        Ok(())
    }

    /// Tokens held for all calls together.
    #[cfg(test)]
    pub(super) fn stored_tokens(&self) -> usize {
        self.forest.stored_tokens()
    }

    /// Notes whether a client was there for the end of a call's answer; tells whether that was not known before. What
    /// nobody saw, and nothing goes on from, had no part in what the agent did.
    pub(super) fn note_seen(&mut self, call: u32, seen: bool) -> bool {
        let node = self.node_of(call);
        node.is_some_and(|node| self.forest.set_unseen(node, !seen))
    }

    /// Takes over what another recording of the same calls knows of who saw their ends.
    pub(super) fn note_seen_as(&mut self, other: &Self) {
        for &(call, node) in &other.nodes {
            self.note_seen(call, !other.forest.node(node).is_unseen());
        }
    }

    /// Counts an attempt that a newer one of the same request displaced.
    pub(super) fn count_preempted(&mut self) {
        self.preempted += 1;
    }

    /// Segments, audit, ledger and transcript; what only a live session knows is left at its default.
    pub(super) fn capture(&self, scope: CaptureScope, builder: BuilderName) -> SessionCapture {
        let main = self.main_conversations();
        let export = self.forest.export(&ExportOptions {
            scope: match scope {
                CaptureScope::Main => TrainScope::Main,
                CaptureScope::All => TrainScope::All,
            },
            builder: match builder {
                BuilderName::Segments => SegmentBuilder::Segments,
                BuilderName::PerCall => SegmentBuilder::PerCall,
            },
            main: &main,
        });
        let mut audit = export.audit;
        audit.num_tool_calls = self.tool_calls;
        audit.num_parse_errors = self.parse_errors;
        audit.num_preempted = self.preempted;
        let mut ledger = export.ledger;
        if self.beyond > 0 {
            ledger.dropped.insert(BEHIND_STOP_TEXT.to_owned(), self.beyond);
            audit.sampled_tokens += self.beyond;
            audit.delivered_fraction = (ledger.trained as f64 / audit.sampled_tokens as f64) as f32;
        }
        if let Some((finish, tokens)) = self.without_ids {
            ledger.dropped.insert(Ledger::NO_TOKEN_IDS.to_owned(), tokens);
            audit.sampled_tokens += tokens;
            audit.delivered_fraction = 0.0;
            audit.num_turns += self.turns.without_ids(|conversation| main.contains(&conversation)) as u32;
            audit.finish_reason = Some(finish);
        }
        let transcript = self.turns.transcript(|conversation| main.contains(&conversation));
        SessionCapture {
            segments: export.segments,
            audit,
            ledger,
            endpoint: self
                .endpoints
                .iter()
                .find(|(conversation, _)| main.contains(conversation))
                .map(|(_, endpoint)| endpoint.to_string())
                .unwrap_or_default(),
            messages: serde_json::to_string(&transcript).unwrap_or_default(),
            answers_with_tools: self.turns.answers_with_tools(),
            without_ids: self.without_ids.is_some(),
            ..SessionCapture::default()
        }
    }

    /// The agent's own conversations: those with the instructions and tools of the first that has tools, or
    /// of the very first where none has any. Title generators and the like have no tools; sub-agents have
    /// other instructions; a compacted history has the same of both, and one that is resumed with other instructions
    /// begins with what was said before.
    fn main_conversations(&self) -> HashSet<ConversationId> {
        let all = self.turns.conversations();
        let Some(first) = all
            .iter()
            .find(|conversation| conversation.tools.is_some())
            .or(all.first())
        else {
            return HashSet::new();
        };
        let instructions = |opening: &[Message]| -> Vec<Message> {
            opening
                .iter()
                .filter(|message| message.role == Role::System)
                .cloned()
                .collect()
        };
        let wanted = instructions(&first.opening);
        let mut main = HashSet::new();
        for (index, conversation) in all.iter().enumerate() {
            let own = instructions(&conversation.opening);
            let alike = conversation.tools == first.tools
                && own.len() == wanted.len()
                && own
                    .iter()
                    .zip(&wanted)
                    .all(|(left, right)| left.says_the_same_as(right));
            if alike || conversation.resumes.is_some_and(|resumed| main.contains(&resumed)) {
                main.insert(ConversationId(index as u32));
            }
        }
        main
    }

    fn node_of(&self, call: u32) -> Option<NodeId> {
        self.nodes
            .iter()
            .rev()
            .find(|(other, _)| *other == call)
            .map(|(_, node)| *node)
    }
}

/// What is known of an answer that a request continues.
pub(super) struct Recorded {
    pub(super) path: Vec<TokenId>,
    pub(super) last_token: Option<TokenId>,
    pub(super) answer: Message,
    pub(super) has_system: bool,
}

impl Recorded {
    /// Recorded tokens and the rendered delta; `None` where this template cannot do it.
    pub(super) fn prompt(
        mut self,
        builder: &PromptBuilder,
        new: &[Message],
        tools: Option<&[Value]>,
    ) -> Option<Vec<TokenId>> {
        let Self {
            last_token,
            ref answer,
            has_system,
            ..
        } = self;
        let delta = builder
            .delta(crate::prompt::Continuation {
                last_token,
                answer,
                has_system,
                new,
                tools,
            })
            .ok()?;
        self.path.extend(delta);
        Some(self.path)
    }
}
