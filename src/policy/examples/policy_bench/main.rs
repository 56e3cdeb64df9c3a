//! Drives the policy package for `tests/bench/policy_parity.py`: writes what this implementation computes, or times it.
//!
//! `policy_bench parity DIR DEVICE` reads `DIR/model` and `DIR/rows.json`, and writes scores, gradient and the stepped
//! weights into `DIR/out`; where there is a `DIR/adapter`, these adapters are trained, and written to `DIR/adapter_after`.
//! `policy_bench time DEVICE [MODEL]` prints JSON lines, of a tiny model or of a folder's. `policy_bench logits MODEL TOKENS.json OUT`
//! writes the logits behind each token of a list, f32, least significant byte first. DEVICE is cpu, cpu-reference or cuda. `policy_bench memory WHAT TOKENS` says what two
//! updates on a row of that length take, WHAT being `weights`, `recompute`, `lora` or `lora-recompute`.

mod parity;

use std::{error::Error, fs, io::Write as _, path::Path, time::Instant};

use lego_policy::{
    AdamW, DecodeModel, Device, KvCache, Logits, LoraSpec, LoraTarget, ModelConfig, Objective, PolicyLoss, Row,
    Sequence, Slot, Trainer, Weights,
};
use parity::{logits, parity};
use serde_json::{Value, json};

type Outcome = Result<(), Box<dyn Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["parity", dir, on] => parity(Path::new(dir), device(on)?),
        ["time", on] => time(device(on)?, &Weights::init(ModelConfig::tiny(512), 1)?, 8),
        ["time", on, model] => time(device(on)?, &Weights::load(Path::new(model))?, 2),
        ["logits", model, tokens, out] => logits(Path::new(model), Path::new(tokens), Path::new(out)),
        ["memory", what, tokens] => memory(what, tokens.parse()?),
        _ => Err(
            "usage: policy_bench parity DIR DEVICE | time DEVICE [MODEL] | logits MODEL TOKENS.json OUT | memory …"
                .into(),
        ),
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

/// Everything is run `times` times, short things more often; the best counts.
fn time(device: Device, weights: &Weights, times: usize) -> Outcome {
    update(weights, device, times)?;
    if device == Device::Cpu {
        let model = DecodeModel::new(weights);
        for sessions in [1, 8, 16] {
            decode(&model, sessions, times)?;
        }
        prefill(&model, times)?;
    }
    Ok(())
}

/// Forward, backward and AdamW over 8 × 256 tokens; the best of several.
fn update(weights: &Weights, device: Device, times: usize) -> Outcome {
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
    let step = best(times, || {
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
    let scored = best(times, || {
        trainer.log_probs(&sequences, 1.0, 2048)?;
        Ok(())
    })?;
    report("log_probs 8x256", 2048, scored)
}

/// 64 tokens a session after a prompt of 128; the best of several.
fn decode(model: &DecodeModel, sessions: usize, times: usize) -> Outcome {
    let prompt: Vec<u32> = (0..128).collect();
    let mut caches: Vec<KvCache> = (0..sessions).map(|_| model.new_cache()).collect();
    let mut slots: Vec<_> = caches.iter_mut().map(|cache| Slot { cache, tokens: &prompt }).collect();
    model.forward(&mut slots, Logits::Last)?;
    let run = best(times, || {
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
fn prefill(model: &DecodeModel, times: usize) -> Outcome {
    let prompt: Vec<u32> = (0..256).collect();
    let run = best(times, || {
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

/// The most memory and the time of two updates on a row of `tokens`, of a model of 12.8 million weights.
fn memory(what: &str, tokens: usize) -> Outcome {
    let config = ModelConfig {
        hidden_size: 384,
        num_hidden_layers: 8,
        num_attention_heads: 6,
        num_key_value_heads: 2,
        head_dim: 64,
        intermediate_size: 1024,
        max_position_embeddings: tokens,
        tie_word_embeddings: true,
        ..ModelConfig::tiny(512)
    };
    let weights = Weights::init(config.clone(), 1)?;
    let mut trainer = if what.starts_with("lora") {
        let spec = LoraSpec {
            rank: 16,
            alpha: 32.0,
            targets: LoraTarget::ALL.to_vec(),
        };
        Trainer::with_adapters(weights, "base", spec, 1, Device::Cpu, AdamW::default())?
    } else {
        Trainer::new(weights, Device::Cpu, AdamW::default())?
    };
    trainer.set_recompute(what.ends_with("recompute"));
    let ids: Vec<u32> = (0..tokens as u32).map(|i| i * 31 % 512).collect();
    let ones = vec![1.0; tokens - 1];
    let row = Row {
        tokens: &ids,
        loss_start: 1,
        mask: &vec![1; tokens - 1],
        old_logprobs: &[],
        advantages: &ones,
        coefficients: &vec![1.0 / tokens as f32; tokens - 1],
        importance: &[],
        ref_logprobs: None,
        experts: &[],
    };
    let objective = Objective {
        loss: PolicyLoss::Sft,
        kl: None,
        entropy_coeff: 0.0,
        temperature: 1.0,
    };
    let before = peak();
    let time = best(2, || {
        trainer.accumulate(&[row], &objective)?;
        trainer.apply(1e-5, Some(1.0))?;
        Ok(())
    })?;
    say(&json!({
        "what": what, "tokens": tokens, "parameters": config.parameter_count(), "peak_mib": peak(),
        "before_first_update_mib": before, "update_wall_s": time.0, "update_processor_s": time.1,
    }))
}

/// The most memory that this process has had, in MiB, by the kernel's account (Linux).
fn peak() -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
        .unwrap_or(f64::NAN)
        / 1024.0
}
