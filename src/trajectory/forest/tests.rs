use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::trajectory::{FinishReason, PolicyVersion, Segment, VersionSpan};

const MAIN: ConversationId = ConversationId(0);

pub(super) fn call<'a>(prompt: &'a [u32], output: &'a [u32], logprobs: &'a [f32]) -> CallRecord<'a> {
    let (tail, versions, routing) = (&[], &[], &[]);
    let (finish, conversation) = (FinishReason::Stop, MAIN);
    CallRecord {
        prompt,
        output,
        logprobs: Some(logprobs),
        versions,
        routing,
        tail,
        finish,
        conversation,
    }
}

pub(super) fn ones(tokens: &[u32]) -> Vec<f32> {
    vec![-1.0; tokens.len()]
}

/// Records a call of the main conversation and gives the prompt that follows its answer.
fn say(forest: &mut CallForest, prompt: &[u32], output: &[u32], observation: &[u32]) -> Vec<u32> {
    forest.record(call(prompt, output, &ones(output))).unwrap().unwrap();
    [prompt, output, observation].concat()
}

pub(super) fn export_all(forest: &CallForest) -> Export {
    let main = HashSet::from([MAIN]);
    forest.export(&ExportOptions {
        scope: TrainScope::All,
        builder: SegmentBuilder::Segments,
        main: &main,
    })
}

fn trained(segment: &Segment) -> Vec<u32> {
    segment
        .response_ids
        .iter()
        .zip(&segment.response_mask)
        .filter(|(_, mask)| **mask == 1)
        .map(|(id, _)| *id)
        .collect()
}

#[test]
fn an_unforked_path_is_one_segment() {
    let mut forest = CallForest::default();
    let next = say(&mut forest, &[1, 2], &[10, 11], &[3]);
    let next = say(&mut forest, &next, &[20], &[4]);
    say(&mut forest, &next, &[30, 31], &[]);
    let export = export_all(&forest);
    let [segment] = export.segments.as_slice() else {
        panic!("{:?}", export.segments)
    };
    assert_eq!(segment.prompt_ids, [1, 2]);
    assert_eq!(segment.response_ids, [10, 11, 3, 20, 4, 30, 31]);
    assert_eq!(segment.response_mask, [1, 1, 0, 1, 0, 1, 1]);
    assert_eq!(
        segment.response_logprobs.as_deref(),
        Some(&[-1.0, -1.0, 0.0, -1.0, 0.0, -1.0, -1.0][..])
    );
    assert_eq!(
        (export.ledger.trained, export.ledger.total(), export.audit.n_rewrites),
        (5, 5, 0)
    );
    assert!(segment.is_main_agent && (export.audit.delivered_fraction - 1.0).abs() < f32::EPSILON);
}

/// Q A1 O1 A2 O2 A3, then the agent drops O1 to O2: Q A1 Z A3 O3 A4.
#[test]
fn a_rewritten_history_trains_only_what_is_new() {
    let mut forest = CallForest::default();
    let (a1, a2, a3, a4) = ([10, 11], [20], [30, 31], [40]);
    let next = say(&mut forest, &[1], &a1, &[2]);
    let next = say(&mut forest, &next, &a2, &[3]);
    say(&mut forest, &next, &a3, &[]);
    let rewritten = [&[1][..], &a1, &[99], &a3, &[4]].concat();
    say(&mut forest, &rewritten, &a4, &[]);
    let export = export_all(&forest);
    assert_eq!(export.segments.len(), 2);
    assert_eq!(trained(&export.segments[0]), [10, 11, 20, 30, 31]);
    assert_eq!(trained(&export.segments[1]), a4);
    assert_eq!(export.segments[1].prompt_ids, rewritten);
    assert_eq!((export.audit.n_rewrites, export.ledger.trained), (1, 6));
}

/// A1 B1 A2 B2 of a parent and its sub-agent.
#[test]
fn interleaved_conversations_give_two_segments() {
    let mut forest = CallForest::default();
    let side = |forest: &mut CallForest, prompt: &[u32], output: &[u32], observation: &[u32]| {
        let logprobs = ones(output);
        let record = CallRecord {
            conversation: ConversationId(1),
            ..call(prompt, output, &logprobs)
        };
        forest.record(record).unwrap();
        [prompt, output, observation].concat()
    };
    let a = say(&mut forest, &[1, 2], &[10], &[3]);
    let b = side(&mut forest, &[1, 7], &[50], &[8]);
    say(&mut forest, &a, &[11], &[]);
    side(&mut forest, &b, &[51], &[]);
    let export = export_all(&forest);
    assert_eq!(
        export.segments.iter().map(trained).collect::<Vec<_>>(),
        [vec![10, 11], vec![50, 51]]
    );
    assert_eq!(
        export
            .segments
            .iter()
            .map(|segment| segment.is_main_agent)
            .collect::<Vec<_>>(),
        [true, false]
    );

    let main = HashSet::from([MAIN]);
    let only_main = forest.export(&ExportOptions {
        scope: TrainScope::Main,
        builder: SegmentBuilder::Segments,
        main: &main,
    });
    assert_eq!(only_main.segments.len(), 1);
    assert_eq!((only_main.ledger.trained, only_main.ledger.side_conversation), (2, 2));
    assert!((only_main.audit.delivered_fraction - 0.5).abs() < f32::EPSILON);
}

#[test]
fn of_identical_prompts_the_continued_answer_is_kept() {
    let mut forest = CallForest::default();
    let next = say(&mut forest, &[1], &[10], &[2]);
    say(&mut forest, &[1], &[12], &[]);
    say(&mut forest, &next, &[20], &[]);
    let export = export_all(&forest);
    assert_eq!(export.segments.iter().map(trained).collect::<Vec<_>>(), [vec![10, 20]]);
    assert_eq!(
        (
            export.audit.n_unresolved_retries,
            export.ledger.duplicate,
            export.audit.n_rewrites
        ),
        (0, 1, 0)
    );
}

#[test]
fn of_identical_prompts_without_continuation_the_last_answer_is_kept() {
    let mut forest = CallForest::default();
    for answer in [10, 11, 12] {
        say(&mut forest, &[1], &[answer], &[]);
    }
    let export = export_all(&forest);
    assert_eq!(export.segments.iter().map(trained).collect::<Vec<_>>(), [vec![12]]);
    assert_eq!((export.audit.n_unresolved_retries, export.ledger.duplicate), (2, 2));
}

#[test]
fn an_abort_is_not_a_stop() {
    let mut forest = CallForest::default();
    forest
        .record(CallRecord {
            finish: FinishReason::Abort,
            ..call(&[1], &[10, 11], &[-1.0, -1.0])
        })
        .unwrap();
    // The prompt happens to begin with what was cut: it is context there, never an answer.
    say(&mut forest, &[1, 10, 11, 2], &[20], &[]);
    let export = export_all(&forest);
    assert_eq!(export.segments.iter().map(trained).collect::<Vec<_>>(), [vec![20]]);
    assert_eq!((export.ledger.aborted, export.audit.num_aborts), (2, 1));
}

#[test]
fn only_a_last_answer_can_be_rolled_back() {
    let mut forest = CallForest::default();
    let first = forest.record(call(&[1], &[10], &[-1.0])).unwrap().unwrap();
    let second = forest.record(call(&[1, 10, 2], &[20], &[-1.0])).unwrap().unwrap();
    assert_eq!(forest.roll_back(first), Err(ForestError::Continued(first)));
    forest.roll_back(second).unwrap();
    say(&mut forest, &[1, 10, 2], &[21], &[]);
    let export = export_all(&forest);
    assert_eq!(trained(&export.segments[0]), [10, 21]);
    assert_eq!(
        (export.audit.n_discarded, export.ledger.dropped[Ledger::ROLLED_BACK]),
        (1, 1)
    );
}

#[test]
fn log_probs_are_never_padded_and_never_invented() {
    let mut forest = CallForest::default();
    let short = forest.record(call(&[1], &[10, 11], &[-1.0]));
    assert_eq!(short, Err(ForestError::LogprobCount { logprobs: 1, output: 2 }));
    assert_eq!(forest.record(call(&[1], &[], &[])), Ok(None));
    forest
        .record(CallRecord {
            logprobs: None,
            ..call(&[1], &[10], &[])
        })
        .unwrap();
    say(&mut forest, &[1, 10, 2], &[20], &[]);
    let export = export_all(&forest);
    assert_eq!(export.segments[0].response_logprobs, None);
    assert_eq!(
        (trained(&export.segments[0]), export.audit.num_calls),
        (vec![10, 20], 3)
    );
}

#[test]
fn a_long_session_stores_linear_tokens() {
    let mut forest = CallForest::default();
    let mut prompt = vec![7; 500];
    for turn in 0..128 {
        prompt = say(&mut forest, &prompt, &[turn; 20], &[8; 30]);
    }
    assert_eq!(forest.stored_tokens(), 500 + 127 * 50 + 20);
    assert_eq!(export_all(&forest).segments.len(), 1);
}

/// What an agent may do next; the numbers pick from what there is.
#[derive(Debug, Clone)]
enum Step {
    Begin { conversation: u32, prompt: Vec<u32> },
    Continue { pick: usize, observation: Vec<u32> },
    Retry { pick: usize },
    Rewrite { pick: usize, cut: usize, patch: Vec<u32> },
    RollBack { pick: usize },
}

fn tokens(max: usize) -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(0..3u32, 1..=max)
}

fn steps() -> impl Strategy<Value = Vec<(Step, Vec<u32>, FinishReason)>> {
    let step = prop_oneof![
        2 => (0..3u32, tokens(4)).prop_map(|(conversation, prompt)| Step::Begin { conversation, prompt }),
        6 => (any::<usize>(), tokens(3)).prop_map(|(pick, observation)| Step::Continue { pick, observation }),
        2 => any::<usize>().prop_map(|pick| Step::Retry { pick }),
        2 => (any::<usize>(), 0..20usize, tokens(3)).prop_map(|(pick, cut, patch)| Step::Rewrite { pick, cut, patch }),
        1 => any::<usize>().prop_map(|pick| Step::RollBack { pick }),
    ];
    let finish = prop_oneof![
        6 => Just(FinishReason::Stop), 1 => Just(FinishReason::Length),
        1 => Just(FinishReason::Abort), 1 => Just(FinishReason::Error),
    ];
    prop::collection::vec((step, prop::collection::vec(0..3u32, 0..4), finish), 1..24)
}

/// One played call: what the engine saw, what it sampled, and log-probs that name each token for ever.
struct Played {
    prompt: Vec<u32>,
    output: Vec<u32>,
    conversation: ConversationId,
    node: Option<NodeId>,
}

fn play(steps: &[(Step, Vec<u32>, FinishReason)], with_logprobs: bool) -> (CallForest, Vec<Played>) {
    let mut forest = CallForest::default();
    let mut played: Vec<Played> = Vec::new();
    let mut sampled = 0usize;
    for (step, output, finish) in steps {
        let of = |pick: &usize| played.get(pick % played.len().max(1));
        let (prompt, conversation) = match step {
            Step::Begin { conversation, prompt } => (prompt.clone(), ConversationId(*conversation)),
            Step::Continue { pick, observation } => match of(pick) {
                Some(call) => (
                    [&call.prompt[..], &call.output, observation].concat(),
                    call.conversation,
                ),
                None => continue,
            },
            Step::Retry { pick } => match of(pick) {
                Some(call) => (call.prompt.clone(), call.conversation),
                None => continue,
            },
            Step::Rewrite { pick, cut, patch } => match of(pick) {
                Some(call) => (
                    [&call.prompt[..(*cut).min(call.prompt.len())], patch].concat(),
                    call.conversation,
                ),
                None => continue,
            },
            Step::RollBack { pick } => {
                if let Some(node) = of(pick).and_then(|call| call.node) {
                    let _ = forest.roll_back(node);
                }
                continue;
            }
        };
        let logprobs: Vec<f32> = (0..output.len()).map(|at| -((sampled + at + 1) as f32)).collect();
        sampled += output.len();
        let versions: Vec<VersionSpan> = (0..output.len() as u32)
            .map(|at| VersionSpan {
                start: at,
                end: at + 1,
                version: PolicyVersion { lineage: at, update: 0 },
            })
            .collect();
        let record = CallRecord {
            logprobs: with_logprobs.then_some(&logprobs[..]),
            versions: &versions,
            finish: *finish,
            conversation,
            ..call(&prompt, output, &[])
        };
        let node = forest.record(record).unwrap();
        played.push(Played {
            prompt,
            output: output.clone(),
            conversation,
            node,
        });
    }
    (forest, played)
}

proptest! {
    /// The invariants of the rollout shard, over conversations with rewrites, retries, interleavings, aborts.
    #[test]
    fn segments_are_faithful(steps in steps(), all in any::<bool>(), per_call in any::<bool>()) {
        let (forest, played) = play(&steps, true);
        // Log-prob -(n+1) names the n-th sampled token: its call and its place there.
        let names: HashMap<u32, (usize, usize)> = played.iter().enumerate()
            .flat_map(|(index, call)| (0..call.output.len()).map(move |at| (index, at)))
            .enumerate().map(|(name, place)| (name as u32 + 1, place)).collect();
        let main = HashSet::from([MAIN]);
        let export = forest.export(&ExportOptions {
            scope: if all { TrainScope::All } else { TrainScope::Main },
            builder: if per_call { SegmentBuilder::PerCall } else { SegmentBuilder::Segments },
            main: &main,
        });
        let mut trained = HashSet::new();
        for segment in &export.segments {
            let length = segment.response_ids.len();
            let logprobs = segment.response_logprobs.as_ref().unwrap();
            prop_assert_eq!((segment.response_mask.len(), logprobs.len()), (length, length));
            let whole = [&segment.prompt_ids[..], &segment.response_ids].concat();
            for (at, &mask) in segment.response_mask.iter().enumerate() {
                if mask == 0 {
                    prop_assert_eq!(logprobs[at].to_bits(), 0);
                    continue;
                }
                let (call, place) = names[&((-logprobs[at]) as u32)];
                prop_assert!(trained.insert((call, place)), "trained twice");
                let seen = [&played[call].prompt[..], &played[call].output[..=place]].concat();
                prop_assert_eq!(&whole[..=segment.prompt_ids.len() + at], &seen[..]);
                let span = segment.weight_versions.iter().find(|span| (span.start..span.end).contains(&(at as u32)));
                prop_assert_eq!(span.map(|span| span.version.lineage as usize), Some(place));
                let node = forest.node(played[call].node.unwrap());
                prop_assert!(node.finish_is_an_end() && !node.is_discarded());
                prop_assert!(all || node.conversation == MAIN);
            }
            prop_assert_eq!(segment.response_mask.first(), Some(&1));
            prop_assert_eq!(segment.response_mask.last(), Some(&1));
        }
        prop_assert_eq!(trained.len() as u64, export.ledger.trained);
        prop_assert_eq!(export.ledger.total(), played.iter().map(|call| call.output.len() as u64).sum::<u64>());
        prop_assert!(export.audit.delivered_fraction <= 1.0);
        // Of identical prompts, at most one trains that nobody continued.
        let mut ends: HashMap<Vec<u32>, usize> = HashMap::new();
        for call in played.iter().filter(|call| call.node.is_some_and(|id| !forest.node(id).is_continued())) {
            let position = played.iter().position(|other| std::ptr::eq(other, call)).unwrap();
            *ends.entry(call.prompt.clone()).or_default() += usize::from(trained.contains(&(position, 0)));
        }
        prop_assert!(ends.values().all(|&count| count <= 1), "a retry trained twice");
    }

    /// A call's path reads back as prompt and output, and nothing is stored twice along it.
    #[test]
    fn paths_are_what_the_engine_saw(steps in steps()) {
        let (forest, played) = play(&steps, false);
        for call in &played {
            if let Some(id) = call.node {
                prop_assert_eq!(forest.path(id), [&call.prompt[..], &call.output].concat());
                prop_assert_eq!(forest.node(id).path_len(), call.prompt.len() + call.output.len());
            }
        }
        let main = HashSet::from([MAIN]);
        let options = ExportOptions { scope: TrainScope::All, builder: SegmentBuilder::Segments, main: &main };
        prop_assert!(forest.export(&options).segments.iter().all(|segment| segment.response_logprobs.is_none()));
    }
}
