//! Which account each call's tokens stand in, and what is counted on the way.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{CallForest, ConversationId, ExportOptions, Ledger, NodeId, TrainScope};
use crate::trajectory::CaptureAudit;

/// What becomes of one call's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Account {
    Trained,
    RolledBack,
    SideConversation,
    Aborted,
    Duplicate,
    Unseen,
}

pub(super) struct Accounts {
    pub(super) of: Vec<Account>,
    unresolved_retries: u32,
}

impl Accounts {
    pub(super) fn settle(forest: &CallForest, options: &ExportOptions<'_>) -> Self {
        let mut of: Vec<Account> = forest
            .nodes()
            .map(|(_, node)| {
                let side = options.scope == TrainScope::Main && !options.main.contains(&node.conversation);
                match node.finish_is_an_end() {
                    _ if node.discarded => Account::RolledBack,
                    false => Account::Aborted,
                    true if node.is_unseen() => Account::Unseen,
                    true if side => Account::SideConversation,
                    true => Account::Trained,
                }
            })
            .collect();
        let mut unresolved_retries = 0;
        for siblings in identical_prompts(forest) {
            let candidates: Vec<NodeId> = siblings
                .into_iter()
                .filter(|id| of[id.index()] == Account::Trained)
                .collect();
            let continued = candidates.iter().any(|&id| forest.node(id).is_continued());
            let kept = |id: NodeId| {
                if continued {
                    forest.node(id).is_continued()
                } else {
                    Some(&id) == candidates.last()
                }
            };
            for &id in candidates.iter().filter(|&&id| !kept(id)) {
                of[id.index()] = Account::Duplicate;
                unresolved_retries += u32::from(!continued);
            }
        }
        Self { of, unresolved_retries }
    }

    pub(super) fn trains(&self, id: NodeId) -> bool {
        self.of[id.index()] == Account::Trained
    }

    pub(super) fn ledger(&self, forest: &CallForest) -> Ledger {
        let mut ledger = Ledger::default();
        for (id, node) in forest.nodes() {
            let tokens = node.output.len() as u64;
            *match self.of[id.index()] {
                Account::Trained => &mut ledger.trained,
                Account::RolledBack => ledger.dropped.entry(Ledger::ROLLED_BACK.to_owned()).or_default(),
                Account::SideConversation => &mut ledger.side_conversation,
                Account::Aborted => &mut ledger.aborted,
                Account::Duplicate => &mut ledger.duplicate,
                Account::Unseen => ledger.dropped.entry(Ledger::UNSEEN.to_owned()).or_default(),
            } += tokens;
        }
        ledger
    }

    pub(super) fn audit(&self, forest: &CallForest, main: &HashSet<ConversationId>) -> CaptureAudit {
        let count = |account| self.of.iter().filter(|&&other| other == account).count() as u32;
        let sampled_tokens = forest.sampled_tokens();
        let trained = self.ledger(forest).trained;
        CaptureAudit {
            sampled_tokens,
            delivered_fraction: if sampled_tokens == 0 {
                1.0
            } else {
                (trained as f64 / sampled_tokens as f64) as f32
            },
            n_rewrites: rewrites(forest),
            n_discarded: count(Account::RolledBack),
            n_unresolved_retries: self.unresolved_retries,
            num_calls: forest.nodes.len() as u32 + forest.empty_calls,
            num_turns: forest
                .nodes()
                .filter(|(id, node)| self.trains(*id) && main.contains(&node.conversation))
                .count() as u32,
            num_aborts: count(Account::Aborted),
            finish_reason: forest
                .nodes()
                .filter(|(_, node)| main.contains(&node.conversation))
                .last()
                .map(|(_, node)| node.finish),
            ..CaptureAudit::default()
        }
    }
}

/// Calls of identical prompts. They need not have the same parent: a path that ends within the prompt may
/// have been recorded between them.
fn identical_prompts(forest: &CallForest) -> Vec<Vec<NodeId>> {
    let mut alike: BTreeMap<(usize, [u32; 4]), Vec<Vec<NodeId>>> = BTreeMap::new();
    for (id, node) in forest.nodes() {
        let prompt_len = node.path_len - node.output.len();
        let groups = alike.entry((prompt_len, node.prompt_end)).or_default();
        match groups.iter_mut().find(|group| forest.same_prompt(group[0], id)) {
            Some(group) => group.push(id),
            None => groups.push(vec![id]),
        }
    }
    alike.into_values().flatten().collect()
}

/// Calls that continue their conversation from an earlier point than its end, or from nowhere: the agent
/// rewrote its history.
fn rewrites(forest: &CallForest) -> u32 {
    let mut beginnings: HashMap<ConversationId, &[u32]> = HashMap::new();
    let mut first_child: HashMap<NodeId, &[u32]> = HashMap::new();
    let mut rewrites = 0;
    for (_, node) in forest.nodes() {
        let elder = match node.parent {
            Some(parent) => *first_child.entry(parent).or_insert(&node.context),
            None => *beginnings.entry(node.conversation).or_insert(&node.context),
        };
        rewrites += u32::from(elder != node.context);
    }
    rewrites
}
