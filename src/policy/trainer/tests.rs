//! Gradients against finite differences and against burn's autodiff; invariance under micro-batching; AdamW; state.
#![expect(clippy::float_cmp, reason = "counts and exact zeros")]

use super::*;
use crate::objective::{KlEstimator, KlTerm, PolicyLoss};
use crate::test_models::{FAMILIES, OwnedRow, config, rows, weights};
use crate::weights::HostTensor;
use crate::{Family, ModelConfig};

fn trainer(weights: &Weights, device: Device) -> Trainer {
    Trainer::new(weights.clone(), device, AdamW::default()).unwrap()
}

fn objective(loss: PolicyLoss, kl: Option<KlEstimator>, entropy_coeff: f32) -> Objective {
    let kl = kl.map(|estimator| KlTerm {
        estimator,
        coefficient: 0.3,
    });
    Objective {
        loss,
        kl,
        entropy_coeff,
        temperature: 0.8,
    }
}

fn objectives() -> Vec<Objective> {
    let clip = PolicyLoss::Clipped {
        low: 0.2,
        high: 0.28,
        dual: Some(3.0),
    };
    vec![
        objective(clip, Some(KlEstimator::K3), 0.01),
        objective(PolicyLoss::Gspo { low: 0.2, high: 0.2 }, Some(KlEstimator::K2), 0.0),
        objective(PolicyLoss::Reinforce, Some(KlEstimator::K1), 0.0),
        objective(PolicyLoss::Sft, None, 0.2),
    ]
}

/// Old log-probs near the current ones, so that ratios are near 1 and some are clipped.
fn with_old(weights: &Weights, mut rows: Vec<OwnedRow>) -> Vec<OwnedRow> {
    let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
    let scores = trainer(weights, Device::Cpu).log_probs(&sequences, 0.8, 64).unwrap();
    for (row, scores) in rows.iter_mut().zip(scores) {
        let spread = [-0.5, -0.1, 0.05, 0.12, 0.7, -1.4];
        row.old = scores
            .logprobs
            .iter()
            .zip(spread.iter().cycle())
            .map(|(l, s)| l + s)
            .collect();
        row.reference = scores
            .logprobs
            .iter()
            .zip(spread.iter().rev().cycle())
            .map(|(l, s)| l + s)
            .collect();
    }
    rows
}

fn gradient(
    weights: &Weights,
    rows: &[OwnedRow],
    o: &Objective,
    device: Device,
) -> (LossStats, Vec<(String, Vec<f32>)>) {
    let mut trainer = trainer(weights, device);
    let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
    let stats = trainer.accumulate(&borrowed, o).unwrap();
    (stats, trainer.take_gradients())
}

fn moved(weights: &Weights, name: &str, direction: &[f32], by: f32) -> Weights {
    let tensors = weights.iter().map(|(n, t)| {
        let mut data = t.data.to_vec();
        if n == name {
            data.iter_mut().zip(direction).for_each(|(w, d)| *w += by * d);
        }
        (
            n.to_owned(),
            HostTensor {
                shape: t.shape.clone(),
                data: data.into(),
            },
        )
    });
    Weights::from_tensors(weights.config().clone(), tensors.collect()).unwrap()
}

fn relative_distance(a: &[(String, Vec<f32>)], b: &[(String, Vec<f32>)]) -> f64 {
    let pairs = || a.iter().flat_map(|(_, g)| g).zip(b.iter().flat_map(|(_, g)| g));
    let difference: f64 = pairs().map(|(x, y)| f64::from(x - y).powi(2)).sum();
    let size: f64 = pairs().map(|(x, _)| f64::from(*x).powi(2)).sum();
    (difference / size).sqrt()
}

#[test]
fn gradients_are_the_slopes_of_the_loss() {
    for family in FAMILIES {
        let weights = weights(config(family), 3);
        let rows = with_old(&weights, rows(3, 37, 11));
        for o in objectives() {
            let (_, gradients) = gradient(&weights, &rows, &o, Device::Cpu);
            for (name, g) in &gradients {
                let norm = g.iter().map(|x| f64::from(*x).powi(2)).sum::<f64>().sqrt();
                assert!(norm > 0.0, "{family:?} {o:?}: no gradient reaches {name}");
                let direction: Vec<f32> = g.iter().map(|x| (f64::from(*x) / norm) as f32).collect();
                let h = 2e-3;
                let loss = |by| {
                    gradient(&moved(&weights, name, &direction, by), &rows, &o, Device::Cpu)
                        .0
                        .loss
                };
                let slope = (loss(h) - loss(-h)) / f64::from(2.0 * h);
                let error = (slope - norm).abs();
                assert!(
                    error < 0.01 * norm + 1e-3,
                    "{family:?} {o:?} {name}: slope {slope}, gradient {norm}"
                );
            }
        }
    }
}

#[test]
fn fused_and_burn_agree() {
    for family in FAMILIES {
        let weights = weights(config(family), 5);
        let rows = with_old(&weights, rows(5, 37, 12));
        let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
        let ours = trainer(&weights, Device::Cpu).log_probs(&sequences, 0.8, 1000).unwrap();
        let burn = trainer(&weights, Device::CpuReference)
            .log_probs(&sequences, 0.8, 1000)
            .unwrap();
        for (a, b) in ours.iter().zip(&burn) {
            let pairs = a
                .logprobs
                .iter()
                .zip(&b.logprobs)
                .chain(a.entropy.iter().zip(&b.entropy));
            pairs.for_each(|(x, y)| assert!((x - y).abs() < 1e-4, "{family:?}: {x} {y}"));
        }
        for o in objectives() {
            let (a, ours) = gradient(&weights, &rows, &o, Device::Cpu);
            let (b, burn) = gradient(&weights, &rows, &o, Device::CpuReference);
            assert!(
                (a.loss - b.loss).abs() < 1e-4 * b.loss.abs().max(1.0),
                "{family:?} {o:?}: {a:?} {b:?}"
            );
            assert_eq!(a.tokens, b.tokens);
            let distance = relative_distance(&burn, &ours);
            assert!(distance < 1e-4, "{family:?} {o:?}: gradients differ by {distance}");
        }
    }
}

#[test]
fn the_cut_into_micro_batches_does_not_matter() {
    let weights = weights(config(Family::Llama), 7);
    let rows = with_old(&weights, rows(14, 37, 13));
    let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
    for o in objectives() {
        let (whole, once) = gradient(&weights, &rows, &o, Device::Cpu);
        let mut trainer = trainer(&weights, Device::Cpu);
        let mut sum = LossStats::default();
        for part in borrowed.chunks(2) {
            sum.merge(&trainer.accumulate(part, &o).unwrap());
        }
        let seven = trainer.take_gradients();
        assert!(relative_distance(&once, &seven) < 1e-5, "{o:?}");
        assert!((whole.loss - sum.loss).abs() < 1e-5 * whole.loss.abs(), "{o:?}");
        assert_eq!((whole.tokens, whole.clipped), (sum.tokens, sum.clipped));
    }
}

#[test]
fn a_repeat_gives_the_same_bits() {
    let weights = weights(config(Family::Qwen3), 7);
    let rows = with_old(&weights, rows(9, 37, 14));
    let first = gradient(&weights, &rows, &objectives()[0], Device::Cpu);
    let again = gradient(&weights, &rows, &objectives()[0], Device::Cpu);
    assert_eq!(first, again);
}

#[test]
fn cispo_is_reinforce_with_clamped_weights() {
    let weights = weights(config(Family::Llama), 9);
    let rows = with_old(&weights, rows(4, 37, 15));
    let o = objective(PolicyLoss::Cispo { low: 0.2, high: 0.28 }, None, 0.0);
    let (_, cispo) = gradient(&weights, &rows, &o, Device::Cpu);
    let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
    let scores = trainer(&weights, Device::Cpu).log_probs(&sequences, 0.8, 100).unwrap();
    let mut weighted = rows.clone();
    for (row, scores) in weighted.iter_mut().zip(&scores) {
        for ((a, old), new) in row.advantages.iter_mut().zip(&row.old).zip(&scores.logprobs) {
            *a *= (new - old).exp().clamp(0.8, 1.28);
        }
    }
    let (_, reinforce) = gradient(
        &weights,
        &weighted,
        &objective(PolicyLoss::Reinforce, None, 0.0),
        Device::Cpu,
    );
    assert!(relative_distance(&cispo, &reinforce) < 1e-5);
}

/// Two steps of a single weight by hand: g = 0.5 then −1, lr 0.1, weight decay 0.01, from 1.
#[test]
fn adamw_takes_pytorchs_steps() {
    let config = ModelConfig {
        tie_word_embeddings: true,
        ..config(Family::Llama)
    };
    let mut weights = Weights::init(config, 1).unwrap();
    weights.slots_mut().for_each(|p| *p = vec![1.0; p.len()].into());
    let mut moments = Moments::new(&trained(&weights, None));
    let o = AdamW {
        weight_decay: 0.01,
        ..AdamW::default()
    };
    let all = |g: f32| weights.iter().map(|(_, t)| vec![g; t.data.len()]).collect::<Vec<_>>();
    let (first, second) = (all(0.5), all(-1.0));
    moments.step(&o, 0.1, 1.0, weights.slots_mut(), &first);
    // m̂ = g, v̂ = g²: 1·(1 − 0.001) − 0.1·0.5/(0.5 + 1e-8)
    assert!((weights.at(0)[0] - 0.899).abs() < 1e-6, "{}", weights.at(0)[0]);
    moments.step(&o, 0.1, 1.0, weights.slots_mut(), &second);
    // m = 0.9·0.05 − 0.1 = −0.055, v = 0.999·0.00025 + 0.001 = 0.00124975;
    // m̂ = −0.055/0.19 = −0.2894737, v̂ = 0.00124975/0.001999 = 0.6251876, √v̂ = 0.7906881
    // 0.899·0.999 + 0.1·0.2894737/0.7906881 = 0.9347114
    assert!((weights.at(0)[0] - 0.934_711_4).abs() < 1e-5, "{}", weights.at(0)[0]);
    assert_eq!(moments.steps(), 2);
}

#[test]
fn clipping_scales_the_step_and_reports_the_norm_before() {
    let weights = weights(config(Family::Llama), 9);
    let rows = with_old(&weights, rows(4, 37, 15));
    let (_, g) = gradient(&weights, &rows, &objectives()[0], Device::Cpu);
    let norm = g
        .iter()
        .flat_map(|(_, g)| g)
        .map(|x| f64::from(*x).powi(2))
        .sum::<f64>()
        .sqrt();
    let mut trainer = trainer(&weights, Device::Cpu);
    let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
    trainer.accumulate(&borrowed, &objectives()[0]).unwrap();
    let step = trainer.apply(1e-3, Some(norm / 10.0)).unwrap();
    assert!((step.grad_norm - norm).abs() < 1e-6 * norm);
    assert_eq!(step.step, 1);
    let first = &trainer.moments.first_of(0)[0];
    assert!((first - 0.1 * g[0].1[0] / 10.0).abs() < 1e-6);
    assert!(trainer.weights().get("model.norm.weight") != weights.get("model.norm.weight"));
}

#[test]
fn a_gradient_that_is_not_finite_changes_nothing() {
    let weights = weights(config(Family::Llama), 9);
    let mut rows = rows(2, 37, 15);
    rows[0].coefficients[0] = f32::NAN;
    rows[0].mask[0] = 1;
    let mut trainer = trainer(&weights, Device::Cpu);
    let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
    let stats = trainer
        .accumulate(&borrowed, &objective(PolicyLoss::Sft, None, 0.0))
        .unwrap();
    assert!(stats.non_finite);
    assert!(matches!(
        trainer.apply(1e-3, Some(1.0)),
        Err(TrainerError::NonFiniteGradient { .. })
    ));
    assert_eq!(
        trainer.weights().get("model.norm.weight"),
        weights.get("model.norm.weight")
    );
    assert_eq!(trainer.apply(1e-3, Some(1.0)).unwrap().grad_norm, 0.0);
}

#[test]
fn optimizer_state_survives_the_disk() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("optimizer.safetensors");
    let weights = weights(config(Family::Qwen3), 9);
    let rows = with_old(&weights, rows(4, 37, 15));
    let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
    let mut straight = trainer(&weights, Device::Cpu);
    let step = |t: &mut Trainer| {
        t.accumulate(&borrowed, &objectives()[0]).unwrap();
        t.apply(1e-3, Some(1.0)).unwrap();
    };
    step(&mut straight);
    straight.save_optimizer(&file).unwrap();
    let mut resumed = trainer(&straight.weights(), Device::Cpu);
    resumed.load_optimizer(&file).unwrap();
    step(&mut straight);
    step(&mut resumed);
    assert_eq!(resumed.step(), 2);
    for ((name, a), (_, b)) in straight.weights().iter().zip(resumed.weights().iter()) {
        assert_eq!(a, b, "{name}");
    }
    let error = trainer(&crate::test_models::weights(config(Family::Llama), 9), Device::Cpu).load_optimizer(&file);
    assert!(error.unwrap_err().to_string().contains("exp_avg."));
}

#[test]
fn rows_that_do_not_fit_are_named() {
    let weights = weights(config(Family::Llama), 9);
    let mut trainer = trainer(&weights, Device::Cpu);
    let o = objective(PolicyLoss::Reinforce, None, 0.0);
    let good = rows(1, 37, 1).remove(0);
    let mut refused = |change: fn(&mut OwnedRow)| {
        let mut bad = good.clone();
        change(&mut bad);
        trainer
            .accumulate(&[good.row(), bad.row()], &o)
            .unwrap_err()
            .to_string()
    };
    assert!(refused(|r| r.tokens[0] = 37).contains("row 1: token 37 is not below vocab_size 37"));
    assert!(refused(|r| r.start = 0).contains("row 1: `loss_start` = 0"));
    assert!(refused(|r| r.mask.clear()).contains("row 1: `mask` has 0 elements"));
    assert!(refused(|r| r.tokens.resize(300, 0)).contains("max_position_embeddings"));
    let cold = Objective { temperature: 0.0, ..o };
    assert!(
        trainer
            .accumulate(&[good.row()], &cold)
            .unwrap_err()
            .to_string()
            .contains("`temperature`")
    );
}

#[test]
fn no_gpu_is_an_error_in_words() {
    if cuda_available().is_ok() {
        return;
    }
    let refused = Trainer::new(weights(config(Family::Llama), 1), Device::Cuda(0), AdamW::default());
    assert!(matches!(refused.map(|_| ()), Err(TrainerError::NoCuda { .. })));
}

#[test]
fn nothing_to_learn_is_no_step_and_no_nan() {
    let weights = weights(config(Family::Llama), 9);
    let mut trainer = trainer(&weights, Device::Cpu);
    let mut row = rows(1, 37, 1).remove(0);
    row.mask.fill(0);
    let stats = trainer.accumulate(&[row.row()], &objectives()[0]).unwrap();
    assert_eq!((stats.tokens, stats.loss, stats.non_finite), (0.0, 0.0, false));
    assert_eq!(trainer.apply(0.0, None).unwrap().grad_norm, 0.0);
    assert!(trainer.accumulate(&[], &objectives()[0]).is_ok());
    assert!(trainer.log_probs(&[], 1.0, 100).unwrap().is_empty());
}

#[test]
fn a_layer_that_is_run_again_has_the_same_gradient() {
    for family in FAMILIES {
        let weights = weights(config(family), 3);
        let rows = with_old(&weights, rows(5, 37, 11));
        for o in objectives() {
            let (stats, kept) = gradient(&weights, &rows, &o, Device::Cpu);
            let mut again = trainer(&weights, Device::Cpu);
            again.set_recompute(true);
            let borrowed: Vec<_> = rows.iter().map(OwnedRow::row).collect();
            assert_eq!(again.accumulate(&borrowed, &o).unwrap(), stats);
            let distance = relative_distance(&kept, &again.take_gradients());
            assert!(distance < 1e-6, "{family:?} {o:?}: {distance}");
            // It stays on over steps.
            again.accumulate(&borrowed, &o).unwrap();
            again.apply(1e-3, None).unwrap();
            assert_eq!(again.accumulate(&borrowed, &o).unwrap().tokens, stats.tokens);
        }
    }
}
