//! How records are converted.

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::family::Family;
use super::instruction::{Allowed, TEMPLATE};

/// What the network of a task reaches.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum TaskNetwork {
    /// Nothing but the model.
    #[default]
    None,
    /// Everything.
    Public,
}

impl TaskNetwork {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::None => "no-network",
            Self::Public => "public",
        }
    }
}

/// How records are converted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConvertOptions {
    /// Whether folders that are there are written again.
    pub overwrite: bool,
    /// The family of all records; absent: each record's own fields tell.
    pub family: Option<Family>,
    /// What agents are told, with `{problem_statement}`, `{hints}`, `{repo}`, `{workdir}` and `{version}` filled in.
    pub template: String,
    /// Whether hints of the record are among it.
    pub hints: bool,
    /// What the text may give away.
    pub allowed: Allowed,
    /// Folder with repositories.
    pub repo_cache: Option<PathBuf>,
    /// Whether a repository that neither cache nor image holds is a fault.
    pub offline: bool,
    /// Base images by language, in place of the usual and of the records' own.
    pub base_images: BTreeMap<String, String>,
    /// What the tasks' network reaches.
    pub network: TaskNetwork,
}

impl Default for ConvertOptions {
    fn default() -> Self {
        Self {
            overwrite: false,
            family: None,
            template: TEMPLATE.to_owned(),
            hints: false,
            allowed: Allowed::default(),
            repo_cache: None,
            offline: false,
            base_images: BTreeMap::new(),
            network: TaskNetwork::None,
        }
    }
}

impl ConvertOptions {
    /// Names of languages that base images can be given for.
    pub fn languages() -> Vec<&'static str> {
        super::language::names()
    }
}
