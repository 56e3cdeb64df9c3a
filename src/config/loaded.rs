//! A run config that was read, with the origin of each of its values.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::RunConfig;
use super::error::{Fault, Problem};
use super::show;
use super::source::Location;
use super::tree::{Node, Tree};

/// A run config and who wrote what in it.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The file with its defaults filled in, checked key by key, paths absolute.
    pub config: RunConfig,
    pub(super) origins: BTreeMap<String, Location>,
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

    /// All that ran, as TOML that reads back to the same config; secrets are starred out.
    pub fn to_resolved_toml(&self) -> String {
        show::to_toml(&self.config, |_| None)
    }

    /// The same with each value's origin as a comment.
    pub fn show_config(&self) -> String {
        show::to_toml(&self.config, |key| {
            Some(
                self.origins
                    .get(key)
                    .map_or_else(|| "default".to_owned(), Location::short),
            )
        })
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
