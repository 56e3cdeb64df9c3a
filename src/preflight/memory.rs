//! `memory`: what the embedded trainer and engine take at most, term by term, against what this machine has.
//!
//! The trainer holds the weights as numbers, as tensors, packed for its kernels and transposed for the way back (4), AdamW's
//! moments (2), and the gradients of each worker; the engine holds its own, and while new ones are published both. Measured on
//! random models of 12.8 and 50.7 million weights with two workers: within 4%, of which nearly all is these terms.

use std::fmt::Write as _;

use lego_policy::{LoraSpec, LoraTarget, ModelConfig};

use super::{Check, Context, Finding, Purpose};
use crate::config::{AdvantageName, ByteSize, DeviceName, EngineKind, Loaded};

pub(super) struct Memory;

/// Floats of activations that a worker keeps; beyond that it keeps each layer's input alone.
const KEPT: u64 = 1 << 28;
/// Floats that the workers' gradients may take together.
const GRADIENTS: u64 = 1 << 30;
/// The program itself, its threads and buffers.
const BASE: u64 = 64 << 20;
const FLOAT: u64 = 4;
/// Terms that are bounds.
const BOUNDS: [&str; 2] = ["keys and values", "activations"];

impl Check for Memory {
    fn id(&self) -> &'static str {
        "memory"
    }

    fn title(&self) -> &'static str {
        "weights, gradients, caches and activations fit"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let config = &run.config;
        if !context.purpose.trains() || config.policy.device != DeviceName::Cpu {
            return Vec::new();
        }
        let shape = std::fs::read_to_string(config.policy.model.join("config.json")).ok();
        let (Some(shape), Some(there)) = (shape.and_then(|text| ModelConfig::from_json(&text).ok()), machine()) else {
            return Vec::new();
        };
        let terms = terms(run, &shape);
        let peak: u64 = terms.iter().map(|term| term.1).sum();
        // Caches and activations are bounds that short episodes never reach; the others are taken in any case.
        let sure = peak
            - terms
                .iter()
                .filter(|term| BOUNDS.contains(&term.0))
                .map(|term| term.1)
                .sum::<u64>();
        let mut told = format!("about {} at most:", shown(peak));
        for (name, bytes) in &terms {
            let _ = write!(told, " {name} {},", shown(*bytes));
        }
        let told = format!("{} of {} here", told.trim_end_matches(','), shown(there));
        let help = "smaller `train.max_tokens_per_micro_batch`, `engine.kv_memory` or `engine.max_running`, or a smaller model";
        if sure > there {
            return vec![Finding::fatal(self.id(), told).at(run, "policy.model").help(help)];
        }
        if context.purpose != Purpose::Whole {
            return Vec::new();
        }
        if peak * 10 > there * 9 {
            return vec![Finding::warn(self.id(), told).at(run, "policy.model").help(help)];
        }
        vec![Finding::pass(self.id(), told)]
    }
}

/// What takes memory, and how much at most.
fn terms(run: &Loaded, shape: &ModelConfig) -> Vec<(&'static str, u64)> {
    let config = &run.config;
    let weights = shape.parameter_count() as u64 * FLOAT;
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let rows = u64::from(config.rollout.groups_per_step) * u64::from(config.rollout.group_size);
    let window = u64::from(config.data.max_prompt_tokens) + u64::from(config.data.max_response_tokens);
    let tokens = u64::from(config.train.max_tokens_per_micro_batch).min(rows * window);
    let layers = shape.num_hidden_layers as u64;
    // With adapters, what learns is they; the weights are there once more without them.
    let lora = config.train.lora.as_ref();
    let learns = lora.map_or(weights, |lora| {
        let (rank, alpha) = (lora.rank as usize, lora.alpha);
        let targets = LoraTarget::all_of(shape);
        LoraSpec { rank, alpha, targets }.parameter_count(shape) as u64 * FLOAT
    });
    let workers = threads.min(rows).min((GRADIENTS * FLOAT / learns.max(1)).max(1));
    let heads = ((shape.num_attention_heads + shape.num_key_value_heads) * shape.head_dim) as u64;
    let each = 5 * shape.hidden_size as u64 + 3 * heads + 3 * shape.intermediate_size as u64;
    let again = tokens * (layers * shape.hidden_size as u64 + each);
    let kept = if config.train.recompute {
        again
    } else {
        (tokens * layers * each).min(workers * KEPT)
    };
    let activations = kept + tokens * shape.vocab_size.min(4096) as u64;
    let mut terms = vec![
        ("weights for the update", 4 * weights),
        ("optimizer", 2 * learns),
        ("gradients", workers * learns),
    ];
    if config.train.kl_coef > 0.0 {
        terms.push(("reference", 2 * weights));
    }
    if config
        .train
        .resolve(config.rollout.groups_per_step)
        .is_ok_and(|train| train.advantage == AdvantageName::Gae)
    {
        terms.push(("critic", (6 + workers) * weights));
    }
    if config.engine.kind == EngineKind::Embedded {
        terms.push(("engine", 2 * weights));
        let cache = shape.kv_bytes_per_token() as u64 * window * u64::from(config.engine.max_running);
        terms.push(("keys and values", config.engine.kv_memory.0.min(cache)));
    }
    terms.push(("activations", activations * FLOAT));
    terms.push(("the rest", BASE));
    terms
}

/// Bytes that this process may use: the machine's, or its control group's.
fn machine() -> Option<u64> {
    let info = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = info.lines().find(|line| line.starts_with("MemTotal:"))?;
    let all = line.split_whitespace().nth(1)?.parse::<u64>().ok()? << 10;
    let group = std::fs::read_to_string("/sys/fs/cgroup/memory.max").ok();
    let bound = group
        .and_then(|text| text.trim().parse::<u64>().ok())
        .unwrap_or(u64::MAX);
    Some(all.min(bound))
}

fn shown(bytes: u64) -> ByteSize {
    ByteSize(bytes.next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, load};

    #[test]
    fn the_terms_are_those_that_were_measured() {
        // 512·384 + 8·(384·384·2 + 2·384·128 + 3·384·1024 + 2·384) + 384 weights; peak 573 MB of a first step.
        let shape = ModelConfig {
            hidden_size: 384,
            num_hidden_layers: 8,
            num_attention_heads: 6,
            num_key_value_heads: 2,
            head_dim: 64,
            intermediate_size: 1024,
            tie_word_embeddings: true,
            ..ModelConfig::tiny(512)
        };
        let run = load(&Layers::text("rollout.groups_per_step = 1\nrollout.group_size = 2\ndata.max_prompt_tokens = 4\ndata.max_response_tokens = 4\n")).unwrap();
        let terms = terms(&run, &shape);
        let of = |name: &str| terms.iter().find(|term| term.0 == name).map_or(0, |term| term.1);
        let weights = shape.parameter_count() as u64 * 4;
        assert_eq!(
            (of("weights for the update"), of("optimizer"), of("engine")),
            (4 * weights, 2 * weights, 2 * weights)
        );
        assert!(of("gradients") == weights || of("gradients") == 2 * weights);
        assert_eq!(of("reference"), 0);
        let adapters = load(&Layers::text("[train.lora]\nrank = 4\n")).unwrap();
        let terms = super::terms(&adapters, &shape);
        let of = |name: &str| terms.iter().find(|term| term.0 == name).map_or(0, |term| term.1);
        // A layer's seven maps: 4 rows and columns for each of their inputs and outputs.
        let ends = 2 * (384 + 384) + 2 * (384 + 128) + 3 * (384 + 1024);
        assert_eq!(of("optimizer"), 2 * 8 * 4 * ends * FLOAT);
        assert!(machine().unwrap() > 1 << 20);
    }
}
