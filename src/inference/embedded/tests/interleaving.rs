//! Whatever is asked in whatever order: every generation ends once, and samples what it would have sampled alone.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::inference::PauseMode;
use crate::trajectory::FinishReason;

#[derive(Debug, Clone)]
enum Act {
    Ask { session: u8, length: usize, budget: u32 },
    Abort(usize),
    Leave(usize),
    Pause(PauseMode),
    Resume,
    Publish(u64),
}

fn act() -> impl Strategy<Value = Act> {
    let mode = prop_oneof![Just(PauseMode::Keep), Just(PauseMode::Abort), Just(PauseMode::Wait)];
    prop_oneof![
        6 => (0_u8..4, 1_usize..40, 1_u32..40)
            .prop_map(|(session, length, budget)| Act::Ask { session, length, budget }),
        1 => (0_usize..20).prop_map(Act::Abort),
        1 => (0_usize..20).prop_map(Act::Leave),
        1 => mode.prop_map(Act::Pause),
        2 => Just(Act::Resume),
        1 => (1_u64..3).prop_map(Act::Publish),
    ]
}

/// What the same request samples alone under one set of weights.
async fn alone(engines: &mut HashMap<u64, EmbeddedEngine>, seed: u64, request: GenerateRequest) -> Answer {
    let engine = engines
        .entry(seed)
        .or_insert_with(|| EmbeddedEngine::start(&weights(seed), version(0), &EmbeddedOptions::default()).unwrap());
    ask(engine, request).await
}

async fn play(acts: Vec<Act>) {
    let options = EmbeddedOptions {
        max_running: 3,
        pass_tokens: 16,
        ..EmbeddedOptions::default()
    };
    let engine = start_with_capacity(120, &options);
    let (mut asked, mut live, mut served) = (Vec::new(), Vec::new(), vec![1]);
    for act in acts {
        match act {
            Act::Ask {
                session,
                length,
                budget,
            } => {
                let id = format!("s{session}/{}", asked.len());
                let request = request(&id, &prompt(u32::from(session), length), budget);
                live.push(Some((asked.len(), engine.generate(request.clone()).await.unwrap())));
                asked.push(request);
            }
            Act::Abort(index) if index < asked.len() => engine.abort(&asked[index].id).await,
            Act::Leave(index) if index < live.len() => live[index] = None,
            Act::Abort(_) | Act::Leave(_) => {}
            Act::Pause(mode) => engine.pause(mode).await.unwrap(),
            Act::Resume => engine.resume().await.unwrap(),
            Act::Publish(seed) => {
                served.push(seed);
                engine
                    .publish_weights(version(served.len() as u64 - 1), weights(seed))
                    .await
                    .unwrap();
            }
        }
        assert!(engine.load().kv_used <= 120, "{:?}", engine.load());
    }
    engine.resume().await.unwrap();
    let mut references = HashMap::new();
    for (index, generation) in live.into_iter().flatten() {
        let answer = drain(generation).await;
        assert!(answer.versions.is_sorted());
        assert_ne!(answer.finish.reason, FinishReason::Error);
        let Some(first) = answer.versions.first() else { continue };
        let span = answer.versions.iter().filter(|found| *found == first).count();
        let whole = alone(&mut references, served[first.update as usize], asked[index].clone()).await;
        assert_eq!(answer.ids[..span], whole.ids[..span]);
        assert_eq!(answer.sampled().1[..span], whole.sampled().1[..span]);
        if answer.finish.reason != FinishReason::Abort {
            assert_eq!(answer.ids.len(), whole.ids.len());
        }
    }
    until("an idle engine", || engine.load().running + engine.load().waiting == 0).await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn generations_do_not_notice_each_other(acts in prop::collection::vec(act(), 1..25)) {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(play(acts));
    }
}
