//! What this implementation computes of a model and rows that others wrote.

use std::collections::BTreeMap;
use std::error::Error;
use std::fs;
use std::path::Path;

use lego_policy::{
    AdamW, DecodeModel, Device, KlEstimator, KlTerm, KvCache, Logits, LoraSpec, Objective, PolicyLoss, Row, Sequence,
    Slot, Trainer, Weights,
};
use serde_json::{Value, json};

use crate::Outcome;

/// One row of `rows.json`.
struct Given {
    tokens: Vec<u32>,
    start: usize,
    mask: Vec<u8>,
    old: Vec<f32>,
    advantages: Vec<f32>,
    coefficients: Vec<f32>,
    reference: Vec<f32>,
}

impl Given {
    fn read(value: &Value) -> Self {
        let floats = |key: &str| -> Vec<f32> {
            value[key]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|x| x.as_f64().map(|x| x as f32))
                .collect()
        };
        Self {
            tokens: floats("tokens").into_iter().map(|t| t as u32).collect(),
            start: value["start"].as_u64().unwrap_or(0) as usize,
            mask: floats("mask").into_iter().map(|m| m as u8).collect(),
            old: floats("old"),
            advantages: floats("advantages"),
            coefficients: floats("coefficients"),
            reference: floats("reference"),
        }
    }

    fn row(&self) -> Row<'_> {
        Row {
            tokens: &self.tokens,
            loss_start: self.start,
            mask: &self.mask,
            old_logprobs: &self.old,
            advantages: &self.advantages,
            coefficients: &self.coefficients,
            importance: &[],
            ref_logprobs: Some(&self.reference),
            experts: &[],
        }
    }
}

fn losses() -> Vec<(&'static str, Objective)> {
    let clipped = PolicyLoss::Clipped {
        low: 0.2,
        high: 0.28,
        dual: Some(3.0),
    };
    let kl = |estimator| {
        Some(KlTerm {
            estimator,
            coefficient: 0.1,
        })
    };
    let objective = |loss, kl, entropy_coeff| Objective {
        loss,
        kl,
        entropy_coeff,
        temperature: 0.9,
    };
    vec![
        ("clipped_k3_entropy", objective(clipped, kl(KlEstimator::K3), 0.01)),
        (
            "gspo_k1",
            objective(PolicyLoss::Gspo { low: 0.1, high: 0.1 }, kl(KlEstimator::K1), 0.0),
        ),
        (
            "cispo_k2",
            objective(PolicyLoss::Cispo { low: 0.2, high: 0.28 }, kl(KlEstimator::K2), 0.0),
        ),
        ("reinforce", objective(PolicyLoss::Reinforce, None, 0.0)),
        ("sft", objective(PolicyLoss::Sft, None, 0.0)),
    ]
}

pub(crate) fn parity(dir: &Path, device: Device) -> Outcome {
    let weights = Weights::load(&dir.join("model"))?;
    let given: Value = serde_json::from_str(&fs::read_to_string(dir.join("rows.json"))?)?;
    let given: Vec<Given> = given.as_array().into_iter().flatten().map(Given::read).collect();
    let rows: Vec<Row<'_>> = given.iter().map(Given::row).collect();
    let sequences: Vec<_> = given
        .iter()
        .map(|g| Sequence {
            tokens: &g.tokens,
            loss_start: g.start,
            experts: &[],
        })
        .collect();
    let (adapter, optimizer) = (
        dir.join("adapter"),
        AdamW {
            weight_decay: 0.01,
            ..AdamW::default()
        },
    );
    let mut trainer = if adapter.is_dir() {
        let spec = LoraSpec::read(&adapter)?;
        let mut trainer = Trainer::with_adapters(weights, "model", spec, 0, device, optimizer)?;
        trainer.load_adapters(&adapter)?;
        trainer
    } else {
        Trainer::new(weights, device, optimizer)?
    };
    let weights = trainer.weights();
    let scores = trainer.log_probs(&sequences, 0.9, 512)?;
    let mut report = json!({
        "logprobs": scores.iter().map(|s| &s.logprobs).collect::<Vec<_>>(),
        "entropy": scores.iter().map(|s| &s.entropy).collect::<Vec<_>>(),
        "decoded": decoded(&weights, &given)?,
    });
    for (name, objective) in losses() {
        let stats = trainer.accumulate(&rows, &objective)?;
        let gradients: BTreeMap<String, Vec<f32>> = trainer.take_gradients().into_iter().collect();
        report[name] = json!({"loss": stats.loss, "clipped": stats.clipped, "gradients": gradients});
    }
    let mut steps = Vec::new();
    for _ in 0..2 {
        let objective = losses()[0].1;
        trainer.accumulate(&rows, &objective)?;
        steps.push(trainer.apply(1e-3, Some(0.5))?.grad_norm);
    }
    report["grad_norms"] = json!(steps);
    let stepped = trainer.weights();
    let tensors: BTreeMap<_, _> = stepped.iter().map(|(name, t)| (name, t.data.to_vec())).collect();
    report["stepped"] = json!(tensors);
    let after = dir.join("adapter_after");
    if trainer.has_adapters() {
        fs::create_dir_all(&after)?;
        trainer.save_adapters(&after)?;
    }
    fs::write(dir.join("out.json"), report.to_string())?;
    Ok(())
}

/// Log-probs (temperature 1) of each row's tokens, decoded one by one, all rows at once.
fn decoded(weights: &Weights, given: &[Given]) -> Result<Vec<Vec<f64>>, Box<dyn Error>> {
    let model = DecodeModel::new(weights);
    let mut caches: Vec<KvCache> = given.iter().map(|_| model.new_cache()).collect();
    let mut out = vec![Vec::new(); given.len()];
    let longest = given.iter().map(|g| g.tokens.len()).max().unwrap_or(0);
    for at in 0..longest.saturating_sub(1) {
        let active = caches.iter_mut().zip(given).filter(|(_, g)| at + 1 < g.tokens.len());
        let mut slots: Vec<_> = active
            .map(|(cache, g)| Slot {
                cache,
                tokens: &g.tokens[at..=at],
            })
            .collect();
        let mut logits = model.forward(&mut slots, Logits::Last)?.into_iter();
        for (row, g) in out.iter_mut().zip(given).filter(|(_, g)| at + 1 < g.tokens.len()) {
            if let Some(logits) = logits.next() {
                let values = logits.last();
                let max = f64::from(values.iter().fold(f32::MIN, |a, b| a.max(*b)));
                let sum: f64 = values.iter().map(|v| (f64::from(*v) - max).exp()).sum();
                row.push(f64::from(values[g.tokens[at + 1] as usize]) - max - sum.ln());
            }
        }
    }
    Ok(out)
}

pub(crate) fn logits(model: &Path, tokens: &Path, out: &Path) -> Outcome {
    let tokens: Vec<u32> = serde_json::from_str(&fs::read_to_string(tokens)?)?;
    let model = DecodeModel::new(&Weights::load(model)?);
    let mut cache = model.new_cache();
    let slot = Slot {
        cache: &mut cache,
        tokens: &tokens,
    };
    let found = model.forward(&mut [slot], Logits::All)?;
    let rows = found
        .iter()
        .flat_map(|slot| (0..tokens.len()).flat_map(|row| slot.row(row)));
    fs::write(out, rows.flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())?;
    Ok(())
}
