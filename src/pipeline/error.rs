//! What can end a run before its last step.

use std::path::PathBuf;

use crate::buffer::LedgerError;
use crate::buffer::meeting::MeetingError;
use crate::inference::EngineError;
use crate::prepare::PrepareError;
use crate::prompt::PromptError;
use crate::run_dir::RunDirError;
use crate::shard::ShardError;
use crate::task::TaskError;
use crate::train::TrainError;
use crate::train::checkpoint::CheckpointError;
use crate::trajectory::Outcome;

impl PipelineError {
    /// Whether something outside was missing: a device, a folder, an address, a service.
    pub fn is_unavailable(&self) -> bool {
        // What is no address is a wrong value.
        if let Self::Listen { source, .. } = self {
            return source.kind() != std::io::ErrorKind::InvalidInput;
        }
        if let Self::Hub(error) = self {
            return error.is_unavailable();
        }
        matches!(
            self,
            Self::Trainer(lego_policy::TrainerError::NoCuda { .. })
                | Self::AllFailed { .. }
                | Self::Io(_)
                | Self::Worker(_)
                | Self::Meeting(MeetingError::Store { .. })
                | Self::Silent { .. }
                | Self::Engine(_)
                | Self::Sandbox(_)
                | Self::Harbor(_)
                | Self::Scaffold(_)
                | Self::RunDir(RunDirError::Io { .. })
        )
    }
}

/// What ended the run.
#[derive(Debug, thiserror::Error)]
pub enum PipelineError {
    /// A key that this stage needs is not set.
    #[error("`{key}` is not set: {why}")]
    MissingKey {
        /// The key.
        key: &'static str,
        /// What it is needed for.
        why: &'static str,
    },
    /// Part of the configuration cannot be used together.
    #[error("{0}")]
    Config(String),
    /// A task id that the index does not hold.
    #[error("task `{id}` is not in {}", index.display())]
    UnknownTask {
        /// As given.
        id: String,
        /// Where it was looked for.
        index: PathBuf,
    },
    /// Nothing to do.
    #[error("nothing selected: {0}")]
    Nothing(String),
    /// Not one trial could be graded, by the environment's doing.
    #[error(
        "not one of the {trials} trials of {what} could be graded: {failed} of them ended with {outcome}, most often: \
         {reason}"
    )]
    AllFailed {
        /// Which trials.
        what: String,
        /// How many.
        trials: usize,
        /// Of those, how many ended with the most frequent outcome.
        failed: usize,
        /// The most frequent outcome.
        outcome: Outcome,
        /// Its most frequent reason.
        reason: String,
    },
    /// The proxy's address cannot be listened on.
    #[error("cannot listen on {address}")]
    Listen {
        /// `proxy.listen`
        address: String,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The run directory holds a run of another configuration.
    #[error("{} holds a run with another `{key}` ({found}, now {expected}); write what it was, or begin another: with another `run.name` or --fresh (of a rollout: another -o)", dir.display())]
    OtherRun {
        /// The run directory.
        dir: PathBuf,
        /// What differs.
        key: &'static str,
        /// Now.
        expected: String,
        /// Then.
        found: String,
    },
    /// It was asked to stop before its engine was ready.
    #[error("stopped before the engine was ready")]
    Stopped,
    /// A thread of ours died.
    #[error("a worker ended without an answer: {0}")]
    Worker(String),
    /// The model cannot be loaded.
    #[error("policy.model: {0}")]
    Model(#[from] lego_policy::WeightsError),
    /// A model cannot be had by its name.
    #[error("policy.model: {0}")]
    Hub(#[from] crate::hub::HubError),
    /// The trainer cannot compute.
    #[error(transparent)]
    Trainer(#[from] lego_policy::TrainerError),
    /// Tokenizer or template.
    #[error(transparent)]
    Prompt(#[from] PromptError),
    /// A task.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// Inline records.
    #[error(transparent)]
    Prepare(#[from] PrepareError),
    /// A shard.
    #[error(transparent)]
    Shard(#[from] ShardError),
    /// The run directory.
    #[error(transparent)]
    RunDir(#[from] RunDirError),
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// The update.
    #[error(transparent)]
    Train(#[from] TrainError),
    /// The sandboxes.
    #[error(transparent)]
    Sandbox(#[from] crate::sandbox::SandboxError),
    /// Harbor is not there.
    #[error(transparent)]
    Harbor(#[from] crate::rollout::HarborError),
    /// The agent.
    #[error(transparent)]
    Scaffold(#[from] crate::scaffold::ScaffoldError),
    /// The engine.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// Where rollouters and the trainer meet.
    #[error("{0}")]
    Meeting(MeetingError),
    /// The other side was not heard of.
    #[error("{who} of {place} has not been heard of for {minutes} minutes: start it again, then the same command")]
    Silent {
        /// The other side.
        who: &'static str,
        /// Where it was looked for.
        place: String,
        /// For how long.
        minutes: u64,
    },
    /// A file.
    #[error(transparent)]
    Io(#[from] std::io::Error),
}
