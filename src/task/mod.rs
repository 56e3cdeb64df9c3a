//! Harbor tasks on disk: the task folder, its task.toml, its checksum, and the task index.
//!
//! Tasks come from others, so task.toml is read leniently: an unknown key is a warning, a wrong type an
//! error with line and column. This module knows nothing of sandboxes and runs nothing.

mod atomic;
mod checksum;
mod environment;
mod error;
mod expression;
mod folder;
mod index;
mod index_parquet;
mod manifest;
mod parse;
mod stages;
mod values;

pub use atomic::{sync_folder, write_atomically};
pub use checksum::{folder_checksum, sha256_hex, sha256_of_file};
pub use environment::{EnvironmentConfig, Healthcheck, McpServer, NetworkMode, NetworkPolicy, resolve_env};
pub use error::TaskError;
pub use expression::{Expression, ExpressionError};
pub use folder::Task;
pub use index::{IndexRow, TaskIndex};
pub use manifest::{
    AgentConfig, Author, CollectStep, MultiStepReward, SolutionConfig, StepConfig, TaskConfig, TaskInfo,
    VerifierConfig, VerifierMode,
};
pub use parse::{SchemaWarning, parse_task_toml};
pub use stages::{Stage, TestsImage};
pub use values::{Artifact, MegaBytes, MinReward, Seconds, UserName};

/// The JSON Schemas of this module's files and rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("task", schemars::schema_for!(TaskConfig)),
        ("task-index", schemars::schema_for!(IndexRow)),
    ]
}

#[cfg(test)]
mod tests;
