//! `paths`: what the run reads exists, and there is room for what it writes.

use std::path::Path;

use super::{Check, Context, Finding, model, tasks};
use crate::config::{ByteSize, EngineKind};
use crate::hub::PREFIX;

pub(super) struct Paths;

/// Bytes of a stored weight and of its two optimizer moments, in f32.
const CHECKPOINT_FACTOR: u64 = 3;

/// Checkpoints that must fit beside each other.
const CHECKPOINTS: u64 = 2;

/// Folders of weights that engines in other processes load, beside those.
const PUBLISHED: u64 = 3;

impl Check for Paths {
    fn id(&self) -> &'static str {
        "paths"
    }

    fn title(&self) -> &'static str {
        "model, tokenizer and tasks are there"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let mut found = Vec::new();
        self.model(context, &mut found);
        self.tasks(context, &mut found);
        self.output(context, &mut found);
        found
    }
}

impl Paths {
    fn model(&self, context: Context<'_>, found: &mut Vec<Finding>) {
        let run = context.run;
        let policy = &run.config.policy;
        let mut fatal = |text: String, key: &str, help: &str| {
            found.push(Finding::fatal(self.id(), text).at(run, key).help(help));
        };
        if run.config.engine.kind == EngineKind::Openai && !context.purpose.updates() {
            return;
        }
        if policy.model.as_os_str().is_empty() {
            fatal(
                "policy.model is not set: there is nothing to train".to_owned(),
                "policy.model",
                "write `model = \"<folder>\"` below `[policy]`: a Hugging Face folder with config.json, safetensors and tokenizer files",
            );
            return;
        }
        if policy.model.to_string_lossy().starts_with(PREFIX) {
            let text = format!(
                "policy.model: {} is not in the cache, so that it cannot be looked at",
                policy.model.display()
            );
            let finding = Finding::warn(self.id(), text).at(run, "policy.model");
            found.push(finding.help("the first command that needs the model downloads it"));
            return;
        }
        let needs_weights = context.purpose.trains() || run.config.engine.kind == EngineKind::Embedded;
        if !policy.model.is_dir() {
            fatal(
                format!("policy.model: no folder {}", policy.model.display()),
                "policy.model",
                "write the folder that holds config.json",
            );
        } else if needs_weights {
            if !policy.model.join("config.json").is_file() {
                fatal(
                    format!("policy.model: no config.json in {}", policy.model.display()),
                    "policy.model",
                    "write the folder that holds config.json",
                );
            }
            if model::weights(&policy.model).is_empty() {
                fatal(
                    format!("policy.model: no .safetensors file in {}", policy.model.display()),
                    "policy.model",
                    "convert the weights to safetensors",
                );
            }
        }
        let tokenizer = model::tokenizer_dir(policy);
        if policy.model.is_dir() && !tokenizer.join("tokenizer.json").is_file() {
            fatal(
                format!("no tokenizer.json in {}", tokenizer.display()),
                model::tokenizer_key(policy),
                "write the folder that holds tokenizer.json as `tokenizer` below `[policy]`",
            );
        }
        match (&run.config.engine.kind, &run.config.engine.recording) {
            (EngineKind::Replay, None) => fatal(
                "engine.kind = \"replay\" without a recording: there is nothing to replay".to_owned(),
                "engine.kind",
                "write `recording = \"<file>.jsonl\"` below `[engine]`",
            ),
            (_, Some(path)) if !path.is_file() => fatal(
                format!("engine.recording: no file {}", path.display()),
                "engine.recording",
                "write the file of recorded answers",
            ),
            _ => {}
        }
        for folder in run
            .config
            .scaffold
            .runtime_mount
            .iter()
            .filter(|folder| !folder.is_dir())
        {
            fatal(
                format!("scaffold.runtime_mount: no folder {}", folder.display()),
                "scaffold.runtime_mount",
                "write the folder that holds the agent's program",
            );
        }
    }

    fn tasks(&self, context: Context<'_>, found: &mut Vec<Finding>) {
        let run = context.run;
        let data = &run.config.data;
        if context.draws_from_train() {
            match &data.train {
                None => found.push(
                    Finding::fatal(self.id(), "data.train is not set: there are no tasks to draw from")
                        .at(run, "data.train")
                        .help("write `train = \"tasks/index.parquet\"` below `[data]`, from `lego prepare`"),
                ),
                Some(path) => found.extend(tasks::look(self.id(), context, "data.train", path)),
            }
        }
        for path in &data.val {
            found.extend(tasks::look(self.id(), context, "data.val", path));
        }
    }

    /// Room for two checkpoints in the folder of runs.
    fn output(&self, context: Context<'_>, found: &mut Vec<Finding>) {
        let run = context.run;
        let dir = &run.config.run.dir;
        let name = Path::new(&run.config.run.name);
        if name.components().count() != 1 || name.file_name().is_none() {
            let text = format!("run.name = \"{}\": it leads out of run.dir", name.display());
            let fault = Finding::fatal(self.id(), text).at(run, "run.name");
            found.push(fault.help("write the name of one folder"));
        }
        let Some(existing) = dir
            .ancestors()
            .find(|folder| folder.exists() && !folder.as_os_str().is_empty())
        else {
            return;
        };
        if !existing.is_dir() {
            let text = format!("run.dir: {} is no folder", existing.display());
            found.push(
                Finding::fatal(self.id(), text)
                    .at(run, "run.dir")
                    .help("write a folder"),
            );
            return;
        }
        if nix::unistd::access(existing, nix::unistd::AccessFlags::W_OK).is_err() {
            let text = format!("run.dir: {} cannot be written to", existing.display());
            found.push(
                Finding::fatal(self.id(), text)
                    .at(run, "run.dir")
                    .help("write a folder that this user owns"),
            );
            return;
        }
        let size: u64 = model::weights(&run.config.policy.model)
            .iter()
            .filter_map(|path| path.metadata().ok())
            .map(|m| m.len())
            .sum();
        let mut needed = size * CHECKPOINT_FACTOR * CHECKPOINTS;
        let mut what = "two checkpoints take";
        if run.config.engine.kind.is_remote() && context.purpose.samples() {
            needed += size * PUBLISHED;
            what = "two checkpoints and the weights for the engines take";
        }
        if context.purpose.trains()
            && let Ok(disk) = nix::sys::statvfs::statvfs(existing)
            && let free = disk.blocks_available() * disk.fragment_size()
            && free < needed
        {
            let text = format!(
                "{} free in {}, {what} about {}",
                rounded(free),
                existing.display(),
                rounded(needed)
            );
            found.push(
                Finding::warn(self.id(), text)
                    .at(run, "run.dir")
                    .help("free some, or write another `dir` below `[run]`"),
            );
        }
    }
}

/// A size in whole MiB.
fn rounded(bytes: u64) -> ByteSize {
    ByteSize(bytes.next_multiple_of(1 << 20))
}
