//! What a failure of the pipeline tells the shell, and what to do about it.

use lego::pipeline::PipelineError;
use lego::run_dir::RunDirError;
use lego::shard::ShardError;

use crate::failure::Failure;

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        let text = error.to_string();
        let failure = match &error {
            PipelineError::Nothing(_) => Self::nothing_selected(text),
            error if error.is_unavailable() => Self::unavailable(text),
            PipelineError::RunDir(RunDirError::Locked { .. }) => {
                return Self::usage(text).hint("wait for it to end, or give this run another `run.name`");
            }
            PipelineError::Shard(ShardError::Damaged { .. }) => {
                return Self::usage(text).hint("move the file away, or run again the `lego rollout` that wrote it");
            }
            PipelineError::Train(_) => Self::negative(text),
            _ => Self::usage(text),
        };
        match std::error::Error::source(&error).map(ToString::to_string) {
            Some(source) => failure.source(source),
            None => failure,
        }
    }
}
