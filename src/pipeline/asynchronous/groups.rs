//! Which group is sampled next, and which steps have groups left.

use std::collections::{BTreeSet, VecDeque};

use crate::buffer::LedgerView;
use crate::config::RunConfig;
use crate::pipeline::PipelineError;
use crate::pipeline::sampled::Durable;
use crate::pipeline::training::Online;
use crate::rollout::TrialPlan;
use crate::run_dir::RunDir;
use crate::trajectory::{Episode, GroupId};

/// A group to sample.
pub(in crate::pipeline) struct Drawn {
    pub id: GroupId,
    /// Trials that are still to run.
    pub plans: Vec<TrialPlan>,
    /// Episodes that an earlier start made durable.
    pub known: Vec<Episode>,
}

/// Groups in their order, without those that the ledger says were trained on or dropped.
pub(super) struct Groups<'a> {
    online: &'a Online,
    config: &'a RunConfig,
    dir: RunDir,
    /// Groups of a step.
    required: usize,
    /// The next step to draw for, and the task that it begins with.
    next: (u32, u64),
    drawn: VecDeque<Drawn>,
    /// Steps with groups that are not settled, in order.
    open: VecDeque<OpenStep>,
    ended: bool,
}

struct OpenStep {
    step: u32,
    cursor: u64,
    unsettled: BTreeSet<GroupId>,
}

impl<'a> Groups<'a> {
    /// From the first step on that is not wholly settled.
    pub(super) fn new(
        online: &'a Online,
        config: &'a RunConfig,
        dir: RunDir,
        required: usize,
        (drawn_step, cursor): (u32, u64),
    ) -> Self {
        Self {
            online,
            config,
            dir,
            required,
            next: (drawn_step + 1, cursor),
            drawn: VecDeque::new(),
            open: VecDeque::new(),
            ended: false,
        }
    }

    /// The next group; `None` where the epochs have ended.
    pub(super) async fn draw(&mut self, ledger: &LedgerView) -> Result<Option<Drawn>, PipelineError> {
        while self.drawn.is_empty() && !self.ended {
            self.begin_step(ledger).await?;
        }
        Ok(self.drawn.pop_front())
    }

    /// Whether no group is left.
    pub(super) fn is_exhausted(&self) -> bool {
        self.ended && self.drawn.is_empty()
    }

    /// These were trained on or dropped.
    pub(super) fn settle<'b>(&mut self, groups: impl IntoIterator<Item = &'b GroupId>) {
        for group in groups {
            for step in &mut self.open {
                step.unsettled.remove(group);
            }
        }
        while self.open.front().is_some_and(|step| step.unsettled.is_empty()) {
            self.open.pop_front();
        }
    }

    /// The last step of which all groups are settled, and the task that the next one begins with.
    pub(super) fn settled(&self) -> (u32, u64) {
        let first = self.open.front().map_or(self.next, |step| (step.step, step.cursor));
        (first.0 - 1, first.1)
    }

    async fn begin_step(&mut self, ledger: &LedgerView) -> Result<(), PipelineError> {
        let (step, cursor) = self.next;
        let (picked, after) = self.online.order.take(cursor, self.required, &mut BTreeSet::new());
        if picked.is_empty() {
            self.ended = true;
            return Ok(());
        }
        self.online.fetch_ahead(self.required, after);
        let mut durable = Durable::of_step(&self.dir, step).await?;
        let mut unsettled = BTreeSet::new();
        for index in picked {
            let mut plans = self.online.plans(self.config, step, &[index]);
            let Some(id) = plans.first().map(TrialPlan::group_id) else {
                continue;
            };
            if plans.iter().any(|plan| !ledger.is_available(&plan.episode_id())) {
                continue;
            }
            let known = durable.take(&mut plans);
            unsettled.insert(id.clone());
            self.drawn.push_back(Drawn { id, plans, known });
        }
        if !unsettled.is_empty() {
            self.open.push_back(OpenStep {
                step,
                cursor,
                unsettled,
            });
        }
        self.next = (step + 1, after);
        Ok(())
    }
}
