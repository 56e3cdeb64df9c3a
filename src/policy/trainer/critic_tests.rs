//! A critic: its values and gradients against burn's autodiff and finite differences, and its folder.

use super::*;
use crate::row::ValueRow;
use crate::test_models::{FAMILIES, OwnedRow, config, rows, weights};

/// Values of the rows' states, and the loss and gradient that they give.
fn found(weights: &Weights, rows: &[OwnedRow], device: Device) -> (Vec<Vec<f32>>, ValueStats, Vec<Vec<f32>>) {
    let mut critic = Trainer::new(weights.clone(), device, AdamW::default()).unwrap();
    let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
    let values = critic.values(&sequences, 64).unwrap();
    // The old values lie so that some of the new ones are held.
    let rows: Vec<ValueRow<'_>> = rows.iter().map(value_row).collect();
    let stats = critic.accumulate_values(&rows, 0.5).unwrap();
    (
        values,
        stats,
        critic.take_gradients().into_iter().map(|(_, g)| g).collect(),
    )
}

fn value_row(row: &OwnedRow) -> ValueRow<'_> {
    ValueRow {
        tokens: &row.tokens,
        loss_start: row.start,
        mask: &row.mask,
        old_values: &row.old,
        returns: &row.reference,
        coefficients: &row.coefficients,
    }
}

/// Rows whose old values and returns are of the values' own size.
fn value_rows(seed: u64) -> Vec<OwnedRow> {
    let mut rows = rows(4, 37, seed);
    for row in &mut rows {
        for (old, target) in row.old.iter_mut().zip(&mut row.reference) {
            (*old, *target) = (*old + 3.5, *target + 3.0);
        }
    }
    rows
}

fn norm(values: impl Iterator<Item = f32>) -> f64 {
    values.map(|value| f64::from(value).powi(2)).sum::<f64>().sqrt()
}

#[test]
fn fused_and_burn_agree_on_values_and_gradients() {
    for family in FAMILIES {
        let critic = weights(config(family).critic(), 5);
        let rows = value_rows(8);
        let (values, stats, gradients) = found(&critic, &rows, Device::Cpu);
        let (expected_values, expected, expected_gradients) = found(&critic, &rows, Device::CpuReference);
        for (a, b) in values.iter().flatten().zip(expected_values.iter().flatten()) {
            assert!((a - b).abs() < 1e-4, "{family:?}: {a} {b}");
        }
        assert!(
            (stats.loss - expected.loss).abs() < 1e-5 * expected.loss,
            "{stats:?} {expected:?}"
        );
        assert_eq!((stats.clipped, stats.tokens), (expected.clipped, expected.tokens));
        assert!(stats.clipped > 0.0 && stats.clipped < stats.tokens, "{stats:?}");
        let (a, b) = (gradients.concat(), expected_gradients.concat());
        let difference = norm(a.iter().zip(&b).map(|(a, b)| a - b));
        assert!(difference < 1e-4 * norm(b.iter().copied()), "{family:?}: {difference}");
    }
}

#[test]
fn gradients_are_the_slopes_of_the_value_loss() {
    let critic = weights(config(FAMILIES[2]).critic(), 3);
    let rows = value_rows(11);
    let (_, _, gradients) = found(&critic, &rows, Device::Cpu);
    for (slot, gradient) in gradients.iter().enumerate() {
        let size = norm(gradient.iter().copied());
        let name = critic.parameters()[slot].name.clone();
        assert!(size > 0.0, "no gradient reaches {name}");
        let loss = |by: f32| {
            let mut moved = critic.clone();
            let data = moved.slots_mut().nth(slot).unwrap();
            let along: Vec<f32> = data
                .iter()
                .zip(gradient)
                .map(|(w, g)| w + by * (f64::from(*g) / size) as f32)
                .collect();
            *data = along.into();
            found(&moved, &rows, Device::Cpu).1.loss
        };
        let h = 1e-3;
        let slope = (loss(h) - loss(-h)) / f64::from(2.0 * h);
        assert!(
            (slope - size).abs() < 0.02 * size + 1e-3,
            "{name}: slope {slope}, gradient {size}"
        );
    }
}

#[test]
fn a_fresh_critic_values_everything_at_0_and_learns() {
    let policy = weights(config(FAMILIES[0]), 1);
    let critic = policy.critic();
    assert_eq!(critic.get("model.norm.weight"), policy.get("model.norm.weight"));
    let rows = rows(3, 37, 2);
    let (values, first, _) = found(&critic, &rows, Device::Cpu);
    assert!(values.iter().flatten().all(|value| *value == 0.0));
    let mut trainer = Trainer::new(critic, Device::Cpu, AdamW::default()).unwrap();
    let views: Vec<_> = rows.iter().map(value_row).collect();
    for _ in 0..40 {
        trainer.accumulate_values(&views, 1e6).unwrap();
        trainer.apply(1e-2, Some(1.0)).unwrap();
    }
    let last = trainer.accumulate_values(&views, 1e6).unwrap();
    assert!(last.loss < 0.5 * first.loss, "{first:?} {last:?}");
}

#[test]
fn a_critic_is_no_policy_and_comes_back_from_its_folder() {
    let policy = weights(config(FAMILIES[1]), 1);
    let rows = rows(1, 37, 2);
    let sequence = [rows[0].sequence()];
    let critic = Trainer::new(policy.critic(), Device::Cpu, AdamW::default()).unwrap();
    assert!(
        critic
            .log_probs(&sequence, 1.0, 64)
            .unwrap_err()
            .to_string()
            .contains("a policy")
    );
    let trainer = Trainer::new(policy, Device::Cpu, AdamW::default()).unwrap();
    assert!(
        trainer
            .values(&sequence, 64)
            .unwrap_err()
            .to_string()
            .contains("a critic")
    );
    let folder = tempfile::tempdir().unwrap();
    critic.weights().save(folder.path()).unwrap();
    let back = Weights::load_critic(folder.path()).unwrap();
    assert!(back.iter().zip(critic.weights().iter()).all(|(a, b)| a == b));
    let refused = Weights::load(folder.path()).unwrap_err().to_string();
    assert!(refused.contains("Qwen2ForTokenClassification"), "{refused}");
}
