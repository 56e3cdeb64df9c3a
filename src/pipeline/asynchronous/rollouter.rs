//! The sampling side: trials that wait and run, groups that are not complete yet, and their rows on the way to disk.

use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use super::groups::Drawn;
use super::sampling::CompleteGroup;
use crate::pipeline::PipelineError;
use crate::rollout::{RolloutEvent, TrialContext, TrialPlan};
use crate::shard::ShardWriter;
use crate::trajectory::{Episode, GroupId};

/// Time for trials that nobody waits for any more to end.
const CLEAN_UP: Duration = Duration::from_mins(1);

struct OpenGroup {
    trials: usize,
    episodes: Vec<Episode>,
}

/// Trials at a time, and what they have come to.
pub(in crate::pipeline) struct Rollouter {
    context: Arc<TrialContext>,
    concurrency: usize,
    waiting: VecDeque<(TrialPlan, Instant)>,
    running: JoinSet<Episode>,
    open: HashMap<GroupId, OpenGroup>,
    writer: ShardWriter,
    slots: IdleSlots,
}

/// How much of the time of the trials' slots was not used.
struct IdleSlots {
    since: Instant,
    idle: f64,
    all: f64,
}

impl Rollouter {
    pub(in crate::pipeline) fn new(context: &Arc<TrialContext>, concurrency: usize, writer: ShardWriter) -> Self {
        Self {
            context: Arc::clone(context),
            concurrency,
            waiting: VecDeque::new(),
            running: JoinSet::new(),
            open: HashMap::new(),
            writer,
            slots: IdleSlots {
                since: Instant::now(),
                idle: 0.0,
                all: 0.0,
            },
        }
    }

    /// Whether a trial more would begin at once.
    pub(in crate::pipeline) fn has_room(&self) -> bool {
        self.waiting.is_empty() && self.running.len() < self.concurrency
    }

    /// Groups that are not complete.
    pub(in crate::pipeline) fn open_groups(&self) -> usize {
        self.open.len()
    }

    /// Whether trials run.
    pub(in crate::pipeline) fn is_running(&self) -> bool {
        !self.running.is_empty()
    }

    /// Takes up a group, which is complete at once where an earlier start has sampled all of it.
    pub(in crate::pipeline) fn add(&mut self, group: Drawn) -> Option<CompleteGroup> {
        if group.plans.is_empty() {
            return Some(CompleteGroup {
                id: group.id,
                episodes: group.known,
            });
        }
        let open = OpenGroup {
            trials: group.plans.len() + group.known.len(),
            episodes: group.known,
        };
        self.open.insert(group.id, open);
        let now = Instant::now();
        self.waiting.extend(group.plans.into_iter().map(|plan| (plan, now)));
        None
    }

    /// Begins as many trials as there is room for.
    pub(in crate::pipeline) fn begin(&mut self) {
        self.count_slots();
        while self.running.len() < self.concurrency
            && let Some((plan, queued)) = self.waiting.pop_front()
        {
            let context = Arc::clone(&self.context);
            let cancel = context.cancel.child_token();
            self.running
                .spawn(async move { context.run(TrialPlan { cancel, ..plan }, queued).await });
        }
    }

    /// The next trial that ends; never, while none runs. Safe to drop.
    pub(in crate::pipeline) async fn next(&mut self) -> Result<Episode, PipelineError> {
        match self.running.join_next().await {
            Some(ended) => ended.map_err(|error| PipelineError::Worker(error.to_string())),
            None => std::future::pending().await,
        }
    }

    /// Writes an episode that has ended, and hands its group on if it was the last. The rows are durable after `flush`.
    pub(in crate::pipeline) fn accept(&mut self, episode: Episode) -> Result<Option<CompleteGroup>, PipelineError> {
        self.count_slots();
        let written = self.writer.push(&episode)?;
        self.tell(written);
        let id = episode.group_id.clone();
        let Some(group) = self.open.get_mut(&id) else {
            return Ok(None);
        };
        group.episodes.push(episode);
        if group.episodes.len() < group.trials {
            return Ok(None);
        }
        let group = self.open.remove(&id);
        Ok(group.map(|group| CompleteGroup {
            id,
            episodes: group.episodes,
        }))
    }

    /// Makes every row durable.
    pub(in crate::pipeline) fn flush(&mut self) -> Result<(), PipelineError> {
        let written = self.writer.flush()?;
        self.tell(written);
        Ok(())
    }

    /// Makes rows durable that have waited long enough.
    pub(in crate::pipeline) fn flush_due(&mut self) -> Result<(), PipelineError> {
        let written = self.writer.flush_due()?;
        self.tell(written);
        Ok(())
    }

    /// Ends with the trials that run, which are asked to by their context, in bounded time. Their rows are durable then.
    pub(in crate::pipeline) async fn end(&mut self) -> Result<(), PipelineError> {
        self.stop();
        let rest = async {
            while self.is_running() {
                let episode = self.next().await?;
                self.accept(episode)?;
            }
            Ok::<(), PipelineError>(())
        };
        let left = tokio::time::timeout(CLEAN_UP, rest).await;
        self.flush()?;
        left.unwrap_or(Ok(()))
    }

    /// Lets no further trial begin.
    pub(in crate::pipeline) fn stop(&mut self) {
        self.waiting.clear();
    }

    /// Share of the slots that stood empty since the last time that this was asked.
    pub(in crate::pipeline) fn idle_ratio(&mut self) -> f64 {
        self.count_slots();
        let slots = &mut self.slots;
        let ratio = if slots.all > 0.0 { slots.idle / slots.all } else { 0.0 };
        (slots.idle, slots.all) = (0.0, 0.0);
        ratio
    }

    fn count_slots(&mut self) {
        let seconds = self.slots.since.elapsed().as_secs_f64();
        self.slots.since = Instant::now();
        let empty = self.concurrency.saturating_sub(self.running.len());
        self.slots.idle += seconds * empty as f64;
        self.slots.all += seconds * self.concurrency as f64;
    }

    fn tell(&self, written: Vec<PathBuf>) {
        for path in written {
            (self.context.observer)(RolloutEvent::ShardWritten(path));
        }
    }
}
