//! The trainer's side: one update, and its weights on their way to the engine.

use std::sync::Arc;
use std::time::Instant;

use lego_policy::Weights;

use super::elsewhere::PublishedTo;
use crate::pipeline::run::Lent;
use crate::pipeline::stack::Stack;
use crate::pipeline::{PipelineError, PipelineEvent, PipelineObserver};
use crate::train::{StepReport, Updater};
use crate::trajectory::{Episode, GroupId, PolicyVersion};

/// What an update is to do.
pub(in crate::pipeline) struct Work {
    pub step: u32,
    pub episodes: Vec<Episode>,
    pub groups: Vec<GroupId>,
    /// Whether the engine is to serve the weights.
    pub publish: bool,
    /// The weights that the engine serves now.
    pub served: PolicyVersion,
    /// Whether the weights are to be validated.
    pub validate: bool,
}

/// What came of it.
pub(in crate::pipeline) struct Done {
    pub lent: Lent,
    pub report: StepReport,
    pub step: u32,
    pub groups: Vec<GroupId>,
    pub episodes: Vec<Episode>,
    /// Absent where the engine serves what it served before.
    pub published: Option<PolicyVersion>,
    /// With `publish`: the engine's weights are the trainer's.
    pub in_step: bool,
    pub sync_s: f64,
    /// A copy of the weights, with `validate`.
    pub snapshot: Option<(PolicyVersion, Weights)>,
}

/// Where weights go.
#[derive(Clone, Copy)]
pub(in crate::pipeline) enum Outlet<'a> {
    /// To the run's own engine; `partial`: answers that are being sampled go on under them.
    Engine { stack: &'a Stack, partial: bool },
    /// To where rollouters look for them.
    Meeting(&'a PublishedTo),
}

impl Outlet<'_> {
    async fn publish(self, version: PolicyVersion, weights: Weights) -> Result<(), PipelineError> {
        match self {
            Self::Engine { stack, partial: true } => stack.publish(version, weights).await,
            Self::Engine { stack, partial: false } => stack.publish_between(version, weights).await,
            Self::Meeting(place) => place.publish(version, weights).await,
        }
    }
}

/// Computes an update and publishes its weights. Sampling goes on beside it.
pub(in crate::pipeline) async fn update(
    updater: Arc<Updater>,
    outlet: Outlet<'_>,
    lent: Lent,
    work: Work,
    observer: &PipelineObserver,
) -> Result<Done, PipelineError> {
    let phase = |phase| observer(PipelineEvent::Phase { step: work.step, phase });
    phase(crate::pipeline::Phase::Update);
    let (step, episodes) = (work.step, Arc::new(work.episodes));
    let batch = Arc::clone(&episodes);
    let (lent, report) = lent
        .compute(move |trainer, critic| updater.step_with_critic(trainer, critic, u64::from(step), &batch))
        .await?;
    let report = report?;
    let version = lent.version();
    let publishing = Instant::now();
    let mut published = None;
    if work.publish && version != work.served {
        phase(crate::pipeline::Phase::Publish);
        outlet.publish(version, lent.weights()).await?;
        published = Some(version);
    }
    let sync_s = publishing.elapsed().as_secs_f64();
    phase(crate::pipeline::Phase::Generate);
    Ok(Done {
        snapshot: work.validate.then(|| (version, lent.weights())),
        lent,
        report,
        step,
        groups: work.groups,
        episodes: Arc::unwrap_or_clone(episodes),
        published,
        in_step: work.publish,
        sync_s,
    })
}
