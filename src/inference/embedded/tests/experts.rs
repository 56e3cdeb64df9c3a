//! A mixture of experts: what the engine tells of each position is what the trainer finds there, cached or not.

use lego_policy::{AdamW, Device, Family, Moe, Sequence, Trainer};

use super::*;
use crate::trajectory::{Experts, RoutedRows};

fn mixture(experts: usize) -> Weights {
    let config = ModelConfig {
        family: Family::Qwen3Moe,
        qk_norm: true,
        moe: Some(Moe {
            experts,
            per_token: 2,
            intermediate_size: 24,
            norm_topk_prob: true,
            dense_layers: vec![0],
        }),
        num_hidden_layers: 3,
        ..config()
    };
    Weights::init(config, 5).unwrap()
}

/// The routers' choices for a whole row, as the trainer makes them.
fn expected(weights: &Weights, tokens: &[TokenId]) -> Vec<u16> {
    let trainer = Trainer::new(weights.clone(), Device::Cpu, AdamW::default()).unwrap();
    let sequence = Sequence {
        tokens,
        loss_start: 1,
        experts: &[],
    };
    trainer.log_probs(&[sequence], 1.0, 4096).unwrap().remove(0).experts
}

fn indices(rows: &RoutedRows) -> Vec<u16> {
    match rows.experts.index_bytes() {
        1 => rows.rows.iter().map(|byte| u16::from(*byte)).collect(),
        _ => rows
            .rows
            .as_chunks::<2>()
            .0
            .iter()
            .map(|bytes| u16::from_le_bytes(*bytes))
            .collect(),
    }
}

#[tokio::test]
async fn every_position_but_the_last_is_told_from_the_one_asked_for() {
    for experts in [6, 300] {
        let weights = mixture(experts);
        let engine = EmbeddedEngine::start(&weights, version(0), &EmbeddedOptions::default()).unwrap();
        let mut first = request("s", &prompt(1, 30), 12);
        first.routing_from = Some(0);
        let answer = ask(&engine, first).await;
        let tokens = [prompt(1, 30), answer.ids].concat();
        let told = answer.finish.routing.unwrap();
        let shape = Experts {
            layers: 3,
            top_k: 2,
            count: experts as u16,
        };
        assert_eq!((told.start, told.experts, told.end()), (0, shape, tokens.len() - 1));
        let own = expected(&weights, &tokens);
        assert_eq!(indices(&told), own[..6 * (tokens.len() - 1)]);
        // The next turn extends the session, most of which is cached; only what is new is asked for.
        let longer = [tokens.as_slice(), &prompt(2, 9)].concat();
        let mut second = request("s", &longer, 5);
        second.routing_from = Some(tokens.len() as u32 - 1);
        let answer = ask(&engine, second).await;
        assert!(answer.finish.usage.cached > 30);
        let all = [longer, answer.ids].concat();
        let told = answer.finish.routing.unwrap();
        assert_eq!((told.start as usize, told.end()), (tokens.len() - 1, all.len() - 1));
        assert_eq!(
            indices(&told),
            expected(&weights, &all)[6 * (tokens.len() - 1)..6 * (all.len() - 1)]
        );
        // One that begins alike takes a copy of the cache, and tells of the copied positions too.
        let mut other = request("t", &prompt(1, 30), 3);
        other.routing_from = Some(0);
        let told = ask(&engine, other).await.finish.routing.unwrap();
        assert_eq!(indices(&told)[..6 * 30], own[..6 * 30]);
        assert_eq!(ask(&engine, request("u", &prompt(1, 30), 3)).await.finish.routing, None);
    }
}

#[tokio::test]
async fn a_dense_model_has_none_to_tell() {
    let mut asked = request("s", &prompt(1, 30), 12);
    asked.routing_from = Some(0);
    let answer = ask(&start(&EmbeddedOptions::default()), asked).await;
    assert_eq!(answer.finish.routing, None);
}
