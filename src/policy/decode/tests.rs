//! Decoding against the trainer's and burn's forward pass; batched against alone; caches.

use super::*;
use crate::test_models::{FAMILIES, OwnedRow, config, rows, weights};
use crate::{AdamW, Device, Family, Trainer};

fn alone(model: &DecodeModel, tokens: &[u32]) -> SlotLogits {
    let mut cache = model.new_cache();
    model
        .forward(
            &mut [Slot {
                cache: &mut cache,
                tokens,
            }],
            Logits::All,
        )
        .unwrap()
        .remove(0)
}

fn log_prob(logits: &[f32], token: u32) -> f64 {
    let sum: f64 = logits.iter().map(|l| f64::from(*l).exp()).sum();
    f64::from(logits[token as usize]) - sum.ln()
}

#[test]
fn log_probs_are_the_trainers_and_burns() {
    for family in FAMILIES {
        let weights = weights(config(family), 21);
        let model = DecodeModel::new(&weights);
        let rows = rows(6, 37, 22);
        let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
        for device in [Device::Cpu, Device::CpuReference] {
            let trainer = Trainer::new(weights.clone(), device, AdamW::default()).unwrap();
            let scores = trainer.log_probs(&sequences, 1.0, 50).unwrap();
            for (row, scores) in rows.iter().zip(&scores) {
                let logits = alone(&model, &row.tokens);
                for (p, expected) in scores.logprobs.iter().enumerate() {
                    let at = row.start + p;
                    let found = log_prob(logits.row(at - 1), row.tokens[at]);
                    assert!(
                        (found - f64::from(*expected)).abs() < 1e-4,
                        "{family:?} {device:?}: {found} {expected}"
                    );
                }
            }
        }
    }
}

#[test]
fn neither_company_nor_cuts_change_a_bit() {
    for family in FAMILIES {
        let model = DecodeModel::new(&weights(config(family), 23));
        let rows = rows(9, 37, 24);
        let expected: Vec<SlotLogits> = rows.iter().map(|row| alone(&model, &row.tokens)).collect();
        let mut caches: Vec<KvCache> = rows.iter().map(|_| model.new_cache()).collect();
        // Every session takes another number of tokens at a time, and they end at different times.
        for round in 0.. {
            let mut slots = Vec::new();
            let mut who = Vec::new();
            for (i, (cache, row)) in caches.iter_mut().zip(&rows).enumerate() {
                let start = cache.len();
                let step = 1 + (i + round) % 4;
                if start < row.tokens.len() {
                    who.push((i, start));
                    slots.push(Slot {
                        cache,
                        tokens: &row.tokens[start..(start + step).min(row.tokens.len())],
                    });
                }
            }
            if slots.is_empty() {
                break;
            }
            let found = model.forward(&mut slots, Logits::All).unwrap();
            for ((i, start), found) in who.into_iter().zip(found) {
                for r in 0..found.rows() {
                    let bits = |row: &[f32]| row.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(
                        bits(found.row(r)),
                        bits(expected[i].row(start + r)),
                        "{family:?} session {i}"
                    );
                }
            }
        }
    }
}

#[test]
fn a_truncated_cache_continues_as_if_nothing_had_been() {
    let model = DecodeModel::new(&weights(config(Family::Llama), 23));
    let tokens: Vec<u32> = (0..40).map(|i| i * 5 % 37).collect();
    let expected = alone(&model, &tokens);
    let mut cache = model.new_cache();
    let detour: Vec<u32> = tokens[..20]
        .iter()
        .copied()
        .chain([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13])
        .collect();
    model
        .forward(
            &mut [Slot {
                cache: &mut cache,
                tokens: &detour,
            }],
            Logits::Last,
        )
        .unwrap();
    assert!(cache.bytes() >= 33 * model.config().kv_bytes_per_token());
    cache.truncate(20);
    let mut copy = cache.clone();
    for cache in [&mut cache, &mut copy] {
        let found = model
            .forward(
                &mut [Slot {
                    cache,
                    tokens: &tokens[20..],
                }],
                Logits::Last,
            )
            .unwrap();
        assert_eq!(found[0].last(), expected.last());
        assert_eq!((found[0].rows(), cache.len()), (1, 40));
    }
}

#[test]
fn refusals_leave_the_caches_alone() {
    let model = DecodeModel::new(&weights(config(Family::Llama), 23));
    let other = DecodeModel::new(&weights(config(Family::Qwen2), 23));
    let (mut a, mut b) = (model.new_cache(), model.new_cache());
    let mut refused = |tokens: &[u32]| {
        let mut slots = [
            Slot {
                cache: &mut a,
                tokens: &[1],
            },
            Slot { cache: &mut b, tokens },
        ];
        model.forward(&mut slots, Logits::Last).unwrap_err()
    };
    assert_eq!(refused(&[]), DecodeError::Empty { slot: 1 });
    assert_eq!(
        refused(&[37]),
        DecodeError::Token {
            slot: 1,
            token: 37,
            vocab_size: 37
        }
    );
    assert_eq!(
        refused(&[0; 257]),
        DecodeError::TooLong {
            slot: 1,
            len: 257,
            max: 256
        }
    );
    assert!(a.is_empty());
    let mut foreign = other.new_cache();
    let error = model
        .forward(
            &mut [Slot {
                cache: &mut foreign,
                tokens: &[1],
            }],
            Logits::Last,
        )
        .unwrap_err();
    assert_eq!(error, DecodeError::OtherModel { slot: 0 });
}
