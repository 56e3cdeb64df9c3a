//! A run's checkpoint as a plain Hugging Face folder, also while the run trains.

use std::path::{Path, PathBuf};

use super::{PipelineError, run_directory};
use crate::config::RunConfig;
use crate::run_dir::RunDir;
use crate::train::checkpoint::{CheckpointError, CheckpointStore, Wanted};

/// A file that was exported.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct ExportedFile {
    /// Where it is now.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Step of the checkpoint that it is of.
    pub step: u64,
    /// Version of that checkpoint's weights.
    pub version: String,
}

/// Writes the checkpoint that is meant into the folder `to`, which is not there yet or is empty.
///
/// # Errors
/// [`PipelineError::Nothing`] where the run has no such checkpoint, else what the file system said.
pub fn export(config: &RunConfig, wanted: Wanted, to: &Path) -> Result<Vec<ExportedFile>, PipelineError> {
    let dir = run_directory(config);
    if !dir.is_dir() {
        return Err(PipelineError::Nothing(format!("there is no run {}", dir.display())));
    }
    let checkpoints = CheckpointStore::read(RunDir::open(&dir)?.checkpoints());
    let checkpoint = checkpoints.find(wanted).map_err(|error| match error {
        CheckpointError::None { .. } => PipelineError::Nothing(error.to_string()),
        other => other.into(),
    })?;
    let (files, folder) = (checkpoint.export(to)?, std::path::absolute(to)?);
    let exported = files.into_iter().map(|(name, bytes)| ExportedFile {
        path: folder.join(name),
        bytes,
        step: checkpoint.state.step,
        version: checkpoint.state.version.to_string(),
    });
    Ok(exported.collect())
}
