//! What happens during a run, as a stream of facts: bars, tables and tests listen to the same one.

use std::path::PathBuf;
use std::sync::Arc;

use crate::metrics::StepMetrics;
use crate::rollout::RolloutEvent;

use super::Evaluation;

/// One fact.
#[derive(Debug, Clone)]
pub enum PipelineEvent {
    /// The run goes on after this step; 0 is a fresh one.
    Opened {
        /// The run directory.
        run_dir: PathBuf,
        /// Last step that is complete.
        step: u32,
        /// Steps of the run.
        steps: u32,
    },
    /// A phase of a step began.
    Phase {
        /// The step.
        step: u32,
        /// What is done.
        phase: Phase,
    },
    /// Something about a trial.
    Rollout(RolloutEvent),
    /// A validation goes on beside sampling and updates; told now and then.
    Validating {
        /// After this step.
        step: u32,
        /// Trials that have ended.
        ended: usize,
        /// All of them.
        trials: usize,
    },
    /// A validation ended.
    Evaluated {
        /// After this step; 0 is the untrained policy.
        step: u32,
        /// The scores.
        evaluation: Evaluation,
    },
    /// A step is complete.
    Step {
        /// The step.
        step: u32,
        /// Its metrics.
        metrics: StepMetrics,
    },
    /// A checkpoint is complete.
    Checkpoint(PathBuf),
    /// Something that a person should know.
    Warning(String),
}

/// What a run is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    /// Trials for the update.
    Generate,
    /// The update.
    Update,
    /// New weights go to the engine.
    Publish,
    /// Validation.
    Evaluate,
}

/// Whoever watches. It must not block.
pub type PipelineObserver = Arc<dyn Fn(PipelineEvent) + Send + Sync>;
