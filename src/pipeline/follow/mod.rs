//! `lego rollout --follow`: the sampling side alone. Groups that the trainer lets begin, claimed one by one, sampled by the
//! weights that it published last; rows go where both meet.

mod claims;
mod listen;

use std::path::{Path, PathBuf};
use std::time::Duration;

use lego_policy::Weights;
use tokio_util::sync::CancellationToken;

use self::claims::{Claims, Tasks};
use self::listen::{Listening, hear, pulse};
use super::asynchronous::Rollouter;
use super::blocking::blocking;
use super::first::First;
use super::group_order::GroupOrder;
use super::run::run_directory;
use super::stack::{Stack, StackOptions, Work};
use super::watchdog::watched;
use super::{PipelineError, PipelineObserver, TaskSet};
use crate::buffer::meeting::{Meeting, Published};
use crate::config::Loaded;
use crate::shard::{ShardFile, ShardReader, ShardWriter, WriterOptions};
use crate::trajectory::PolicyVersion;

/// How often claims of others are looked at, and rows that wait to become durable.
const TICK: Duration = Duration::from_secs(1);

/// A rollouter to run.
pub struct FollowJob {
    /// The configuration, the trainer's but for what is of this machine.
    pub loaded: Loaded,
    /// Where it meets the trainer: a folder, or the URL of a prefix of an object store.
    pub place: String,
    /// Its name there; a rollouter that is started again under its name goes on with its groups at once.
    pub name: String,
    /// What does not come from run.toml.
    pub stack: StackOptions,
    /// Fires when no more trials are to begin.
    pub stop: CancellationToken,
    /// Who watches.
    pub observer: PipelineObserver,
}

/// What a rollouter did.
#[derive(Debug, Clone, Default)]
pub struct FollowEnd {
    /// Groups that it completed.
    pub groups: u64,
    /// Whether the trainer has ended, rather than this side.
    pub finished: bool,
}

/// Samples until the trainer has ended, or until it is asked to stop.
pub async fn follow(mut job: FollowJob) -> Result<FollowEnd, PipelineError> {
    let (observer, _watchdog) = watched(&job.observer, job.loaded.config.run.no_progress.0);
    job.observer = observer;
    let config = &job.loaded.config;
    let parent = Path::new(&job.place)
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    if !job.place.contains("://") && parent.is_some_and(|parent| !parent.is_dir()) {
        return Err(PipelineError::Config(format!(
            "--follow {}: there is no folder that could hold it; name the place that the trainer publishes at",
            job.place
        )));
    }
    let meeting = Meeting::open(&job.place)?;
    let mut heard = hear(&meeting, &job.stop, &job.observer).await?;
    let own = match meeting.local_rollouts() {
        Some(rollouts) => rollouts.with_file_name("rollouters").join(&job.name),
        None => run_directory(config).join("rollouters").join(&job.name),
    };
    let path = config.data.train.clone().ok_or(PipelineError::MissingKey {
        key: "data.train",
        why: "the tasks to work on, the trainer's",
    })?;
    let prepared = own.join("tasks");
    let tasks = blocking(move || TaskSet::load(&path, &prepared)).await??;
    let order = GroupOrder::new(config, &tasks);
    let first = heard.last()?;
    if first.finished {
        return Ok(FollowEnd {
            groups: 0,
            finished: true,
        });
    }
    if let Some((key, mine, theirs)) = order.identity(config).difference(&first.order) {
        return Err(PipelineError::Config(format!(
            "`{key}` is {mine} here, and {theirs} for the trainer of {}: both must name the same groups; take its run.toml",
            meeting.place()
        )));
    }
    let Some(sample) = tasks.tasks.first() else {
        return Err(PipelineError::Nothing("data.train holds no task".to_owned()));
    };
    let weights = weights_of(&meeting, &first, &own).await?;
    let trials = meeting
        .local_rollouts()
        .map_or_else(|| own.join("trials"), |place| place.with_file_name("trials"));
    let stack = Stack::start(
        config,
        &job.stack,
        Work {
            run_id: meeting.place().rsplit('/').next().unwrap_or_default(),
            trials: &trials,
            sample: &sample.task,
            keeps_patches: false,
        },
        First::Trainer {
            weights,
            version: first.version,
            folder: own.join("served"),
        },
        &job.observer,
        &job.stop,
    )
    .await?;
    let pulse = pulse(&meeting, &job.name).await?;
    let spool = meeting.local_rollouts().unwrap_or_else(|| own.join("rollouts"));
    let writer = ShardWriter::new(
        &spool,
        &format!("{}-{:x}", job.name, jiff::Timestamp::now().as_millisecond()),
        stack.shard_meta.clone(),
        WriterOptions {
            flush_after: config.rollout.flush.0,
            ..WriterOptions::default()
        },
    )?;
    let mut follower = Follower {
        rollouter: Rollouter::new(&stack.context, config.sandbox.concurrency as usize, writer),
        claims: Claims::new(&meeting, order, &job.name, &first),
        tasks: Tasks { config, set: &tasks },
        job: &job,
        stack: &stack,
        meeting: &meeting,
        own,
        served: first.version,
        pulse: &pulse,
        end: FollowEnd::default(),
    };
    let result = follower.go_on(&mut heard).await;
    stack.context.cancel.cancel();
    let ended = follower.rollouter.end().await;
    let sent = follower.send().await;
    let end = follower.end.clone();
    // Also where something failed: what it had claimed is free.
    let told = pulse.end().await;
    stack.close().await;
    result.and(ended).and(sent).and(told).map(|()| end)
}

async fn weights_of(meeting: &Meeting, published: &Published, own: &Path) -> Result<Weights, PipelineError> {
    let folder = meeting.fetch_weights(&published.weights, &own.join("weights")).await?;
    Ok(blocking(move || Weights::load(&folder)).await??)
}

struct Follower<'a> {
    job: &'a FollowJob,
    stack: &'a Stack,
    meeting: &'a Meeting,
    tasks: Tasks<'a>,
    rollouter: Rollouter,
    claims: Claims<'a>,
    own: PathBuf,
    served: PolicyVersion,
    pulse: &'a listen::Pulsing,
    end: FollowEnd,
}

impl Follower<'_> {
    async fn go_on(&mut self, heard: &mut Listening) -> Result<(), PipelineError> {
        let mut stopping = false;
        loop {
            let said = heard.last()?;
            if said.finished {
                self.end.finished = true;
                return Ok(());
            }
            if self.pulse.is_displaced() {
                return Err(PipelineError::Config(format!(
                    "another rollouter called `{}` began at {} in the same moment: give one of them another --name",
                    self.job.name,
                    self.meeting.place()
                )));
            }
            if said.version != self.served {
                self.serve(&said, heard).await?;
            }
            if self.job.stop.is_cancelled() {
                stopping = true;
                self.rollouter.stop();
                if !self.rollouter.is_running() {
                    return Ok(());
                }
            }
            // Also those of a group that there was room for only in part.
            self.rollouter.begin();
            while !stopping && self.rollouter.has_room() {
                let Some(group) = self.claims.next(&self.tasks, &said).await? else {
                    break;
                };
                if self.rollouter.add(group).is_some() {
                    continue;
                }
                self.rollouter.begin();
            }
            self.pulse.works_on(self.rollouter.open_groups() as u64);
            tokio::select! {
                episode = self.rollouter.next() => {
                    if self.rollouter.accept(episode?)?.is_some() {
                        self.end.groups += 1;
                        self.rollouter.flush()?;
                    }
                }
                () = heard.changed() => {}
                () = self.job.stop.cancelled(), if !stopping => {}
                () = tokio::time::sleep(TICK) => {}
            }
            self.rollouter.flush_due()?;
            self.send().await?;
        }
    }

    /// Serves the weights that were published last. Trials go on meanwhile: they run by themselves.
    async fn serve(&mut self, said: &Published, heard: &Listening) -> Result<(), PipelineError> {
        let loaded = weights_of(self.meeting, said, &self.own).await;
        let weights = match loaded {
            Ok(weights) => weights,
            // Newer ones came while these were read, and took their place.
            Err(_) if heard.has_changed() => return Ok(()),
            Err(error) => return Err(error),
        };
        if self.job.loaded.config.r#async.partial_rollout {
            self.stack.publish(said.version, weights).await?;
        } else {
            self.stack.publish_between(said.version, weights).await?;
        }
        self.served = said.version;
        Ok(())
    }

    /// Puts shards that are durable here where the trainer looks for them.
    async fn send(&mut self) -> Result<(), PipelineError> {
        if self.meeting.local_rollouts().is_some() {
            return Ok(());
        }
        // Those that an earlier start could not send are among them.
        let spool = self.own.join("rollouts");
        for file in ShardReader::open(&[&spool])?.files() {
            if let ShardFile::Local(file) = file {
                self.meeting.put_shard(file).await?;
                fs_err::remove_file(file)?;
            }
        }
        Ok(())
    }
}

impl FollowJob {
    /// A name that no other process has: machine and process.
    pub fn own_name() -> String {
        let host = listen::own_host();
        let plain = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        format!("{}-{}", host.chars().map(plain).collect::<String>(), std::process::id())
    }
}
