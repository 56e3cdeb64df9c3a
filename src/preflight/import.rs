//! Variables of another system, as a run.toml: what has a key is written under it, what has none is told.

use std::collections::BTreeMap;
use std::path::Path;

use crate::hub::PREFIX;

/// Ways that a value is written.
#[derive(Clone, Copy)]
enum As {
    Number,
    Text,
    Path,
    /// A folder, or the name of a model of the hub.
    Model,
    Switch,
    /// Of several names for the same thing, ours.
    Named(&'static [(&'static str, &'static str)]),
}

const ESTIMATORS: &[(&str, &str)] = &[
    ("grpo", "grpo"),
    ("rloo", "rloo"),
    ("gae", "gae"),
    ("reinforce_plus_plus", "reinforce_plus_plus"),
    ("reinforce_plus_plus_baseline", "reinforce_plus_plus_baseline"),
    ("opo", "opo"),
    ("remax", "remax"),
];
const LOSSES: &[(&str, &str)] = &[
    ("vanilla", "clipped"),
    ("clipped", "clipped"),
    ("gspo", "gspo"),
    ("cispo", "cispo"),
];
const ENGINES: &[(&str, &str)] = &[("vllm", "vllm"), ("sglang", "sglang")];
const BACKENDS: &[(&str, &str)] = &[
    ("docker", "docker"),
    ("kubernetes", "kubernetes"),
    ("k8s", "kubernetes"),
    ("local", "local"),
    ("process", "local"),
    ("harbor", "harbor"),
];
const WEIGHTS: &[(&str, &str)] = &[
    ("none", "none"),
    ("null", "none"),
    ("token", "token"),
    ("sequence", "sequence"),
];

/// Names of variables, the key that each becomes, and how its value is written.
const KEYS: &[(&str, &str, As)] = &[
    ("MODEL_PATH", "policy.model", As::Model),
    ("MODEL", "policy.model", As::Model),
    ("TOKENIZER_PATH", "policy.tokenizer", As::Model),
    ("MAX_MODEL_LEN", "policy.max_model_len", As::Number),
    ("TRAIN_FILE", "data.train", As::Path),
    ("TRAIN_FILES", "data.train", As::Path),
    ("TRAIN_DATA", "data.train", As::Path),
    ("MAX_PROMPT", "data.max_prompt_tokens", As::Number),
    ("MAX_PROMPT_LENGTH", "data.max_prompt_tokens", As::Number),
    ("MAX_RESP", "data.max_response_tokens", As::Number),
    ("MAX_RESPONSE_LENGTH", "data.max_response_tokens", As::Number),
    ("TRAIN_BSZ", "rollout.groups_per_step", As::Number),
    ("TRAIN_BATCH_SIZE", "rollout.groups_per_step", As::Number),
    ("N_RESP", "rollout.group_size", As::Number),
    ("N_RESP_PER_PROMPT", "rollout.group_size", As::Number),
    ("ROLLOUT_N", "rollout.group_size", As::Number),
    ("TEMPERATURE", "rollout.temperature", As::Number),
    ("TOP_P", "rollout.top_p", As::Number),
    ("TOP_K", "rollout.top_k", As::Number),
    ("PPO_MINI_BSZ", "train.mini_batch", As::Number),
    ("MINI_BSZ", "train.mini_batch", As::Number),
    ("TRAIN_PROMPT_MINI_BSZ", "train.mini_batch", As::Number),
    ("PPO_MAX_TOKEN_LEN", "train.max_tokens_per_micro_batch", As::Number),
    ("ADV_ESTIMATOR", "train.advantage", As::Named(ESTIMATORS)),
    ("POLICY_LOSS_MODE", "train.loss", As::Named(LOSSES)),
    ("LOSS_MODE", "train.loss", As::Named(LOSSES)),
    ("LOSS_AGG_MODE", "train.loss_agg_mode", As::Text),
    ("CLIP_LOW", "train.clip_low", As::Number),
    ("CLIP_RATIO_LOW", "train.clip_low", As::Number),
    ("CLIP_HIGH", "train.clip_high", As::Number),
    ("CLIP_RATIO_HIGH", "train.clip_high", As::Number),
    ("LR", "train.lr", As::Number),
    ("ACTOR_LR", "train.lr", As::Number),
    ("LR_WARMUP_STEPS", "train.warmup", As::Number),
    ("WEIGHT_DECAY", "train.weight_decay", As::Number),
    ("GRAD_CLIP", "train.grad_clip", As::Number),
    ("TOTAL_STEPS", "train.steps", As::Number),
    ("TOTAL_TRAINING_STEPS", "train.steps", As::Number),
    ("KL_COEF", "train.kl_coef", As::Number),
    ("KL_LOSS_COEF", "train.kl_coef", As::Number),
    ("USE_KL_IN_REWARD", "train.kl_in_reward", As::Switch),
    ("ENTROPY_COEFF", "train.entropy_coeff", As::Number),
    ("ROLLOUT_IS", "train.rollout_correction.rollout_is", As::Named(WEIGHTS)),
    ("TEST_FREQ", "eval.every", As::Number),
    ("VAL_BEFORE_TRAIN", "eval.before_train", As::Switch),
    ("SAVE_FREQ", "checkpoint.every", As::Number),
    ("ROLLOUT_NAME", "engine.kind", As::Named(ENGINES)),
    ("ROLLOUT_ENGINE", "engine.kind", As::Named(ENGINES)),
    ("TOOL_PARSER", "engine.tool_parser", As::Text),
    ("SANDBOX_BACKEND", "sandbox.backend", As::Named(BACKENDS)),
    ("CONCURRENCY", "sandbox.concurrency", As::Number),
    ("EXP_NAME", "run.name", As::Text),
    ("EXPERIMENT_NAME", "run.name", As::Text),
    ("PROJECT_NAME", "run.project", As::Text),
    ("SEED", "run.seed", As::Number),
    ("AGENT", "scaffold.name", As::Text),
    ("MAX_TURNS", "scaffold.max_turns", As::Number),
];

/// Variables that mean something there and have no place here, with the reason.
const WITHOUT: &[(&str, &str)] = &[
    (
        "GEN_TP",
        "how many devices a server spreads over is the server's own flag (`--tensor-parallel-size`)",
    ),
    (
        "SP_SIZE",
        "the trainer computes on one device: there is no sequence parallelism",
    ),
    ("NNODES", "the trainer computes on one machine"),
    ("NGPUS_PER_NODE", "the trainer computes on one device (`policy.device`)"),
    ("STALENESS", "asynchronous training has keys of its own below `[async]`"),
    (
        "STALENESS_THRESHOLD",
        "asynchronous training has keys of its own below `[async]`",
    ),
    (
        "TRIGGER_PARAMETER_SYNC_STEP",
        "asynchronous training has keys of its own below `[async]`",
    ),
    ("OFFLOAD", "nothing is offloaded"),
    (
        "GPU_MEMORY_UTILIZATION",
        "a flag of the server, or `engine.kv_memory` of the embedded engine",
    ),
];

/// What became of the variables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Imported {
    /// The file.
    pub toml: String,
    /// Keys in it.
    pub keys: usize,
    /// What has no place in it, and why.
    pub notes: Vec<String>,
}

/// Reads `NAME=value` lines, as of an env file or a shell script.
pub fn from_variables(text: &str) -> Imported {
    let (mut sections, mut imported): (BTreeMap<&str, BTreeMap<&str, String>>, Imported) = Default::default();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=').map(|(name, value)| (name.trim(), plain(value))) else {
            imported.notes.push(format!("line {}: no `NAME=value`", at + 1));
            continue;
        };
        if crate::config::is_secret(name, value) {
            imported
                .notes
                .push(format!("{name}: a secret stays in the environment"));
        } else if let Some((_, key, kind)) = KEYS.iter().find(|(known, ..)| *known == name) {
            match written(value, *kind) {
                Ok(value) => {
                    let (section, key) = key.rsplit_once('.').unwrap_or(("", key));
                    sections.entry(section).or_default().insert(key, value);
                }
                Err(expected) => imported
                    .notes
                    .push(format!("{name}: `{value}` for {key}: expected {expected}")),
            }
        } else if let Some((_, why)) = WITHOUT.iter().find(|(known, _)| *known == name) {
            imported.notes.push(format!("{name}: {why}"));
        } else {
            imported.notes.push(format!("{name}: not known here"));
        }
    }
    imported.keys = sections.values().map(BTreeMap::len).sum();
    for (section, keys) in &sections {
        let between = if imported.toml.is_empty() { "" } else { "\n" };
        imported.toml += &format!("{between}[{section}]\n");
        for (key, value) in keys {
            imported.toml += &format!("{key} = {value}\n");
        }
    }
    imported
}

/// A value without its quotes and what is said behind it.
fn plain(value: &str) -> &str {
    let value = value.trim();
    for quote in ['"', '\''] {
        if let Some(inner) = value.strip_prefix(quote)
            && let Some((inner, _)) = inner.split_once(quote)
        {
            return inner;
        }
    }
    value.split(" #").next().unwrap_or(value).trim()
}

fn written(value: &str, kind: As) -> Result<String, String> {
    let quoted = || toml::Value::String(value.to_owned()).to_string();
    match kind {
        As::Number if value.parse::<f64>().is_ok_and(f64::is_finite) => Ok(value.to_owned()),
        As::Number => Err("a number".to_owned()),
        As::Switch => match value.to_lowercase().as_str() {
            "true" | "1" | "yes" | "on" => Ok("true".to_owned()),
            "false" | "0" | "no" | "off" => Ok("false".to_owned()),
            _ => Err("true or false".to_owned()),
        },
        As::Named(names) => names
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(value))
            .map(|(_, ours)| format!("\"{ours}\""))
            .ok_or_else(|| {
                format!(
                    "one of {}",
                    names.iter().map(|name| name.0).collect::<Vec<_>>().join(", ")
                )
            }),
        As::Text | As::Path | As::Model if value.is_empty() || value.contains('$') => {
            Err("a value without variables of the shell".to_owned())
        }
        As::Model if named_on_a_hub(value) && !Path::new(value).exists() => Ok(format!("\"{PREFIX}{value}\"")),
        As::Text | As::Path | As::Model => Ok(quoted()),
    }
}

/// Whether a text has the form `org/name`.
pub(super) fn named_on_a_hub(text: &str) -> bool {
    let plain = |part: &str| {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        !part.is_empty() && !part.starts_with('.') && part.chars().all(fits)
    };
    text.split_once('/')
        .is_some_and(|(org, name)| plain(org) && plain(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Layers, load};

    #[test]
    fn what_is_known_becomes_a_file_that_loads_and_the_rest_is_told() {
        let text = "# old\nexport TRAIN_BSZ=32\nN_RESP=8\nMAX_PROMPT=2048\nMAX_RESP='4096' # tokens\nADV_ESTIMATOR=grpo\nPOLICY_LOSS_MODE=gspo\n\
                    CLIP_LOW=3e-4\nCLIP_HIGH=4e-4\nGEN_TP=4\nSTALENESS=0.5\nLR=1e-6\nHF_TOKEN=hf_abcdefghijkl\nWHAT=ever\nN_RESP_PER_PROMPT=many\n\
                    MODEL_PATH=$HOME/model\nnonsense\n";
        let imported = from_variables(text);
        assert_eq!(imported.keys, 9, "{}", imported.toml);
        let run = load(&Layers::text(&imported.toml)).unwrap();
        assert_eq!(
            (run.config.rollout.groups_per_step, run.config.rollout.group_size),
            (32, 8)
        );
        assert!((run.config.train.lr - 1e-6).abs() < 1e-12);
        let told = imported.notes.join("\n");
        for part in [
            "GEN_TP",
            "STALENESS",
            "HF_TOKEN: a secret",
            "WHAT: not known",
            "N_RESP_PER_PROMPT: `many`",
            "MODEL_PATH",
            "line 17",
        ] {
            assert!(told.contains(part), "{part} in {told}");
        }
        assert!(!told.contains("hf_abc") && !imported.toml.contains("hf_abc"));
    }

    #[test]
    fn a_model_by_name_is_one_of_the_hub() {
        let toml = |text: &str| from_variables(text).toml;
        assert_eq!(
            toml("MODEL_PATH=\"Qwen/Qwen3-8B\""),
            "[policy]\nmodel = \"hf:Qwen/Qwen3-8B\"\n"
        );
        assert_eq!(
            toml("MODEL=/models/Qwen3-8B"),
            "[policy]\nmodel = \"/models/Qwen3-8B\"\n"
        );
        // A folder that is there is meant.
        assert_eq!(toml("MODEL=src/preflight"), "[policy]\nmodel = \"src/preflight\"\n");
    }

    #[test]
    fn every_key_exists() {
        let reference = crate::config::reference();
        for (name, key, _) in KEYS {
            let last = key.rsplit('.').next().unwrap();
            assert!(reference.contains(&format!("| `{last}` |")), "{name}: {key}");
        }
    }
}
