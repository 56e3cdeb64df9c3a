//! Groups that are sampled in this process.

use std::sync::Arc;

use super::groups::Groups;
use super::rollouter::Rollouter;
use super::sampling::{CompleteGroup, Sampling, Told};
use crate::buffer::LedgerView;
use crate::pipeline::PipelineError;
use crate::rollout::TrialContext;
use crate::trajectory::GroupId;

/// Sampled in this process.
pub(super) struct Here<'a> {
    groups: Groups<'a>,
    rollouter: Rollouter,
    context: Arc<TrialContext>,
}

impl<'a> Here<'a> {
    pub(super) fn new(groups: Groups<'a>, rollouter: Rollouter, context: &Arc<TrialContext>) -> Self {
        Self {
            groups,
            rollouter,
            context: Arc::clone(context),
        }
    }
}

impl Sampling for Here<'_> {
    fn has_room(&self) -> bool {
        self.rollouter.has_room()
    }

    async fn draw(&mut self, ledger: &LedgerView) -> Result<Option<Option<CompleteGroup>>, PipelineError> {
        let drawn = self.groups.draw(ledger).await?;
        Ok(drawn.map(|group| {
            let complete = self.rollouter.add(group);
            self.rollouter.begin();
            complete
        }))
    }

    fn go(&mut self) {
        self.rollouter.begin();
    }

    async fn next(&mut self) -> Result<Vec<CompleteGroup>, PipelineError> {
        let episode = self.rollouter.next().await?;
        Ok(self.rollouter.accept(episode)?.into_iter().collect())
    }

    fn is_elsewhere(&self) -> bool {
        false
    }

    fn open_groups(&self) -> usize {
        self.rollouter.open_groups()
    }

    fn is_running(&self) -> bool {
        self.rollouter.is_running()
    }

    fn is_exhausted(&self) -> bool {
        self.groups.is_exhausted()
    }

    fn settle(&mut self, groups: &[GroupId], _: &LedgerView) {
        self.groups.settle(groups);
    }

    fn settled(&self) -> (u32, u64) {
        self.groups.settled()
    }

    fn tell(&mut self, _: Told) {}

    fn flush(&mut self, all: bool) -> Result<(), PipelineError> {
        if all {
            self.rollouter.flush()
        } else {
            self.rollouter.flush_due()
        }
    }

    fn stop(&mut self) {
        self.rollouter.stop();
    }

    fn idle_ratio(&mut self) -> Option<f64> {
        Some(self.rollouter.idle_ratio())
    }

    /// Trials that are cut off count as cancelled, and begin anew where the run goes on.
    async fn leave(&mut self, _: bool) -> Result<(), PipelineError> {
        self.context.cancel.cancel();
        self.rollouter.end().await
    }
}
