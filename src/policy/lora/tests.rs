//! Adapters against whole gradients by burn, against numbers by hand, and on disk.
#![expect(clippy::float_cmp, reason = "the same bits")]

use super::*;
use crate::layout::Role;
use crate::objective::{Objective, PolicyLoss};
use crate::test_models::{FAMILIES, OwnedRow, WITH_EXPERTS, config, rows, weights};
use crate::{AdamW, Device, Family, Row, Trainer};

const SFT: Objective = Objective {
    loss: PolicyLoss::Sft,
    kl: None,
    entropy_coeff: 0.0,
    temperature: 0.9,
};

fn spec(config: &ModelConfig) -> LoraSpec {
    LoraSpec {
        rank: 3,
        alpha: 6.0,
        targets: LoraTarget::all_of(config),
    }
}

fn adapted(base: &Weights, device: Device) -> Trainer {
    let spec = spec(base.config());
    Trainer::with_adapters(base.clone(), "base", spec, 5, device, AdamW::default()).unwrap()
}

fn step(trainer: &mut Trainer, rows: &[OwnedRow]) {
    let rows: Vec<Row<'_>> = rows.iter().map(OwnedRow::row).collect();
    trainer.accumulate(&rows, &SFT).unwrap();
    trainer.apply(1e-2, Some(1.0)).unwrap();
}

fn gradients(trainer: &mut Trainer, rows: &[OwnedRow]) -> Vec<(String, Vec<f32>)> {
    let rows: Vec<Row<'_>> = rows.iter().map(OwnedRow::row).collect();
    trainer.accumulate(&rows, &SFT).unwrap();
    trainer.take_gradients()
}

fn same(a: &Weights, b: &Weights) -> bool {
    a.iter().zip(b.iter()).all(|(a, b)| a == b)
}

#[test]
fn fresh_adapters_change_nothing() {
    for family in FAMILIES.into_iter().chain(WITH_EXPERTS) {
        let base = weights(config(family), 3);
        let (plain, adapted) = (
            Trainer::new(base.clone(), Device::Cpu, AdamW::default()).unwrap(),
            adapted(&base, Device::Cpu),
        );
        assert!(same(&adapted.weights(), &base));
        let rows = rows(3, 37, 11);
        let sequences: Vec<_> = rows.iter().map(OwnedRow::sequence).collect();
        let score = |trainer: &Trainer| trainer.log_probs(&sequences, 0.9, 64).unwrap();
        assert_eq!(score(&plain), score(&adapted), "{family:?}");
    }
}

#[test]
fn an_adapters_gradient_is_its_matrix_gradient_brought_down() {
    for family in FAMILIES.into_iter().chain(WITH_EXPERTS) {
        let base = weights(config(family), 3);
        let rows = rows(3, 37, 11);
        let mut fused = adapted(&base, Device::Cpu);
        // So that B is not 0, and both factors have a gradient.
        step(&mut fused, &rows);
        let folder = tempfile::tempdir().unwrap();
        fused.save_adapters(folder.path()).unwrap();
        let mut reference = adapted(&base, Device::CpuReference);
        reference.load_adapters(folder.path()).unwrap();
        let (found, expected) = (gradients(&mut fused, &rows), gradients(&mut reference, &rows));
        assert_eq!(found.len(), expected.len());
        for ((name, found), (other, expected)) in found.iter().zip(&expected) {
            assert_eq!(name, other);
            let size = expected.iter().fold(0.0f32, |most, value| most.max(value.abs()));
            assert!(size > 0.0, "{family:?}: no gradient reaches {name}");
            let far = found
                .iter()
                .zip(expected)
                .map(|(a, b)| (a - b).abs())
                .fold(0.0, f32::max);
            assert!(far < 1e-3 * size, "{family:?} {name}: {far} of {size}");
        }
    }
}

#[test]
fn adapters_alone_learn() {
    for family in FAMILIES.into_iter().chain(WITH_EXPERTS) {
        let base = weights(config(family), 3);
        let mut trainer = adapted(&base, Device::Cpu);
        let names: Vec<String> = gradients(&mut trainer, &rows(3, 37, 11))
            .into_iter()
            .map(|(name, _)| name)
            .collect();
        let targets = spec(base.config()).targets;
        assert!(names.len() <= targets.len() * base.config().num_hidden_layers);
        assert!(names.iter().all(|name| name.contains("_proj.lora")), "{names:?}");
        let floats: usize = trainer
            .lora
            .as_ref()
            .unwrap()
            .adapters()
            .iter()
            .map(|a| a.values.len())
            .sum();
        assert_eq!(floats, spec(base.config()).parameter_count(base.config()));
        step(&mut trainer, &rows(3, 37, 11));
        let after = trainer.weights();
        for ((name, before), (_, after)) in base.iter().zip(after.iter()) {
            let is_target = names.contains(&format!("{}.lora", name.trim_end_matches(".weight")));
            assert_eq!(before != after, is_target, "{family:?} {name}");
        }
        let matrices = base
            .parameters()
            .iter()
            .filter(|p| p.role == Role::Matrix && p.name.contains(".layers."));
        if family == Family::Llama {
            assert_eq!(matrices.count(), names.len(), "all linear maps of a dense model");
        }
    }
}

#[test]
fn merged_weights_and_gradients_are_those_computed_by_hand() {
    let base = weights(config(Family::Llama), 3);
    let spec = LoraSpec {
        rank: 1,
        alpha: 2.0,
        targets: vec![LoraTarget::Query],
    };
    let mut lora = Lora::new(base.clone(), "base", spec, 1).unwrap();
    let (out, from) = (lora.adapters[0].out, lora.adapters[0].from);
    let ramp = |n: usize, by: f32| (0..n).map(|i| by * (i as f32 + 1.0)).collect::<Vec<_>>();
    let (a, b) = (ramp(from, 0.5), ramp(out, 0.25));
    lora.adapters[0].values = [a.clone(), b.clone()].concat().into();
    let slot = lora.adapters[0].slot;
    let (merged, before) = (lora.merged(), base.at(slot));
    // W + 2·B·A: element (1, 2) has B = 0.5 and A = 1.5.
    assert_eq!(merged.at(slot)[from + 2], before[from + 2] + 2.0 * 0.5 * 1.5);
    // dW is 1 at (1, 2) and 0 elsewhere: dA = 2·B[1] at 2, dB = 2·A[2] at 1.
    let mut dw = vec![0.0; out * from];
    dw[from + 2] = 1.0;
    let found = lora.of_matrix(&lora.adapters[0], &dw);
    let mut expected = vec![0.0; from + out];
    (expected[2], expected[from + 1]) = (2.0 * 0.5, 2.0 * 1.5);
    assert_eq!(found, expected);
}

#[test]
fn adapters_and_their_moments_go_on_from_disk() {
    let base = weights(config(Family::Qwen2), 3);
    let rows = rows(3, 37, 11);
    let mut trained = adapted(&base, Device::Cpu);
    (0..2).for_each(|_| step(&mut trained, &rows));
    let folder = tempfile::tempdir().unwrap();
    trained.save_adapters(folder.path()).unwrap();
    let moments = folder.path().join("optimizer.safetensors");
    trained.save_optimizer(&moments).unwrap();
    let mut resumed = adapted(&base, Device::Cpu);
    resumed.load_adapters(folder.path()).unwrap();
    resumed.load_optimizer(&moments).unwrap();
    assert!(same(&trained.weights(), &resumed.weights()));
    step(&mut trained, &rows);
    step(&mut resumed, &rows);
    assert!(same(&trained.weights(), &resumed.weights()));
    assert_eq!(resumed.step(), 3);
    // Its moments are of the adapters alone.
    let of_all = moments.metadata().unwrap().len();
    let adapters = (spec(base.config()).parameter_count(base.config()) * 2 * 4) as u64;
    assert!(
        of_all > adapters && of_all < adapters + 16_384,
        "{of_all} bytes, {adapters} of moments"
    );
}

#[test]
fn what_does_not_fit_is_refused_by_name() {
    let base = weights(config(Family::Llama), 3);
    let refused = |spec: LoraSpec| Lora::new(base.clone(), "base", spec, 1).unwrap_err().to_string();
    let good = spec(base.config());
    for (spec, words) in [
        (
            LoraSpec {
                rank: 0,
                ..good.clone()
            },
            "rank should be at least 1",
        ),
        (
            LoraSpec {
                alpha: f64::NAN,
                ..good.clone()
            },
            "alpha should be a number above 0",
        ),
        (
            LoraSpec {
                targets: Vec::new(),
                ..good.clone()
            },
            "at least one target",
        ),
    ] {
        let error = refused(spec);
        assert!(error.contains(words), "{error}");
    }
    let experts = weights(config(Family::Mixtral), 3);
    let error = Lora::new(experts, "base", good.clone(), 1).unwrap_err().to_string();
    assert!(error.contains("gate_proj has no matrix"), "{error}");

    let folder = tempfile::tempdir().unwrap();
    let mut trainer = adapted(&base, Device::Cpu);
    trainer.save_adapters(folder.path()).unwrap();
    let other = LoraSpec { rank: 4, ..good };
    let mut other = Trainer::with_adapters(base.clone(), "base", other, 5, Device::Cpu, AdamW::default()).unwrap();
    let error = other.load_adapters(folder.path()).unwrap_err().to_string();
    assert!(
        error.contains("expected rank 4") && error.contains("found rank 3"),
        "{error}"
    );
    let file = folder.path().join("adapter_model.safetensors");
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() - 9]).unwrap();
    let before = trainer.weights();
    let error = trainer.load_adapters(folder.path()).unwrap_err().to_string();
    assert!(error.contains("adapter_model.safetensors"), "{error}");
    assert!(same(&before, &trainer.weights()));
    let whole = trainer.load_weights(base.clone()).unwrap_err().to_string();
    assert!(whole.contains("adapters are trained"), "{whole}");
    let mut plain = Trainer::new(base, Device::Cpu, AdamW::default()).unwrap();
    assert!(plain.load_adapters(folder.path()).is_err());
}
