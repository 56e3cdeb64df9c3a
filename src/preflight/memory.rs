//! `memory`: what the embedded trainer and engine take at most, term by term, against what this machine has.
//!
//! The trainer holds the weights as numbers, as tensors, packed for its kernels and transposed for the way back (4), AdamW's
//! moments (2), and the gradients of each worker twice while one is added to the other; the engine holds its own. Its keys and
//! values stay for a session's next turn until the weights change, so that a step's sessions add up. Measured by
//! `tests/bench/memory_peak.py` on models of 2.8 and 12.8 million weights whose answers fill the window, with two workers: the
//! estimate is 10% below to 3% above the peak, in eight configurations.

use std::fmt::Write as _;

use lego_policy::ModelConfig;

use super::{Check, Context, Finding, Purpose, model, tasks};
use crate::config::{AdvantageName, ByteSize, DeviceName, EngineKind, Loaded};
use crate::train::lora_spec;

pub(super) struct Memory;

/// Floats of activations that a worker keeps; beyond that it keeps each layer's input alone.
const KEPT: u64 = 1 << 28;
/// Floats of probabilities that a worker keeps.
const KEPT_PROBABILITIES: u64 = 1 << 24;
/// Floats of logits that a worker has at a time.
const LOGITS: u64 = 1 << 20;
/// Floats that the workers' gradients may take together.
const GRADIENTS: u64 = 1 << 30;
/// What a run of the smallest model takes: the program, its threads, tokenizer, sandboxes and rows.
const BASE: u64 = 130 << 20;
const FLOAT: u64 = 4;
/// Terms that are bounds.
const BOUNDS: [&str; 3] = ["keys and values", "activations", "log-probs"];

impl Check for Memory {
    fn id(&self) -> &'static str {
        "memory"
    }

    fn title(&self) -> &'static str {
        "weights, gradients, caches and activations fit"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        match () {
            () if context.run.config.policy.device != DeviceName::Cpu => {
                Some("what a GPU holds is asked of the GPU (check `gpu`)")
            }
            () if !context.purpose.trains() => Some("nothing is trained"),
            () => Some("the model's config.json or this machine's memory cannot be read"),
        }
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let config = &run.config;
        if !context.purpose.trains() || config.policy.device != DeviceName::Cpu {
            return Vec::new();
        }
        let (Some(shape), Some(there)) = (model::shape(&config.policy), machine()) else {
            return Vec::new();
        };
        let terms = terms(context, &shape);
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

/// Bytes of the weights as the trainer holds them.
pub(super) fn weight_bytes(shape: &ModelConfig) -> u64 {
    shape.parameter_count() as u64 * FLOAT
}

/// Floats that one token takes in an update: in each layer, and beside the layers.
fn floats_of_a_token(shape: &ModelConfig) -> (u64, u64) {
    let hidden = shape.hidden_size as u64;
    let queries = (shape.num_attention_heads * shape.head_dim) as u64;
    let keys = (shape.num_key_value_heads * shape.head_dim) as u64;
    let (inner, wide) = match &shape.moe {
        None => (3 * shape.intermediate_size, shape.intermediate_size),
        Some(moe) => {
            let width = moe.per_token * (3 * moe.intermediate_size + 2 * shape.hidden_size);
            (moe.experts + width, moe.per_token * moe.intermediate_size)
        }
    };
    let in_a_layer = 5 * hidden + 3 * queries + 3 * keys + inner as u64;
    // Rows and their gradient, the head's, and what a layer's way back needs.
    let beside = 7 * hidden + wide as u64 + 2 * queries + 4 * keys;
    (in_a_layer, beside)
}

/// Rows and their tokens that are computed at a time.
struct MicroBatch {
    rows: u64,
    window: u64,
}

impl MicroBatch {
    fn of(run: &Loaded, shape: &ModelConfig) -> Self {
        let (data, rollout, train) = (&run.config.data, &run.config.rollout, &run.config.train);
        let both = u64::from(data.max_prompt_tokens) + u64::from(data.max_response_tokens);
        let model = run.config.policy.max_model_len.map_or(u64::MAX, u64::from);
        let window = both.min(model).min(shape.max_position_embeddings as u64).max(1);
        let groups = train.mini_batch.unwrap_or(rollout.groups_per_step);
        let in_mini_batch = u64::from(groups) * u64::from(rollout.group_size);
        let fit = u64::from(train.max_tokens_per_micro_batch) / window;
        Self {
            rows: fit.min(in_mini_batch).max(1),
            window,
        }
    }

    /// Bytes of what an update keeps for its way back.
    fn activations(&self, shape: &ModelConfig, workers: u64, recompute: bool) -> u64 {
        let (in_a_layer, beside) = floats_of_a_token(shape);
        let layers = shape.num_hidden_layers as u64;
        let tokens = self.rows.div_ceil(workers) * self.window;
        let all = tokens * layers * in_a_layer;
        let kept = if all <= KEPT && !recompute {
            all
        } else {
            tokens * (layers * shape.hidden_size as u64 + in_a_layer)
        };
        let probabilities = tokens * shape.vocab_size as u64;
        let head = probabilities.min(LOGITS)
            + Some(probabilities)
                .filter(|all| *all <= KEPT_PROBABILITIES)
                .unwrap_or(0);
        let of_a_worker = (kept + tokens * beside + head) * FLOAT;
        of_a_worker * self.rows.min(workers)
    }

    /// Bytes of scoring without a way back: one layer at a time, in buffers of its own.
    fn log_probs(&self, run: &Loaded, shape: &ModelConfig, threads: u64) -> u64 {
        let (in_a_layer, _) = floats_of_a_token(shape);
        let budget = (u64::from(run.config.train.max_tokens_per_micro_batch) / threads).max(self.window);
        let tokens = (self.rows * self.window).min(budget * threads);
        let head = (tokens * shape.vocab_size as u64).min(threads * LOGITS);
        (tokens * (in_a_layer + 4 * shape.hidden_size as u64) + head) * FLOAT
    }
}

/// Bytes of keys and values: of all sessions that are sampled by the same weights, of a step or of a validation, as long as
/// they may become. Rows of a cache double as they grow, so that half as much again is there.
fn keys_and_values(context: Context<'_>, shape: &ModelConfig, window: u64) -> u64 {
    let config = &context.run.config;
    let rollout = &config.rollout;
    let groups = u64::from(rollout.groups_per_step) + u64::from(rollout.max_extra_groups);
    let mut sessions = groups * u64::from(rollout.group_size);
    if config.eval.every > 0 || config.eval.before_train {
        let tasks: u64 = config.data.val.iter().map(|path| tasks::count(path)).sum();
        sessions = sessions.max(tasks * (u64::from(config.eval.samples) + u64::from(config.eval.greedy)));
    }
    let bytes = (shape.kv_bytes_per_token() as u64).saturating_mul(window);
    let bound = config.engine.kv_memory.0;
    bytes.saturating_mul(sessions).min(bound).saturating_mul(3) / 2
}

/// What takes memory, and how much at most.
fn terms(context: Context<'_>, shape: &ModelConfig) -> Vec<(&'static str, u64)> {
    let run = context.run;
    let config = &run.config;
    let weights = weight_bytes(shape);
    let threads = std::thread::available_parallelism().map_or(1, |threads| threads.get() as u64);
    let batch = MicroBatch::of(run, shape);
    // With adapters, what learns is they; the weights are there once more without them.
    let lora = config.train.lora.as_ref();
    let learns = lora.map_or(weights, |lora| {
        lora_spec(lora, shape).parameter_count(shape) as u64 * FLOAT
    });
    let workers = threads.min(batch.rows).min((GRADIENTS * FLOAT / learns.max(1)).max(1));
    // Where the workers are few, the packing of the next version takes more than they do.
    let gradients = (2 * workers * learns).max(4 * weights);
    let train = config.train.resolve(config.rollout.groups_per_step).ok();
    let mut terms = vec![
        ("weights for the update", 4 * weights),
        ("optimizer", 2 * learns),
        ("gradients", gradients),
    ];
    if config.train.kl_coef > 0.0 {
        terms.push(("reference", 2 * weights));
    }
    if train.is_some_and(|train| train.advantage == AdvantageName::Gae) {
        terms.push(("critic", (6 + (2 * workers).max(4)) * weights));
    }
    if config.engine.kind == EngineKind::Embedded {
        terms.push(("engine", weights));
        terms.push(("keys and values", keys_and_values(context, shape, batch.window)));
    }
    terms.push(("activations", batch.activations(shape, workers, config.train.recompute)));
    if !config.train.bypass_old_logprob {
        terms.push(("log-probs", batch.log_probs(run, shape, threads)));
    }
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

pub(super) fn shown(bytes: u64) -> ByteSize {
    ByteSize(bytes.next_multiple_of(1 << 20))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, load};

    fn shape() -> ModelConfig {
        // 512·256 + 4·(256·256·4 + 3·256·512 + 2·256) + 256 weights.
        ModelConfig {
            hidden_size: 256,
            num_hidden_layers: 4,
            num_attention_heads: 4,
            num_key_value_heads: 4,
            head_dim: 64,
            intermediate_size: 512,
            max_position_embeddings: 32_768,
            tie_word_embeddings: true,
            ..ModelConfig::tiny(512)
        }
    }

    fn of(more: &str) -> Vec<(&'static str, u64)> {
        let text = format!(
            "rollout.groups_per_step = 2\nrollout.group_size = 4\ndata.max_prompt_tokens = 128\n\
             data.max_response_tokens = 896\ntrain.mini_batch = 2\n{more}"
        );
        let run = load(&Layers::text(&text)).unwrap();
        let context = Context {
            run: &run,
            purpose: Purpose::Whole,
        };
        terms(context, &shape())
    }

    fn term(terms: &[(&'static str, u64)], name: &str) -> u64 {
        terms.iter().find(|term| term.0 == name).map_or(0, |term| term.1)
    }

    #[test]
    fn the_terms_by_hand() {
        let weights = shape().parameter_count() as u64 * 4;
        assert_eq!(weights, 4 * 2_754_816);
        // One row at a time, of 1024 tokens; one worker, so that the next version's packing counts.
        let one = of("train.max_tokens_per_micro_batch = 1024\ntrain.bypass_old_logprob = true");
        assert_eq!(term(&one, "weights for the update"), 4 * weights);
        assert_eq!(term(&one, "gradients"), 4 * weights);
        assert_eq!(
            (term(&one, "engine"), term(&one, "reference"), term(&one, "log-probs")),
            (weights, 0, 0)
        );
        // A layer: 5·256 + 3·256 + 3·256 + 3·512 = 4352 a token; beside: 7·256 + 512 + 2·256 + 4·256 = 3840; probabilities twice.
        assert_eq!(term(&one, "activations"), 4 * 1024 * (4 * 4352 + 3840 + 2 * 512));
        // Eight sessions of 1024 tokens, each of 4 layers · 2 · 256 floats, and half as much again.
        assert_eq!(term(&one, "keys and values"), 8 * 1024 * 4 * 2 * 256 * 4 * 3 / 2);
        // All eight rows at a time take eight times as much, however many workers share them, but for logits.
        let all = of("train.max_tokens_per_micro_batch = 8192");
        assert!(term(&all, "activations") >= 8 * 4 * 1024 * (4 * 4352 + 3840 + 512));
        assert!(term(&all, "log-probs") >= 4 * 8192 * (4352 + 4 * 256));
        // A window that the policy bounds, and a cache that the engine does.
        let small = of("policy.max_model_len = 512\nengine.kv_memory = \"1MiB\"");
        assert_eq!(term(&small, "keys and values"), (1 << 20) * 3 / 2);
        assert!(machine().unwrap() > 1 << 20);
        let critic = of("train.algorithm = \"ppo\"\ntrain.max_tokens_per_micro_batch = 1024");
        assert_eq!(term(&critic, "critic"), 10 * weights);
        // Of a layer's seven maps, 4 rows and columns for each of their inputs and outputs.
        let adapters = of("[train.lora]\nrank = 4\n");
        let ends = 4 * (256 + 256) + 3 * (256 + 512);
        assert_eq!(term(&adapters, "optimizer"), 2 * 4 * 4 * ends * 4);
        let named = of("[train.lora]\nrank = 4\ntargets = [\"q_proj\", \"q_proj\"]\n");
        assert_eq!(term(&named, "optimizer"), 2 * 4 * 4 * (256 + 256) * 4);
        // Only what enters each layer is kept where the rest is computed again.
        let again = of("train.max_tokens_per_micro_batch = 1024\ntrain.recompute = true");
        assert_eq!(
            term(&again, "activations"),
            4 * 1024 * (4 * 256 + 4352 + 3840 + 2 * 512)
        );
    }

    #[test]
    fn a_validation_of_many_tasks_fills_the_cache() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("val.jsonl");
        std::fs::write(&path, "{}\n".repeat(10)).unwrap();
        let val = format!(
            "data.val = [\"{}\"]\neval.every = 1\neval.samples = 3\neval.greedy = true",
            path.display()
        );
        assert_eq!(term(&of(&val), "keys and values"), 5 * term(&of(""), "keys and values"));
    }
}
