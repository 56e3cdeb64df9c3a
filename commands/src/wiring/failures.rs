//! What a failure of the pipeline tells the shell, and what to do about it.

use lego::pipeline::PipelineError;
use lego::run_dir::RunDirError;

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
            PipelineError::Train(_) => Self::negative(text),
            _ => Self::usage(text),
        };
        match std::error::Error::source(&error).map(ToString::to_string) {
            Some(source) => failure.source(source),
            None => failure,
        }
    }
}
