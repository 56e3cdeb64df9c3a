//! Routed experts: gradients against burn's autodiff and finite differences, prescribed routes, decoding, and the names
//! on disk.

use super::*;
use crate::decode::{DecodeModel, Logits, Slot};
use crate::objective::{KlEstimator, KlTerm, PolicyLoss};
use crate::row::Row;
use crate::test_models::{OwnedRow, WITH_EXPERTS, config, rows, weights};
use crate::{Family, ModelConfig, NO_EXPERT};

const OBJECTIVE: Objective = Objective {
    loss: PolicyLoss::Reinforce,
    kl: Some(KlTerm {
        estimator: KlEstimator::K2,
        coefficient: 0.3,
    }),
    entropy_coeff: 0.01,
    temperature: 0.8,
};

fn trainer(weights: &Weights, device: Device) -> Trainer {
    Trainer::new(weights.clone(), device, AdamW::default()).unwrap()
}

fn with_routes<'a>(rows: &'a [OwnedRow], routes: &'a [Vec<u16>]) -> Vec<Row<'a>> {
    let row = |(row, experts): (&'a OwnedRow, &'a Vec<u16>)| Row { experts, ..row.row() };
    rows.iter().zip(routes).map(row).collect()
}

fn gradient(weights: &Weights, rows: &[Row<'_>], device: Device) -> (LossStats, Vec<Vec<f32>>) {
    let mut trainer = trainer(weights, device);
    let stats = trainer.accumulate(rows, &OBJECTIVE).unwrap();
    (stats, trainer.take_gradients().into_iter().map(|(_, g)| g).collect())
}

fn routes(weights: &Weights, rows: &[OwnedRow], device: Device) -> Vec<Vec<u16>> {
    let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
    let scores = trainer(weights, device).log_probs(&sequences, 1.0, 64).unwrap();
    scores.into_iter().map(|scores| scores.experts).collect()
}

fn size(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

fn distance(a: &[Vec<f32>], b: &[Vec<f32>]) -> f64 {
    let (a, b) = (a.concat(), b.concat());
    size(a.iter().zip(&b).map(|(a, b)| a - b)) / size(b.iter().copied())
}

/// Every position through other experts than its own.
fn moved(routes: &[Vec<u16>]) -> Vec<Vec<u16>> {
    routes
        .iter()
        .map(|row| row.iter().map(|expert| (expert + 1) % 5).collect())
        .collect()
}

#[test]
fn fused_and_burn_agree_on_log_probs_routes_and_gradients() {
    for family in WITH_EXPERTS {
        let weights = weights(config(family), 5);
        let rows = rows(4, 37, 8);
        let own = routes(&weights, &rows, Device::Cpu);
        assert_eq!(own, routes(&weights, &rows, Device::CpuReference), "{family:?}");
        assert_eq!(own[0].len(), rows[0].tokens.len() * 2 * 2);
        for routes in [vec![Vec::new(); 4], moved(&own)] {
            let rows = with_routes(&rows, &routes);
            let (stats, gradients) = gradient(&weights, &rows, Device::Cpu);
            let (expected, expected_gradients) = gradient(&weights, &rows, Device::CpuReference);
            assert!(
                (stats.loss - expected.loss).abs() < 1e-4 * expected.loss.abs(),
                "{stats:?} {expected:?}"
            );
            let distance = distance(&gradients, &expected_gradients);
            assert!(distance < 1e-4, "{family:?}: {distance}");
        }
    }
}

#[test]
fn gradients_are_the_slopes_of_the_loss_under_fixed_routes_the_routers_too() {
    for family in WITH_EXPERTS {
        let weights = weights(config(family), 3);
        let rows = rows(3, 37, 11);
        let routes = moved(&routes(&weights, &rows, Device::Cpu));
        let rows = with_routes(&rows, &routes);
        let (_, gradients) = gradient(&weights, &rows, Device::Cpu);
        for (slot, gradient_of) in gradients.iter().enumerate() {
            let norm = size(gradient_of.iter().copied());
            let name = weights.parameters()[slot].name.clone();
            assert!(norm > 0.0, "{family:?}: no gradient reaches {name}");
            let loss = |by: f32| {
                let mut along = weights.clone();
                let data = along.slots_mut().nth(slot).unwrap();
                let step = |(w, g): (&f32, &f32)| w + by * (f64::from(*g) / norm) as f32;
                let values: Vec<f32> = data.iter().zip(gradient_of).map(step).collect();
                *data = values.into();
                gradient(&along, &rows, Device::Cpu).0.loss
            };
            let h = 2e-3;
            let slope = (loss(h) - loss(-h)) / f64::from(2.0 * h);
            assert!(
                (slope - norm).abs() < 0.01 * norm + 1e-3,
                "{family:?} {name}: slope {slope}, gradient {norm}"
            );
        }
    }
}

#[test]
fn own_routes_prescribed_change_no_bit_and_a_position_without_is_routed_as_usual() {
    for family in WITH_EXPERTS {
        let weights = weights(config(family), 7);
        let rows = rows(4, 37, 3);
        let own = routes(&weights, &rows, Device::Cpu);
        let native = gradient(&weights, &with_routes(&rows, &vec![Vec::new(); 4]), Device::Cpu);
        assert_eq!(native.1, gradient(&weights, &with_routes(&rows, &own), Device::Cpu).1);
        let mut holes = own.clone();
        for row in &mut holes {
            row[..8].fill(NO_EXPERT);
        }
        holes[1].clear();
        assert_eq!(native.1, gradient(&weights, &with_routes(&rows, &holes), Device::Cpu).1);
        let other = gradient(&weights, &with_routes(&rows, &moved(&own)), Device::Cpu);
        assert!(distance(&other.1, &native.1) > 0.1, "{family:?}");
    }
}

#[test]
fn routes_that_do_not_fit_are_refused() {
    let weights = weights(config(Family::Mixtral), 7);
    let rows = rows(1, 37, 3);
    let refused = |routes: Vec<u16>| {
        let routes = [routes];
        let rows = with_routes(&rows, &routes);
        trainer(&weights, Device::Cpu)
            .accumulate(&rows, &OBJECTIVE)
            .unwrap_err()
            .to_string()
    };
    let tokens = rows[0].tokens.len();
    assert!(refused(vec![0; 3]).contains("`experts` has 3 elements"));
    assert!(refused(vec![5; tokens * 4]).contains("expert 5 is not below num_experts 5"));
}

#[test]
fn decoding_takes_the_same_experts_however_it_is_cut() {
    for family in WITH_EXPERTS {
        let weights = weights(config(family), 9);
        let rows = rows(2, 37, 4);
        let expected = routes(&weights, &rows, Device::Cpu);
        let model = DecodeModel::new(&weights);
        let mut caches = [model.new_cache(), model.new_cache()];
        let mut logits = Vec::new();
        for (from, to) in [(0, 2), (2, 4)] {
            let cut = |tokens: &'_ [u32]| (tokens.len() * from / 4)..(tokens.len() * to / 4);
            let [a, b] = &mut caches;
            let mut slots = [(a, &rows[0]), (b, &rows[1])].map(|(cache, row)| Slot {
                cache,
                tokens: &row.tokens[cut(&row.tokens)],
            });
            logits = model.forward(&mut slots, Logits::Last).unwrap();
        }
        let found: Vec<Vec<u16>> = caches.iter().map(|cache| cache.experts().to_vec()).collect();
        assert_eq!(found, expected, "{family:?}");
        let mut cache = model.new_cache();
        let mut whole = [Slot {
            cache: &mut cache,
            tokens: &rows[1].tokens,
        }];
        let alone = model.forward(&mut whole, Logits::Last).unwrap();
        assert_eq!(alone[0].last(), logits[1].last(), "{family:?}");
        cache.truncate(3);
        assert_eq!(cache.experts(), &expected[1][..3 * 4]);
    }
}

#[test]
fn experts_are_stored_under_the_names_that_transformers_gives_them() {
    for (family, name) in [
        (Family::Qwen3Moe, "model.layers.1.mlp.experts.4.gate_proj.weight"),
        (Family::Mixtral, "model.layers.1.block_sparse_moe.experts.4.w1.weight"),
    ] {
        let weights = weights(config(family), 2);
        let folder = tempfile::tempdir().unwrap();
        weights.save(folder.path()).unwrap();
        let bytes = std::fs::read(folder.path().join("model.safetensors")).unwrap();
        let stored = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let width = weights.config().moe.as_ref().unwrap().intermediate_size;
        assert_eq!(stored.tensor(name).unwrap().shape(), [width, 20]);
        let back = Weights::load(folder.path()).unwrap();
        assert!(back.iter().zip(weights.iter()).all(|(a, b)| a == b));
        assert_eq!(back.config(), weights.config());
        assert_eq!(&Weights::check(folder.path()).unwrap(), weights.config());
        let mut tensors: std::collections::BTreeMap<_, _> = stored
            .tensors()
            .into_iter()
            .map(|(name, view)| {
                let data = view.data().as_chunks::<4>().0.iter().map(|b| f32::from_le_bytes(*b));
                let (shape, data) = (view.shape().to_vec(), data.collect());
                (name, crate::HostTensor { shape, data })
            })
            .collect();
        tensors.remove(name);
        let missing = Weights::from_tensors(weights.config().clone(), tensors)
            .unwrap_err()
            .to_string();
        assert!(
            missing.contains(&format!("missing [{name}], unexpected []")),
            "{missing}"
        );
    }
}

#[test]
fn what_config_json_says_of_experts_is_read_and_written() {
    let text = r#"{"model_type": "qwen3_moe", "hidden_size": 8, "num_hidden_layers": 4, "num_attention_heads": 2,
        "head_dim": 4, "intermediate_size": 16, "vocab_size": 9, "num_experts": 4, "num_experts_per_tok": 2,
        "moe_intermediate_size": 6, "norm_topk_prob": true, "decoder_sparse_step": 2, "mlp_only_layers": [3]}"#;
    let config = ModelConfig::from_json(text).unwrap();
    let moe = config.moe.as_ref().unwrap();
    assert_eq!(
        (moe.dense_layers.as_slice(), moe.norm_topk_prob),
        ([0, 2, 3].as_slice(), true)
    );
    assert!(config.experts_of(1).is_some() && config.experts_of(3).is_none());
    assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    let renamed = text.replace("\"num_experts\"", "\"num_local_experts\"");
    assert_eq!(ModelConfig::from_json(&renamed).unwrap(), config);
    let wrong = text.replace("\"num_experts_per_tok\": 2", "\"num_experts_per_tok\": 5");
    assert!(
        ModelConfig::from_json(&wrong)
            .unwrap_err()
            .to_string()
            .contains("= 5 of 4")
    );
    let mixtral = r#"{"model_type": "mixtral", "hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2,
        "intermediate_size": 16, "vocab_size": 9, "sliding_window": 4096}"#;
    let refused = ModelConfig::from_json(mixtral).unwrap_err().to_string();
    assert!(refused.contains("sliding_window"), "{refused}");
}

/// Correlation of the probabilities of rows' tokens.
fn pearson(a: &[LogProbs], b: &[LogProbs]) -> f64 {
    let of = |scores: &[LogProbs]| -> Vec<f64> {
        scores
            .iter()
            .flat_map(|scores| &scores.logprobs)
            .map(|logprob| f64::from(*logprob).exp())
            .collect()
    };
    let (a, b) = (of(a), of(b));
    let mean = |values: &[f64]| values.iter().sum::<f64>() / values.len() as f64;
    let (ma, mb) = (mean(&a), mean(&b));
    let sum = |f: &dyn Fn(f64, f64) -> f64| a.iter().zip(&b).map(|(a, b)| f(a - ma, b - mb)).sum::<f64>();
    sum(&|a, b| a * b) / (sum(&|a, _| a * a) * sum(&|_, b| b * b)).sqrt()
}

/// An engine whose weights are rounded to bf16 takes other experts now and then; replayed, they leave nothing but the
/// rounding.
#[test]
fn replayed_routes_bring_the_trainer_back_to_a_rounded_engine() {
    let mixture = crate::Moe {
        experts: 16,
        per_token: 2,
        intermediate_size: 24,
        norm_topk_prob: true,
        dense_layers: Vec::new(),
    };
    let config = ModelConfig {
        num_hidden_layers: 6,
        moe: Some(mixture),
        ..config(Family::Qwen3Moe)
    };
    let exact = weights(config, 6);
    let mut rounded = exact.clone();
    for data in rounded.slots_mut() {
        let values: Vec<f32> = data.iter().map(|value| half::bf16::from_f32(*value).to_f32()).collect();
        *data = values.into();
    }
    let rows = rows(24, 37, 5);
    let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
    let engine = trainer(&rounded, Device::Cpu).log_probs(&sequences, 1.0, 256).unwrap();
    let ours = trainer(&exact, Device::Cpu);
    let native = ours.log_probs(&sequences, 1.0, 256).unwrap();
    let recorded: Vec<Vec<u16>> = engine.iter().map(|scores| scores.experts.clone()).collect();
    let prescribed: Vec<crate::Sequence<'_>> = rows
        .iter()
        .zip(&recorded)
        .map(|(row, experts)| crate::Sequence {
            experts,
            ..row.sequence()
        })
        .collect();
    let replayed = ours.log_probs(&prescribed, 1.0, 256).unwrap();
    let moved = engine
        .iter()
        .zip(&native)
        .flat_map(|(a, b)| a.experts.iter().zip(&b.experts))
        .filter(|(a, b)| a != b);
    let (without, with) = (pearson(&engine, &native), pearson(&engine, &replayed));
    let figures = format!(
        "{} indices differ; Pearson {without:.6} without replay, {with:.6} with it",
        moved.count()
    );
    assert!(with >= 0.999 && with > without, "{figures}");
    std::io::Write::write_all(&mut std::io::stderr(), format!("{figures}\n").as_bytes()).unwrap();
}
