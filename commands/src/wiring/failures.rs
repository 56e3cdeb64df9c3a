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
        if is_full(&error) {
            return Self::unavailable(text)
                .hint("make room on the disk; the same command then goes on with what is durable");
        }
        let failure = match &error {
            PipelineError::Nothing(_) => Self::nothing_selected(text),
            PipelineError::AllFailed { outcome, .. } => return Self::unavailable(text).hint(mend(*outcome)),
            PipelineError::Engine(EngineError::Unavailable { .. }) => {
                return Self::unavailable(text).hint("start the server, or change `engine.endpoints`");
            }
            PipelineError::Listen { .. } if error.is_unavailable() => Self::unavailable(text).hint(LISTEN),
            PipelineError::Listen { .. } => Self::usage(text).hint(LISTEN),
            error if error.is_unavailable() => Self::unavailable(text),
            PipelineError::RunDir(RunDirError::Locked { .. }) => {
                return Self::usage(text)
                    .hint("wait for it to end, or take another `run.name` (of a rollout: another -o)");
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

/// What to write where nothing can listen.
pub(crate) const LISTEN: &str =
    "expected HOST:PORT of this machine, such as 127.0.0.1:8080; port 0 picks one that is free";

/// Whether there is no room to write to, whatever was to be written.
fn is_full(error: &(dyn std::error::Error + 'static)) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    let mut next = Some(error);
    while let Some(error) = next {
        let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
        // What Parquet says of it is text.
        if matches!(kind, Some(FileTooLarge | QuotaExceeded | StorageFull))
            || error.to_string().contains("(os error 28)")
        {
            return true;
        }
        next = error.source();
    }
    false
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::Exit;

    #[test]
    fn a_full_disk_is_nothing_that_a_flag_mends() {
        let full = || std::io::Error::from(std::io::ErrorKind::StorageFull);
        let write = ShardError::Write {
            path: "a.parquet".into(),
            reason: "External: No space left on device (os error 28)".to_owned(),
        };
        for error in [
            PipelineError::Io(full()),
            PipelineError::Shard(ShardError::Io { source: full() }),
            PipelineError::Shard(write),
            PipelineError::RunDir(RunDirError::Io { source: full() }),
        ] {
            assert_eq!(Failure::from(error).exit(), Exit::Unavailable);
        }
        let other = PipelineError::Shard(ShardError::Io {
            source: std::io::ErrorKind::InvalidData.into(),
        });
        assert_eq!(Failure::from(other).exit(), Exit::Usage);
    }
}
