//! Which recorded conversation a request continues, decided message by message (proxy.md §2.3).

use serde_json::Value;

use crate::prompt::{Message, Role};
use crate::trajectory::{ConversationId, NodeId, TokenId};

/// A recorded answer, by its place in `Turns`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct TurnId(usize);

/// One recorded answer and the messages that led to it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Turn {
    pub(super) parent: Option<TurnId>,
    /// What the agent added behind the parent's answer; for a first turn, everything.
    pub(super) new: Vec<Message>,
    pub(super) answer: Message,
    /// Where its tokens are, if it has any.
    pub(super) node: Option<NodeId>,
    pub(super) last_token: Option<TokenId>,
    pub(super) conversation: ConversationId,
    pub(super) call: u32,
    pub(super) digest: String,
    children: Vec<TurnId>,
}

/// One conversation of the session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Conversation {
    /// Up to the first message that is no instruction.
    pub(super) opening: Vec<Message>,
    pub(super) tools: Option<Vec<Value>>,
    /// The conversation that it goes on from under other instructions: an agent that was started again.
    pub(super) resumes: Option<ConversationId>,
}

/// All recorded answers of a session.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Turns {
    all: Vec<Turn>,
    roots: Vec<TurnId>,
    conversations: Vec<Conversation>,
}

/// Where a request belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// The answer it continues.
    pub(super) parent: Option<TurnId>,
    /// Messages that are recorded, that answer included.
    pub(super) recorded: usize,
    pub(super) conversation: ConversationId,
}

impl Turns {
    /// Finds the longest recorded continuation (the latest of equals), or else the conversation that began
    /// the same way, or else begins a new one. Other tools or instructions are another conversation.
    pub(super) fn place(&mut self, messages: &[Message], tools: Option<&[Value]>) -> Place {
        let mut best: Option<(usize, TurnId)> = None;
        let mut open: Vec<(TurnId, usize)> = self
            .roots
            .iter()
            .filter(|&&root| self.conversation_of(root).tools.as_deref() == tools)
            .map(|&root| (root, 0))
            .collect();
        while let Some((id, at)) = open.pop() {
            let turn = self.turn(id);
            let Some(end) = turn.end_in(messages, at) else { continue };
            best = best.max(Some((end, id)));
            open.extend(turn.children.iter().map(|&child| (child, end)));
        }
        if let Some((recorded, id)) = best {
            return Place {
                parent: Some(id),
                recorded,
                conversation: self.turn(id).conversation,
            };
        }
        Place {
            parent: None,
            recorded: 0,
            conversation: self.begun_with(messages, tools),
        }
    }

    fn begun_with(&mut self, messages: &[Message], tools: Option<&[Value]>) -> ConversationId {
        let opening = opening(messages);
        let same = |conversation: &Conversation| {
            conversation.tools.as_deref() == tools
                && conversation.opening.len() == opening.len()
                && conversation
                    .opening
                    .iter()
                    .zip(opening)
                    .all(|(left, right)| left.says_the_same_as(right))
        };
        let index = self.conversations.iter().position(same).unwrap_or_else(|| {
            self.conversations.push(self.beginning(messages, tools));
            self.conversations.len() - 1
        });
        ConversationId(index as u32)
    }

    /// A conversation that begins with this request.
    fn beginning(&self, messages: &[Message], tools: Option<&[Value]>) -> Conversation {
        let said = behind_instructions(messages);
        let resumed = tools.and_then(|tools| {
            let mut roots = self.roots.iter().rev();
            roots.find(|&&root| {
                let Turn { new, answer, .. } = self.turn(root);
                self.conversation_of(root).tools.as_deref() == Some(tools)
                    && answered_in(said, behind_instructions(new), answer).is_some()
            })
        });
        Conversation {
            opening: opening(messages).to_vec(),
            tools: tools.map(<[Value]>::to_vec),
            resumes: resumed.map(|&root| self.turn(root).conversation),
        }
    }

    /// Puts back a conversation that a log names, with the messages it began with. Those that began at once stand in
    /// the log in either order: one that is not named yet has a place that says nothing.
    pub(super) fn restore_conversation(&mut self, id: ConversationId, messages: &[Message], tools: Option<&[Value]>) {
        let index = id.0 as usize;
        if self.conversations.len() <= index {
            self.conversations.resize_with(index + 1, Conversation::default);
        }
        if self.conversations[index] == Conversation::default() {
            self.conversations[index] = self.beginning(messages, tools);
        }
    }

    pub(super) fn push(&mut self, turn: NewTurn) -> TurnId {
        let id = TurnId(self.all.len());
        let NewTurn {
            parent,
            new,
            answer,
            node,
            last_token,
            conversation,
            call,
            digest,
        } = turn;
        self.all.push(Turn {
            parent,
            new,
            answer,
            node,
            last_token,
            conversation,
            call,
            digest,
            children: Vec::new(),
        });
        match parent {
            Some(parent) => self.all[parent.0].children.push(id),
            None => self.roots.push(id),
        }
        id
    }

    pub(super) fn turn(&self, id: TurnId) -> &Turn {
        &self.all[id.0]
    }

    /// The turn of this call, if its answer can be continued.
    pub(super) fn of_call(&self, call: u32) -> Option<TurnId> {
        self.all.iter().rposition(|turn| turn.call == call).map(TurnId)
    }

    /// The latest answer to the identical request that nothing followed.
    pub(super) fn unanswered_repeat(&self, digest: &str) -> Option<&Turn> {
        self.all
            .iter()
            .rev()
            .find(|turn| turn.digest == digest)
            .filter(|turn| turn.children.is_empty())
    }

    /// Answers of these conversations of which no tokens are known.
    pub(super) fn without_ids(&self, main: impl Fn(ConversationId) -> bool) -> usize {
        let turns = self.all.iter();
        turns
            .filter(|turn| turn.node.is_none() && main(turn.conversation))
            .count()
    }

    pub(super) fn conversations(&self) -> &[Conversation] {
        &self.conversations
    }

    pub(super) fn conversation_of(&self, id: TurnId) -> &Conversation {
        &self.conversations[self.turn(id).conversation.0 as usize]
    }

    /// Answers to requests that offered tools.
    pub(super) fn answers_with_tools(&self) -> u32 {
        let offers = |turn: &&Turn| self.conversations[turn.conversation.0 as usize].tools.is_some();
        self.all.iter().filter(offers).count() as u32
    }

    /// The last turn of these conversations, and everything said up to it.
    pub(super) fn transcript(&self, main: impl Fn(ConversationId) -> bool) -> Vec<&Message> {
        let last = self.all.iter().rposition(|turn| main(turn.conversation)).map(TurnId);
        last.into_iter().flat_map(|last| self.chain(last)).collect()
    }

    /// Everything said up to and with this turn's answer.
    pub(super) fn chain(&self, last: TurnId) -> impl Iterator<Item = &Message> {
        let mut chain: Vec<TurnId> = std::iter::successors(Some(last), |&id| self.turn(id).parent).collect();
        chain.reverse();
        chain
            .into_iter()
            .flat_map(|id| self.turn(id).new.iter().chain([&self.turn(id).answer]))
    }
}

/// A turn to be recorded; see `Turn`.
pub(super) struct NewTurn {
    pub(super) parent: Option<TurnId>,
    pub(super) new: Vec<Message>,
    pub(super) answer: Message,
    pub(super) node: Option<NodeId>,
    pub(super) last_token: Option<TokenId>,
    pub(super) conversation: ConversationId,
    pub(super) call: u32,
    pub(super) digest: String,
}

impl Turn {
    /// Where this turn's answer ends in `messages`, if they go on from `at` as it does.
    fn end_in(&self, messages: &[Message], at: usize) -> Option<usize> {
        let end = answered_in(messages.get(at..)?, &self.new, &self.answer)?;
        Some(at + end)
    }
}

/// Where `answer` ends in `said`, if that begins with `new` and it.
fn answered_in(said: &[Message], new: &[Message], answer: &Message) -> Option<usize> {
    let recorded = new.iter().chain([answer]);
    let same = said.len() > new.len()
        && said
            .iter()
            .zip(recorded)
            .all(|(left, right)| left.says_the_same_as(right));
    same.then_some(new.len() + 1)
}

fn opening(messages: &[Message]) -> &[Message] {
    &messages[..messages.len().min(instructions(messages) + 1)]
}

fn behind_instructions(messages: &[Message]) -> &[Message] {
    &messages[instructions(messages)..]
}

/// How many instructions stand in front of everything else.
fn instructions(messages: &[Message]) -> usize {
    let end = messages.iter().position(|message| message.role != Role::System);
    end.unwrap_or(messages.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conversations_are_put_back_in_whatever_order_their_calls_were_logged() {
        let title = [Message::text(Role::User, "a title, please")];
        let main = [Message::text(Role::User, "mend it")];
        let tools = [serde_json::json!({"type": "function"})];
        let mut live = Turns::default();
        let first = live.place(&title, None).conversation;
        let second = live.place(&main, Some(&tools)).conversation;
        let mut restored = Turns::default();
        restored.restore_conversation(second, &main, Some(&tools));
        restored.restore_conversation(first, &title, None);
        assert_eq!(restored, live);
    }
}
