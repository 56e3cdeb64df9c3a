//! What a failure of the pipeline tells the shell, and what to do about it.

use lego::inference::EngineError;
use lego::pipeline::PipelineError;
use lego::run_dir::RunDirError;
use lego::shard::ShardError;
use lego::trajectory::Outcome;

use crate::failure::Failure;

impl From<PipelineError> for Failure {
    fn from(error: PipelineError) -> Self {
        let text = error.to_string();
        let failure = match &error {
            PipelineError::Nothing(_) => Self::nothing_selected(text),
            PipelineError::AllFailed { outcome, .. } => return Self::unavailable(text).hint(mend(*outcome)),
            PipelineError::Engine(EngineError::Unavailable { .. }) => {
                return Self::unavailable(text).hint("start the server, or change `engine.endpoints`");
            }
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

/// What to do where every trial ended like this.
fn mend(outcome: Outcome) -> String {
    let first = match outcome {
        Outcome::EnvSetupFailed => "mend what keeps sandboxes from starting",
        Outcome::VerifierError => "mend the tasks' tests: each must write its reward",
        _ => "mend the engine or the machine",
    };
    format!("{first}; the same command then tries these trials again (their files are in trials/)")
}
