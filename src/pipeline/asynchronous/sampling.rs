//! Where groups come from: sampled here, or by rollouters in other processes.

use crate::buffer::LedgerView;
use crate::pipeline::PipelineError;
use crate::trajectory::{Episode, GroupId, PolicyVersion};

/// A group of which every trial has ended.
pub(in crate::pipeline) struct CompleteGroup {
    pub id: GroupId,
    pub episodes: Vec<Episode>,
}

/// What the trainer says to whoever samples.
#[derive(Debug, Clone, Copy)]
pub(in crate::pipeline) struct Told {
    /// Updates so far.
    pub step: u32,
    /// The weights to sample by.
    pub version: PolicyVersion,
    /// Groups that were settled since this start and count no more against the bound.
    pub released: u64,
}

/// One of the two.
pub(in crate::pipeline) trait Sampling {
    /// Whether another group would be begun at once, if it may.
    fn has_room(&self) -> bool;
    /// Begins the next group, which is complete at once where its rows are there already; `None` where there is none.
    async fn draw(&mut self, ledger: &LedgerView) -> Result<Option<Option<CompleteGroup>>, PipelineError>;
    /// Runs what was begun.
    fn go(&mut self);
    /// The next groups that are complete. Safe to drop.
    async fn next(&mut self) -> Result<Vec<CompleteGroup>, PipelineError>;
    /// Whether groups come that were not drawn here.
    fn is_elsewhere(&self) -> bool;
    /// Groups that were begun and are not complete.
    fn open_groups(&self) -> usize;
    /// Whether trials run here.
    fn is_running(&self) -> bool;
    /// Whether no group will come that has not begun.
    fn is_exhausted(&self) -> bool;
    /// These were trained on or dropped, as the ledger says.
    fn settle(&mut self, groups: &[GroupId], ledger: &LedgerView);
    /// The last step of which all groups are settled, and the task that the next one begins with.
    fn settled(&self) -> (u32, u64);
    /// Says what changed to those who sample elsewhere.
    fn tell(&mut self, told: Told);
    /// Makes every row durable, or those that have waited long enough.
    fn flush(&mut self, all: bool) -> Result<(), PipelineError>;
    /// Lets no further trial begin.
    fn stop(&mut self);
    /// Share of the slots that stood empty since this was asked last, where it is known.
    fn idle_ratio(&mut self) -> Option<f64>;
    /// Ends what nobody waits for any more; `finished`: nothing is to be sampled again.
    async fn leave(&mut self, finished: bool) -> Result<(), PipelineError>;
}
