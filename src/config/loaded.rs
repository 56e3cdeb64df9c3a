//! A run config that was read, with the origin of each of its values.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::RunConfig;
use super::error::{Fault, Problem};
use super::show::{self, ConfigRow};
use super::source::Location;
use super::tree::{Node, Tree};

/// A run config and who wrote what in it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file with its defaults filled in, checked key by key, paths absolute.
    pub config: RunConfig,
    pub(super) origins: BTreeMap<String, Location>,
    /// Names of models in place of which the config has folders.
    pub(super) names: ModelNames,
}

/// What the file says where the config has the folder of a model that was downloaded.
#[derive(Debug, Clone, Default)]
pub(super) struct ModelNames {
    model: Option<PathBuf>,
    tokenizer: Option<PathBuf>,
}

impl Loaded {
    /// Where a dotted key was written; absent for a default.
    pub fn location(&self, key: &str) -> Option<&Location> {
        self.origins.get(key)
    }

    /// A fault of this key, placed where the key was written.
    pub fn fault(&self, key: &str, problem: impl Into<String>, help: Option<String>) -> Fault {
        Fault {
            key: key.to_owned(),
            problem: Problem::Conflict(problem.into()),
            at: self.location(key).cloned(),
            help,
        }
    }

    /// Has `policy.model` be the folder of the model that it names; what is written down goes on to say `name`.
    pub fn place_model(&mut self, name: &str, folder: PathBuf) {
        self.names.model = Some(PathBuf::from(name));
        self.config.policy.model = folder;
    }

    /// The same of `policy.tokenizer`.
    pub fn place_tokenizer(&mut self, name: &str, folder: PathBuf) {
        self.names.tokenizer = Some(PathBuf::from(name));
        self.config.policy.tokenizer = Some(folder);
    }

    /// The config with names of models as they were written.
    fn named(&self) -> RunConfig {
        let mut config = self.config.clone();
        if let Some(name) = &self.names.model {
            config.policy.model.clone_from(name);
        }
        if let Some(name) = &self.names.tokenizer {
            config.policy.tokenizer = Some(name.clone());
        }
        config
    }

    /// All that ran, as TOML that reads back to the same config; secrets are starred out.
    pub fn to_resolved_toml(&self) -> String {
        show::to_toml(&self.named(), |_| None)
    }

    /// The same with each value's origin as a comment.
    pub fn show_config(&self) -> String {
        show::to_toml(&self.named(), |key| Some(self.origin(key)))
    }

    /// The same as rows.
    pub fn config_rows(&self) -> Vec<ConfigRow> {
        show::to_rows(&self.named(), |key| self.origin(key))
    }

    fn origin(&self, key: &str) -> String {
        self.origins
            .get(key)
            .map_or_else(|| "default".to_owned(), Location::short)
    }
}

/// Where each value of a tree was written, by its dotted key.
pub(super) fn origins(root: &Node) -> BTreeMap<String, Location> {
    let mut found = BTreeMap::new();
    collect(root, "", &mut found);
    found
}

fn collect(node: &Node, path: &str, found: &mut BTreeMap<String, Location>) {
    if !path.is_empty() {
        let at = Location {
            source: Arc::clone(&node.at.source),
            span: node.at.span.clone(),
        };
        found.insert(path.to_owned(), at);
    }
    if let Tree::Table(entries) = &node.value {
        for (key, (_, value)) in entries {
            let inner = if path.is_empty() {
                key.clone()
            } else {
                format!("{path}.{key}")
            };
            collect(value, &inner, found);
        }
    }
}
