//! From the forest to segments: each sampled token trains once, under the context it was sampled in.

use std::collections::HashSet;

use super::audit::Accounts;
use super::{CallForest, ConversationId, Ledger, NodeId};
use crate::trajectory::{CaptureAudit, Segment, VersionSpan};

/// Which conversations train.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrainScope {
    /// The agent's main conversation.
    Main,
    /// All of them.
    All,
}

/// How calls become segments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SegmentBuilder {
    /// One segment for each unforked stretch; where the forest forks, the shared part trains in the branch
    /// that came first and is context in the others.
    Segments,
    /// One segment a call.
    PerCall,
}

/// What to export.
#[derive(Debug, Clone, Copy)]
pub struct ExportOptions<'a> {
    /// Which conversations train.
    pub scope: TrainScope,
    /// How calls become segments.
    pub builder: SegmentBuilder,
    /// The conversations of the main agent.
    pub main: &'a HashSet<ConversationId>,
}

/// A session's tokens, accounted for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Export {
    /// What trains.
    pub segments: Vec<Segment>,
    /// The counters that the forest knows; parse errors, tool calls and preemptions are the proxy's to add.
    pub audit: CaptureAudit,
    /// The account of every sampled token.
    pub ledger: Ledger,
}

impl CallForest {
    /// Exports the session.
    pub fn export(&self, options: &ExportOptions<'_>) -> Export {
        let accounts = Accounts::settle(self, options);
        let stretches = match options.builder {
            SegmentBuilder::Segments => self.stretches(&accounts),
            SegmentBuilder::PerCall => self
                .nodes()
                .filter(|(id, _)| accounts.trains(*id))
                .map(|(id, _)| Stretch {
                    trained: HashSet::from([id]),
                    last: id,
                })
                .collect(),
        };
        Export {
            segments: stretches
                .iter()
                .map(|stretch| self.segment(stretch, options.main))
                .collect(),
            audit: accounts.audit(self, options.main),
            ledger: accounts.ledger(self),
        }
    }

    /// Cuts the forest into stretches: each goes on with the first child that leads to trained tokens, and
    /// every further one begins a stretch of its own.
    fn stretches(&self, accounts: &Accounts) -> Vec<Stretch> {
        // Children are recorded after their parents, so one backward pass finds which subtrees train.
        let mut live: Vec<bool> = self.nodes().map(|(id, _)| accounts.trains(id)).collect();
        for index in (0..self.nodes.len()).rev() {
            if live[index]
                && let Some(parent) = self.nodes[index].parent
            {
                live[parent.index()] = true;
            }
        }
        let heirs = |id: NodeId| {
            self.node(id)
                .children
                .iter()
                .copied()
                .filter(|child| live[child.index()])
        };
        let mut stretches = Vec::new();
        let mut starts: Vec<NodeId> = self
            .roots
            .iter()
            .copied()
            .filter(|root| live[root.index()])
            .rev()
            .collect();
        while let Some(start) = starts.pop() {
            let mut stretch = Stretch {
                trained: HashSet::new(),
                last: start,
            };
            let mut next = Some(start);
            let mut branches = Vec::new();
            while let Some(id) = next {
                if accounts.trains(id) {
                    stretch.trained.insert(id);
                    stretch.last = id;
                }
                let mut children = heirs(id);
                next = children.next();
                branches.extend(children);
            }
            stretches.push(stretch);
            starts.extend(branches.into_iter().rev());
        }
        // In the order in which the segments' last tokens were sampled within the session's course.
        stretches.retain(|stretch| !stretch.trained.is_empty());
        stretches.sort_by_key(|stretch| stretch.trained.iter().min().copied());
        stretches
    }

    fn segment(&self, stretch: &Stretch, main: &HashSet<ConversationId>) -> Segment {
        let mut chain = self.chain(stretch.last);
        chain.reverse();
        // One call without log-probs takes them from every segment through it: values are never invented.
        let has_logprobs = chain.iter().all(|&id| self.node(id).logprobs.is_some());
        let mut segment = Segment {
            response_logprobs: has_logprobs.then(Vec::new),
            is_main_agent: main.contains(&self.node(stretch.last).conversation),
            ..Segment::default()
        };
        let (mut begun, mut routed) = (false, 0);
        for id in chain {
            let node = self.node(id);
            for run in &node.routing {
                // What a call before it said stands.
                if let Some(run) = run.within(routed, usize::MAX) {
                    routed = run.end();
                    segment.routing.push(run);
                }
            }
            let trains = stretch.trained.contains(&id);
            let context = [&node.context[..], if trains { &[] } else { &node.output }];
            for tokens in context {
                if begun {
                    push_context(&mut segment, tokens);
                } else {
                    segment.prompt_ids.extend_from_slice(tokens);
                }
            }
            if trains {
                push_sampled(&mut segment, &node.output, node.logprobs.as_deref(), &node.versions);
                begun = true;
            }
        }
        segment
    }
}

/// A path of the forest and the calls that train in it.
struct Stretch {
    trained: HashSet<NodeId>,
    /// The last call that trains; the path ends there.
    last: NodeId,
}

fn push_context(segment: &mut Segment, tokens: &[u32]) {
    segment.response_ids.extend_from_slice(tokens);
    let len = segment.response_ids.len();
    segment.response_mask.resize(len, 0);
    if let Some(logprobs) = &mut segment.response_logprobs {
        logprobs.resize(len, 0.0);
    }
}

fn push_sampled(segment: &mut Segment, tokens: &[u32], values: Option<&[f32]>, versions: &[VersionSpan]) {
    let offset = segment.response_ids.len() as u32;
    segment.response_ids.extend_from_slice(tokens);
    segment.response_mask.resize(segment.response_ids.len(), 1);
    if let (Some(logprobs), Some(values)) = (&mut segment.response_logprobs, values) {
        logprobs.extend_from_slice(values);
    }
    segment.weight_versions.extend(versions.iter().map(|span| VersionSpan {
        start: span.start + offset,
        end: span.end + offset,
        version: span.version,
    }));
}
