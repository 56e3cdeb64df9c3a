//! Adapters as PEFT reads and writes them: `adapter_config.json` and `adapter_model.safetensors`.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Value, json};

use super::{Lora, LoraSpec, LoraTarget};
use crate::config::StoredType;
use crate::trainer::TrainerError;
use crate::weights::{HostTensor, load_tensors, write_synced, write_tensors};

const CONFIG: &str = "adapter_config.json";
const TENSORS: &str = "adapter_model.safetensors";

/// What PEFT puts before the name of a causal language model's module.
fn key(module: &str, factor: &str) -> String {
    format!("base_model.model.{module}.{factor}.weight")
}

impl Lora {
    /// Writes the adapters into `dir`, which exists, in f32.
    pub(crate) fn save(&self, dir: &Path) -> Result<(), TrainerError> {
        let targets: Vec<_> = self.spec.targets.iter().map(|target| target.name()).collect();
        let config = json!({
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": self.name,
            "r": self.spec.rank,
            "lora_alpha": self.spec.alpha,
            "lora_dropout": 0.0,
            "target_modules": targets,
            "bias": "none",
            "fan_in_fan_out": false,
            "use_rslora": false,
            "use_dora": false,
            "modules_to_save": null,
            "inference_mode": true,
        });
        let text = serde_json::to_string_pretty(&config).map_err(|error| wrong(dir, error.to_string()))?;
        write_synced(&dir.join(CONFIG), std::iter::once(text.into_bytes()))?;
        let rank = self.spec.rank;
        let shapes: Vec<_> = self.adapters.iter().map(|a| ([rank, a.from], [a.out, rank])).collect();
        let mut tensors = Vec::new();
        for (adapter, (of_a, of_b)) in self.adapters.iter().zip(&shapes) {
            let (module, (a, b)) = (self.module(adapter), adapter.factors(rank));
            tensors.push((key(&module, "lora_A"), of_a.as_slice(), a));
            tensors.push((key(&module, "lora_B"), of_b.as_slice(), b));
        }
        Ok(write_tensors(
            &dir.join(TENSORS),
            &tensors,
            StoredType::F32,
            &[("format", "pt")],
        )?)
    }

    /// Reads adapters of the same matrices and size.
    pub(crate) fn load(&mut self, dir: &Path) -> Result<(), TrainerError> {
        let found = LoraSpec::read(dir)?;
        let sorted = |spec: &LoraSpec| {
            let mut targets: Vec<_> = spec.targets.iter().map(|target| target.name()).collect();
            targets.sort_unstable();
            format!(
                "rank {}, alpha {}, targets {}",
                spec.rank,
                spec.alpha,
                targets.join(", ")
            )
        };
        let (found, expected) = (sorted(&found), sorted(&self.spec));
        if found != expected {
            return Err(wrong(&dir.join(CONFIG), format!("expected {expected}, found {found}")));
        }
        let path = dir.join(TENSORS);
        let mut tensors = BTreeMap::new();
        load_tensors(&path, &mut tensors)?;
        let take = |module: &str, factor: &'static str, shape: [usize; 2]| {
            let key = key(module, factor);
            let found: HostTensor = tensors.remove(&key).ok_or_else(|| format!("`{key}` is missing"))?;
            if found.shape != shape {
                return Err(format!("`{key}` has shape {:?}, expected {shape:?}", found.shape));
            }
            match found.data.iter().find(|value| !value.is_finite()) {
                Some(value) => Err(format!("`{key}` holds {value}; every number must be finite")),
                None => Ok(found),
            }
        };
        let replaced = self.replace(take);
        let left = tensors.keys().next().map(|key| format!("`{key}` is unexpected"));
        let problem = replaced.err().or(left);
        problem.map_or(Ok(()), |problem| Err(wrong(&path, problem)))
    }
}

impl LoraSpec {
    /// What the `adapter_config.json` in `dir` says.
    ///
    /// # Errors
    /// [`TrainerError::Adapters`] names the key that is missing or means something that is not trained here.
    pub fn read(dir: &Path) -> Result<Self, TrainerError> {
        let path = dir.join(CONFIG);
        let text = std::fs::read_to_string(&path).map_err(|error| wrong(&path, error.to_string()))?;
        let config: Value = serde_json::from_str(&text).map_err(|error| wrong(&path, error.to_string()))?;
        let lacks = |key: &str, expected: &str| {
            let found = config.get(key).unwrap_or(&Value::Null);
            wrong(&path, format!("`{key}` is {found}, expected {expected}"))
        };
        let rank = config.get("r").and_then(Value::as_u64);
        let alpha = config.get("lora_alpha").and_then(Value::as_f64);
        let names = config.get("target_modules").and_then(Value::as_array);
        let target = |name: &Value| {
            LoraTarget::ALL
                .into_iter()
                .find(|target| Some(target.name()) == name.as_str())
        };
        let targets = names.and_then(|names| names.iter().map(target).collect::<Option<Vec<_>>>());
        for key in ["use_rslora", "use_dora", "fan_in_fan_out"] {
            if config.get(key).and_then(Value::as_bool) == Some(true) {
                return Err(lacks(key, "false"));
            }
        }
        Ok(Self {
            rank: rank.ok_or_else(|| lacks("r", "a whole number"))? as usize,
            alpha: alpha.ok_or_else(|| lacks("lora_alpha", "a number"))?,
            targets: targets.ok_or_else(|| lacks("target_modules", "a list of names of linear maps"))?,
        })
    }
}

fn wrong(path: &Path, problem: String) -> TrainerError {
    TrainerError::Adapters {
        path: path.to_owned(),
        problem,
    }
}
