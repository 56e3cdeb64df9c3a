//! Groups that rollouters in other processes sample: their shards are read as they come, and what they may begin is said.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lego_policy::Weights;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinHandle;

use super::sampling::{CompleteGroup, Sampling, Told};
use crate::buffer::LedgerView;
use crate::buffer::meeting::{Meeting, MeetingError, Published, Pulse};
use crate::pipeline::blocking::blocking;
use crate::pipeline::group_order::GroupOrder;
use crate::pipeline::{PipelineError, PipelineEvent, PipelineObserver};
use crate::shard::{ShardMeta, ShardReader};
use crate::train::checkpoint::PublishedWeights;
use crate::trajectory::{Episode, EpisodeId, GroupId, Outcome, PolicyVersion};

/// How often new shards are looked for: in a folder, and in an object store, where each look is a request that costs.
const POLL: Duration = Duration::from_millis(500);
const STORE_POLL: Duration = Duration::from_secs(2);
/// How often it is said that the trainer lives.
const BEAT: Duration = Duration::from_secs(5);
/// How often it is looked whether rollouters live, and after how long without a word one does not.
const LOOK: Duration = Duration::from_secs(10);
pub(in crate::pipeline) const SILENCE: Duration = Duration::from_mins(1);
/// Batches of episodes that were read and not taken.
const READ_AHEAD: usize = 4;

/// Where weights go that rollouters load.
pub(in crate::pipeline) struct PublishedTo {
    pub meeting: Meeting,
    /// Writes them on this machine.
    pub store: PublishedWeights,
}

impl PublishedTo {
    /// Makes a version of the weights loadable; what names it comes later.
    pub(in crate::pipeline) async fn publish(
        &self,
        version: PolicyVersion,
        weights: Weights,
    ) -> Result<(), PipelineError> {
        let store = self.store.clone();
        let folder = blocking(move || store.write(version, &weights, &[])).await??;
        if self.meeting.local_weights().is_none() {
            self.meeting.put_weights(&folder).await?;
            self.meeting.forget_weights(&self.store.kept()?).await?;
        }
        Ok(())
    }
}

/// Sampled by others.
pub(in crate::pipeline) struct Elsewhere {
    meeting: Meeting,
    order: GroupOrder,
    trials: usize,
    /// Groups of which episodes are missing.
    open: HashMap<GroupId, BTreeMap<EpisodeId, Episode>>,
    /// Groups that were complete.
    known: BTreeSet<GroupId>,
    read: mpsc::Receiver<Result<Vec<Episode>, PipelineError>>,
    says: Arc<Says>,
    tasks: Vec<JoinHandle<()>>,
    /// Groups that were settled before this start, and how many more may be begun.
    ahead_of: u64,
    capacity: u64,
}

/// What is said to rollouters, and that it is to be said.
struct Says {
    published: Mutex<Published>,
    changed: Notify,
}

impl Says {
    fn lock(&self) -> MutexGuard<'_, Published> {
        self.published.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Elsewhere {
    /// Begins to say and to read. `first` is what is said first; `capacity` how many groups may be ahead.
    pub(in crate::pipeline) async fn begin(
        meeting: Meeting,
        order: GroupOrder,
        ledger: &LedgerView,
        first: Published,
        capacity: u64,
        policy: ShardMeta,
        observer: &PipelineObserver,
    ) -> Result<Self, PipelineError> {
        let trials = first.order.trials as usize;
        let (mut order, mut first) = (order, first);
        order.settle(ledger);
        order.describe(&mut first);
        let known = GroupOrder::settled_groups(ledger);
        let settled = known.len() as u64;
        first.begin_below = settled + capacity;
        meeting.publish(&first).await?;
        let says = Arc::new(Says {
            published: Mutex::new(first),
            changed: Notify::new(),
        });
        let (send, read) = mpsc::channel(READ_AHEAD);
        let saying = tokio::spawn(say(meeting.clone(), Arc::clone(&says)));
        let after = order.settled().0;
        let reading = tokio::spawn(read_shards(meeting.clone(), after, policy, send, Arc::clone(observer)));
        Ok(Self {
            meeting,
            known,
            order,
            trials,
            open: HashMap::new(),
            read,
            says,
            tasks: vec![saying, reading],
            ahead_of: settled,
            capacity,
        })
    }

    /// Takes in episodes, each once, and gives the groups that they complete.
    fn take_in(&mut self, episodes: Vec<Episode>) -> Vec<CompleteGroup> {
        let mut complete = Vec::new();
        for episode in episodes {
            // What a rollouter cut off is sampled again, and a group that is complete takes no more.
            let id = episode.group_id.clone();
            if episode.outcome == Outcome::Cancelled || self.known.contains(&id) || !self.order.holds(&id) {
                continue;
            }
            let group = self.open.entry(id.clone()).or_default();
            group.entry(episode.episode_id.clone()).or_insert(episode);
            if group.len() >= self.trials
                && let Some(group) = self.open.remove(&id)
            {
                self.known.insert(id.clone());
                complete.push(CompleteGroup {
                    id,
                    episodes: group.into_values().collect(),
                });
            }
        }
        complete
    }
}

impl Sampling for Elsewhere {
    fn has_room(&self) -> bool {
        false
    }

    async fn draw(&mut self, _: &LedgerView) -> Result<Option<Option<CompleteGroup>>, PipelineError> {
        Ok(None)
    }

    fn go(&mut self) {}

    async fn next(&mut self) -> Result<Vec<CompleteGroup>, PipelineError> {
        match self.read.recv().await {
            Some(episodes) => Ok(self.take_in(episodes?)),
            None => Err(PipelineError::Worker("shards are no longer read".to_owned())),
        }
    }

    fn is_elsewhere(&self) -> bool {
        true
    }

    fn open_groups(&self) -> usize {
        self.open.len()
    }

    fn is_running(&self) -> bool {
        false
    }

    fn is_exhausted(&self) -> bool {
        self.order.groups().is_some_and(|all| self.known.len() as u64 >= all)
    }

    fn settle(&mut self, _: &[GroupId], ledger: &LedgerView) {
        self.order.settle(ledger);
    }

    fn settled(&self) -> (u32, u64) {
        self.order.settled()
    }

    fn tell(&mut self, told: Told) {
        let mut published = self.says.lock();
        published.step = told.step;
        published.version = told.version;
        published.weights = PublishedWeights::name(told.version);
        self.order.describe(&mut published);
        published.begin_below = self.ahead_of + told.released + self.capacity;
        drop(published);
        self.says.changed.notify_one();
    }

    fn flush(&mut self, _: bool) -> Result<(), PipelineError> {
        Ok(())
    }

    fn stop(&mut self) {}

    fn idle_ratio(&mut self) -> Option<f64> {
        None
    }

    async fn leave(&mut self, finished: bool) -> Result<(), PipelineError> {
        for task in self.tasks.drain(..) {
            task.abort();
            // Nothing older is put behind what is put last.
            let _ = task.await;
        }
        let last = {
            let mut published = self.says.lock();
            published.beat += 1;
            published.finished = finished;
            published.clone()
        };
        Ok(self.meeting.publish(&last).await?)
    }
}

/// Says what there is to say, at least so often that nobody takes the trainer for dead.
async fn say(meeting: Meeting, says: Arc<Says>) {
    loop {
        let _ = tokio::time::timeout(BEAT, says.changed.notified()).await;
        let published = {
            let mut published = says.lock();
            published.beat += 1;
            published.clone()
        };
        if let Err(error) = meeting.publish(&published).await {
            tracing::warn!(%error, "rollouters could not be told; told again");
        }
    }
}

/// Reads every shard of the steps after one once, as it comes.
async fn read_shards(
    meeting: Meeting,
    after: u32,
    policy: ShardMeta,
    send: mpsc::Sender<Result<Vec<Episode>, PipelineError>>,
    observer: PipelineObserver,
) {
    let mut seen = BTreeSet::new();
    let (mut pulse, mut looked, mut alive) = (Pulse::new(SILENCE), None::<Instant>, true);
    loop {
        let found = match new_episodes(&meeting, after, &policy, &mut seen).await {
            Ok(found) => found,
            Err(error) => {
                // Whoever waits for it is gone, or hears of it.
                let _ = send.send(Err(error)).await;
                return;
            }
        };
        for episodes in found {
            if send.send(Ok(episodes)).await.is_err() {
                return;
            }
        }
        if looked.is_none_or(|at| at.elapsed() >= LOOK) {
            looked = Some(Instant::now());
            match meeting.rollouters().await {
                Ok(all) => {
                    let living = all.iter().any(|one| !one.ended && pulse.beats(&one.name, one.beat));
                    if alive && !living {
                        observer(PipelineEvent::Warning(format!(
                            "no rollouter is alive at {place}: start `lego rollout --follow {place}`; the trainer waits",
                            place = meeting.place()
                        )));
                    }
                    alive = living;
                }
                Err(error) => tracing::warn!(%error, "rollouters cannot be looked for"),
            }
        }
        tokio::time::sleep(if meeting.folder().is_some() { POLL } else { STORE_POLL }).await;
    }
}

async fn new_episodes(
    meeting: &Meeting,
    after: u32,
    policy: &ShardMeta,
    seen: &mut BTreeSet<String>,
) -> Result<Vec<Vec<Episode>>, PipelineError> {
    if meeting.local_rollouts().is_some_and(|folder| !folder.is_dir()) {
        return Ok(Vec::new());
    }
    let reader = ShardReader::open_places(&[meeting.rollouts()]).await?;
    let mut found = Vec::new();
    for file in reader.files() {
        let settled = file.step().is_some_and(|step| step <= after);
        if !settled && seen.insert(file.to_string()) {
            found.push(reader.only(file).episodes(Some(policy)).await?);
        }
    }
    Ok(found)
}

impl From<MeetingError> for PipelineError {
    fn from(error: MeetingError) -> Self {
        Self::Meeting(error)
    }
}
