//! What can go wrong in an update.

use lego_policy::TrainerError;

use crate::trajectory::EpisodeId;

/// An update that could not be made. The weights are those of the last optimizer step that was.
#[derive(Debug, thiserror::Error)]
pub enum TrainError {
    /// NaN or infinity, found before it could reach the weights.
    #[error(
        "step {step}: {quantity} is not finite (first in episode {episode}); the optimizer step was not taken and \
         the weights are untouched"
    )]
    NonFinite {
        /// Trainer step.
        step: u64,
        /// The first quantity, in the order of the computation, that is not finite.
        quantity: &'static str,
        /// Where it was seen first; of a sum over a micro-batch, the micro-batch's first episode.
        episode: EpisodeId,
    },
    /// Log-probs of a truncated distribution, reused as those of the whole one.
    #[error(
        "episode {episode} was sampled with top_p {top_p}, top_k {top_k}: its log-probs are of the cut distribution \
         and cannot stand for the trainer's (bypass_old_logprob = true); sample with top_p = 1.0, top_k = -1 or set \
         train.bypass_old_logprob = false"
    )]
    CutDistribution {
        /// The first such episode.
        episode: EpisodeId,
        /// Nucleus it was sampled with.
        top_p: f32,
        /// Kept candidates it was sampled with.
        top_k: i32,
    },
    /// Reinforcement learning on episodes of an engine that gives no log-probs.
    #[error(
        "step {step}: none of the {episodes} episodes has log-probs (their engine records none); they can be trained \
         with train.algorithm = \"sft\" alone"
    )]
    NoLogProbs {
        /// Trainer step.
        step: u64,
        /// Episodes given.
        episodes: usize,
    },
    /// The same episode twice in a step: its tokens would train twice.
    #[error("step {step}: episode {episode} was given twice; a sampled token trains at most once")]
    Twice {
        /// Trainer step.
        step: u64,
        /// The episode.
        episode: EpisodeId,
    },
    /// A KL term without the policy it is taken against.
    #[error("train.kl_coef is {coefficient}, which needs a reference policy, and none was given")]
    NoReference {
        /// The coefficient asked for.
        coefficient: f32,
    },
    /// A comparison with a greedy episode, and none was sampled.
    #[error(
        "step {step}: advantage \"remax\" compares each episode with a greedy one of its group, and none of the {episodes} \
         episodes was sampled at temperature 0; sample them with train.algorithm = \"remax\""
    )]
    NoGreedy {
        /// Trainer step.
        step: u64,
        /// Episodes given.
        episodes: usize,
    },
    /// Routes to be replayed in a model that has none.
    #[error("train.routing_replay is for mixtures of experts, and the policy is a dense model; leave it out")]
    NoExperts,
    /// A critic where none is read, or none where one is.
    #[error(
        "advantage \"gae\" and a critic come together, and {}",
        if *given { "a critic was given alone" } else { "no critic was given" }
    )]
    NoCritic {
        /// Whether one was given.
        given: bool,
    },
    /// The learning rate is not defined at this step.
    #[error(transparent)]
    Schedule(#[from] super::ScheduleError),
    /// The filter's settings.
    #[error(transparent)]
    Filter(#[from] super::FilterError),
    /// A row that this policy cannot read, such as one longer than its window.
    #[error("step {step}: episode {episode} does not fit the policy: {problem}")]
    Row {
        /// Trainer step.
        step: u64,
        /// The episode.
        episode: EpisodeId,
        /// What does not fit.
        problem: String,
    },
    /// The policy package refused or failed.
    #[error("step {step}: {source}")]
    Policy {
        /// Trainer step.
        step: u64,
        /// What it said.
        #[source]
        source: TrainerError,
    },
}

impl TrainError {
    /// The policy package's error in a micro-batch whose rows are of these episodes, by row.
    pub(super) fn from_policy<'a>(step: u64, source: TrainerError, episode: impl Fn(usize) -> &'a EpisodeId) -> Self {
        match source {
            TrainerError::NonFiniteGradient { .. } => Self::NonFinite {
                step,
                quantity: "the gradient",
                episode: episode(0).clone(),
            },
            TrainerError::Row { row, problem } => Self::Row {
                step,
                episode: episode(row).clone(),
                problem,
            },
            source => Self::Policy { step, source },
        }
    }
}
