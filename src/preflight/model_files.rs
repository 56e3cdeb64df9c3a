//! `model-files`: the weights are whole and are those of config.json, and the tokenizer's ids are the model's.
//!
//! Only headers are read of the weights, however large they are.

use lego_policy::{ModelConfig, Weights, WeightsError};

use super::{Check, Context, Finding, Status, model};
use crate::config::{EngineKind, RoutingReplay};
use crate::prompt::Tokenizer;

pub(super) struct ModelFiles;

impl Check for ModelFiles {
    fn id(&self) -> &'static str {
        "model-files"
    }

    fn title(&self) -> &'static str {
        "weights, config.json and tokenizer fit together"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let (weights, shape) = self.weights(context);
        let found: Vec<Finding> = [weights, self.tokenizer(context, shape.as_ref())]
            .into_iter()
            .flatten()
            .collect();
        // Something that was not looked at says nothing beside a fault.
        let faults: Vec<Finding> = found.iter().filter(|f| f.status > Status::Skip).cloned().collect();
        if faults.is_empty() { found } else { faults }
    }
}

impl ModelFiles {
    /// What is wrong with the weights, and the model's shape where nothing is. What is not there at all is the business
    /// of `paths`.
    fn weights(&self, context: Context<'_>) -> (Option<Finding>, Option<ModelConfig>) {
        let run = context.run;
        let folder = &run.config.policy.model;
        if !context.purpose.trains() && run.config.engine.kind != EngineKind::Embedded {
            return (None, None);
        }
        if model::weights(folder).is_empty() || !folder.join("config.json").is_file() {
            return (Some(Finding::skip(self.id(), "there are no weights to look at")), None);
        }
        match Weights::check(folder) {
            Ok(shape) => (self.routes(context, &shape), Some(shape)),
            Err(error) => {
                let text = match &error {
                    // Of the model as a whole; the others name their file.
                    WeightsError::Names { .. } | WeightsError::TensorShape { .. } => {
                        format!("policy.model: {}: {error}", folder.display())
                    }
                    _ => format!("policy.model: {error}"),
                };
                let help =
                    "download or convert the model again: config.json and the safetensors files are to be of one model";
                (
                    Some(Finding::fatal(self.id(), text).at(run, "policy.model").help(help)),
                    None,
                )
            }
        }
    }

    /// Routes to be replayed in a model that has none.
    fn routes(&self, context: Context<'_>, shape: &ModelConfig) -> Option<Finding> {
        let replayed = context.run.config.train.routing_replay != RoutingReplay::Off && context.purpose.trains();
        (replayed && shape.moe.is_none()).then(|| {
            Finding::fatal(self.id(), crate::train::TrainError::NoExperts.to_string())
                .at(context.run, "train.routing_replay")
                .help("take `routing_replay` out")
        })
    }

    fn tokenizer(&self, context: Context<'_>, shape: Option<&ModelConfig>) -> Option<Finding> {
        let policy = &context.run.config.policy;
        let (folder, key) = (model::tokenizer_dir(policy), model::tokenizer_key(policy));
        let file = folder.join("tokenizer.json");
        if !file.is_file() {
            return Some(Finding::skip(self.id(), "there is no tokenizer.json to look at"));
        }
        let (text, help) = match Tokenizer::load(folder) {
            Ok(tokenizer) => {
                let beyond = beyond(&tokenizer, shape?)?;
                let text = format!("{}: {beyond}", file.display());
                (
                    text,
                    "write the folder of the tokenizer that the model was trained with",
                )
            }
            Err(error) => (
                error.to_string(),
                "download the tokenizer's files again, or write their folder as `tokenizer` below `[policy]`",
            ),
        };
        let finding = Finding::fatal(self.id(), format!("{key}: {text}"));
        Some(finding.at(context.run, key).help(help))
    }
}

/// An id of the tokenizer that the model has no embedding for.
fn beyond(tokenizer: &Tokenizer, shape: &ModelConfig) -> Option<String> {
    let (id, text) = tokenizer.highest()?;
    let size = shape.vocab_size;
    (id as usize >= size)
        .then(|| format!("token `{text}` has the id {id}, and the ids of the model end before vocab_size = {size}"))
}
