//! Drives the policy package for `tests/bench/policy_parity.py`: writes what this implementation computes, or times it.
//!
//! `policy_bench parity DIR DEVICE` reads `DIR/model` and `DIR/rows.json`, and writes scores, gradient and the stepped
//! weights into `DIR/out`. `policy_bench time` prints JSON lines. DEVICE is cpu, cpu-reference or cuda.

use std::{collections::BTreeMap, error::Error, fs, io::Write as _, path::Path, time::Instant};

use lego_policy::{
    AdamW, DecodeModel, Device, KlEstimator, KlTerm, KvCache, Logits, ModelConfig, Objective, PolicyLoss, Row,
    Sequence, Slot, Trainer, Weights,
};
use serde_json::{Value, json};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["parity", dir, on] => parity(Path::new(dir), device(on)?),
        ["time", on] => time(device(on)?),
        _ => Err("usage: policy_bench parity DIR DEVICE | time DEVICE".into()),
    }
}

fn device(name: &str) -> Result<Device, Box<dyn Error>> {
    match name {
        "cpu" => Ok(Device::Cpu),
        "cpu-reference" => Ok(Device::CpuReference),
        "cuda" => Ok(Device::Cuda(0)),
        other => Err(format!("unknown device {other}").into()),
    }
}

fn say(line: &Value) -> Outcome {
    Ok(writeln!(std::io::stdout(), "{line}")?)
}

/// Seconds of processor time that this process has had, by the kernel's account of its threads (Linux).
fn processor_seconds() -> f64 {
    let nanoseconds = |task: fs::DirEntry| -> Option<f64> {
        fs::read_to_string(task.path().join("schedstat"))
            .ok()?
            .split(' ')
            .next()?
            .parse()
            .ok()
    };
    let tasks = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    tasks.filter_map(nanoseconds).sum::<f64>() / 1e9
}

/// The least wall and processor time of `times` runs.
fn best(times: usize, mut run: impl FnMut() -> Outcome) -> Result<(f64, f64), Box<dyn Error>> {
    let mut best = (f64::INFINITY, f64::INFINITY);
    for _ in 0..times {
        let (start, processor) = (Instant::now(), processor_seconds());
        run()?;
        best.0 = best.0.min(start.elapsed().as_secs_f64());
        best.1 = best.1.min(processor_seconds() - processor);
    }
    Ok(best)
}

fn report(what: &str, tokens: usize, (wall, processor): (f64, f64)) -> Outcome {
    say(&json!({
        "what": what, "wall_s": wall, "processor_s": processor,
        "tokens_per_wall_s": tokens as f64 / wall, "tokens_per_processor_s": tokens as f64 / processor,
    }))
}

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

fn parity(dir: &Path, device: Device) -> Outcome {
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
    let mut trainer = Trainer::new(
        weights.clone(),
        device,
        AdamW {
            weight_decay: 0.01,
            ..AdamW::default()
        },
    )?;
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

fn time(device: Device) -> Outcome {
    let weights = Weights::init(ModelConfig::tiny(512), 1)?;
    update(&weights, device)?;
    if device == Device::Cpu {
        let model = DecodeModel::new(&weights);
        for sessions in [1, 8, 16] {
            decode(&model, sessions)?;
        }
        prefill(&model)?;
    }
    Ok(())
}

/// Forward, backward and AdamW over 8 × 256 tokens; the best of several.
fn update(weights: &Weights, device: Device) -> Outcome {
    let tokens: Vec<Vec<u32>> = (0..8)
        .map(|r| (0..256).map(|i| (i * 31 + r * 17) % 512).collect())
        .collect();
    let (mask, old, advantages, coefficients) =
        (vec![1; 255], vec![-6.2; 255], vec![0.5; 255], vec![1.0 / 2040.0; 255]);
    let row = |tokens| Row {
        tokens,
        loss_start: 1,
        mask: &mask,
        old_logprobs: &old,
        advantages: &advantages,
        coefficients: &coefficients,
        importance: &[],
        ref_logprobs: None,
        experts: &[],
    };
    let rows: Vec<Row<'_>> = tokens.iter().map(|tokens| row(tokens)).collect();
    let loss = PolicyLoss::Clipped {
        low: 0.2,
        high: 0.28,
        dual: Some(3.0),
    };
    let objective = Objective {
        loss,
        kl: None,
        entropy_coeff: 0.0,
        temperature: 1.0,
    };
    let mut trainer = Trainer::new(weights.clone(), device, AdamW::default())?;
    let step = best(8, || {
        trainer.accumulate(&rows, &objective)?;
        trainer.apply(1e-5, Some(1.0))?;
        Ok(())
    })?;
    report("update 8x256", 2048, step)?;
    let sequences: Vec<_> = tokens
        .iter()
        .map(|tokens| Sequence {
            tokens,
            loss_start: 1,
            experts: &[],
        })
        .collect();
    let scored = best(5, || {
        trainer.log_probs(&sequences, 1.0, 2048)?;
        Ok(())
    })?;
    report("log_probs 8x256", 2048, scored)
}

/// 64 tokens a session after a prompt of 128; the best of several.
fn decode(model: &DecodeModel, sessions: usize) -> Outcome {
    let prompt: Vec<u32> = (0..128).collect();
    let mut caches: Vec<KvCache> = (0..sessions).map(|_| model.new_cache()).collect();
    let mut slots: Vec<_> = caches.iter_mut().map(|cache| Slot { cache, tokens: &prompt }).collect();
    model.forward(&mut slots, Logits::Last)?;
    let run = best(8, || {
        for cache in &mut caches {
            cache.truncate(128);
        }
        for i in 0..64 {
            let token = [i * 7 % 512];
            let mut slots: Vec<_> = caches.iter_mut().map(|cache| Slot { cache, tokens: &token }).collect();
            model.forward(&mut slots, Logits::Last)?;
        }
        Ok(())
    })?;
    report(&format!("decode {sessions}"), 64 * sessions, run)
}

/// One prompt of 256 tokens into an empty cache; the best of several.
fn prefill(model: &DecodeModel) -> Outcome {
    let prompt: Vec<u32> = (0..256).collect();
    let run = best(10, || {
        let mut cache = model.new_cache();
        model.forward(
            &mut [Slot {
                cache: &mut cache,
                tokens: &prompt,
            }],
            Logits::Last,
        )?;
        Ok(())
    })?;
    report("prefill 256", 256, run)
}
