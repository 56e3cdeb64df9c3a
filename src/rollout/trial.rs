//! One trial from start to end: sandbox, session, agent, verifier, episode. Every phase has its bound, and
//! whatever happens the sandbox is destroyed and the session closed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use futures_util::{StreamExt as _, stream};
use jiff::Timestamp;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;

use super::harbor::Harbor;
use super::harden::Ready;
use super::image::images_of;
use super::outcome::{Failure, chain};
use super::trial_files::{Ended, Spans, since};
use super::trial_spec::TEARDOWN;
use super::trial_stages::StageRecord;
use super::trial_verdict::prevented;
use super::{Observer, RolloutEvent, TrialPlan};
use crate::config::{SandboxSection, ScaffoldSection, TailKill, VerifierSection};
use crate::metrics::quantile;
use crate::proxy::{Proxy, SessionCapture, SessionOptions, SessionTicket};
use crate::sandbox::{Backend, Image};
use crate::scaffold::{AgentReport, Scaffold};
use crate::task::Task;
use crate::trajectory::{Episode, Outcome, Timings, TrialId};
use crate::verifier::{HackFlag, Verdict};

/// Images that are fetched ahead at the same time: trials that run need the network and the disk, too.
const FETCHES: usize = 2;

/// What all trials of a rollout share.
#[derive(Clone)]
pub struct TrialContext {
    /// Identity of the run.
    pub run_id: String,
    /// Makes sandboxes.
    pub backend: Arc<Backend>,
    /// The agent.
    pub scaffold: Arc<dyn Scaffold>,
    /// Who runs whole trials in place of backend and scaffold, where Harbor is to.
    pub harbor: Option<Harbor>,
    /// The API in front of the policy.
    pub proxy: Proxy,
    /// Where it listens.
    pub proxy_address: SocketAddr,
    /// `[scaffold]`
    pub scaffold_section: ScaffoldSection,
    /// `[sandbox]`
    pub sandbox_section: SandboxSection,
    /// `[verifier]`
    pub verifier_section: VerifierSection,
    /// Tries after an infrastructure failure.
    pub max_retries: u32,
    /// What ends the last trials of a step.
    pub tail_kill: Option<TailKill>,
    /// Whether an episode that ran out of turns, tokens or time keeps the verifier's reward; else it gets 0.
    pub reward_unfinished: bool,
    /// Model calls of a session at most, whatever the scaffold allows.
    pub turn_cap: Option<u32>,
    /// Whether malformed tool calls cost the reward.
    pub unparsed_zeroes_reward: bool,
    /// Whether the agent's change is kept as a patch in the trial's folder.
    pub keeps_patches: bool,
    /// Folder that holds a folder for each trial.
    pub trials: PathBuf,
    /// Served model name.
    pub model: String,
    /// Prompt and answer together, in tokens.
    pub window: usize,
    /// Tokens of one answer at most.
    pub max_tokens: u32,
    /// Tool-call parser.
    pub tool_parser: String,
    /// Who watches.
    pub observer: Observer,
    /// Trials at a time, whoever begins them.
    pub slots: Arc<Semaphore>,
    /// Fires when trials are to stop at once.
    pub cancel: CancellationToken,
}

/// What one try at a trial left behind.
#[derive(Debug)]
pub struct TrialRecord {
    /// How it ended.
    pub outcome: Outcome,
    /// Why, where that is not the agent's own end.
    pub reason: Option<String>,
    /// Whether another try may help.
    pub retry: bool,
    /// The verifier's word, over all stages.
    pub verdict: Option<Verdict>,
    /// What the agent left that could have touched it.
    pub flags: Vec<HackFlag>,
    /// Every stage that an agent worked on and that was judged; one where the task has no steps.
    pub stages: Vec<StageRecord>,
    /// The step that was not.
    pub unjudged_step: Option<String>,
    /// What was sampled.
    pub capture: Option<SessionCapture>,
    /// How the agent ended.
    pub report: Option<AgentReport>,
    /// Its version, where another program than ours found it out.
    pub agent_version: Option<String>,
    /// Where the time went.
    pub timings: Timings,
    /// When the phases were.
    pub spans: Spans,
}

impl TrialContext {
    /// Runs a trial, again after infrastructure failures, and says how it ended. Never fails: a trial that could
    /// not be run is an episode whose outcome says why.
    pub async fn run(&self, plan: TrialPlan, queued: Instant) -> Episode {
        let mut attempt = plan.first_attempt;
        // Never closed; without a slot the trial would only be one more than asked for.
        let _slot = self.slots.acquire().await.ok();
        loop {
            let trial = TrialId::fresh();
            let started_at = Timestamp::now();
            let queue_wait = queued.elapsed();
            (self.observer)(RolloutEvent::Started {
                trial: trial.clone(),
                name: plan.name(),
            });
            // Boxed: every trial that waits would hold its whole state otherwise.
            let mut record = Box::pin(self.attempt(&plan, attempt)).await;
            record.timings.queue_wait_s = queue_wait.as_secs_f32();
            let again = record.retry && attempt - plan.first_attempt < self.max_retries && !plan.cancel.is_cancelled();
            if again {
                (self.observer)(RolloutEvent::Retried {
                    name: plan.name(),
                    attempt,
                    reason: record.reason.unwrap_or_default(),
                });
                attempt += 1;
                continue;
            }
            let ended = Ended::of(&record);
            let episode = self.episode(&plan, trial, attempt, started_at, record);
            self.write_files(&plan, &episode, ended).await;
            (self.observer)(RolloutEvent::Finished {
                trial: episode.trial_id.clone(),
                name: plan.name(),
                outcome: episode.outcome,
                reward: episode.reward,
                reason: episode.failure.clone(),
                seconds: episode.timings.total_s,
                tokens: episode.audit.sampled_tokens,
            });
            return episode;
        }
    }

    /// Makes images be there before trials of these tasks ask for them. What fails here, the trials say.
    pub fn fetch_ahead(self: &Arc<Self>, tasks: Vec<Arc<Task>>) {
        let context = Arc::clone(self);
        tokio::spawn(async move {
            let section = &context.sandbox_section;
            let images: Vec<Image> = tasks.iter().flat_map(|task| images_of(task, section)).collect();
            let fetching = stream::iter(images).for_each_concurrent(FETCHES, |image| {
                let context = Arc::clone(&context);
                async move {
                    if let Err(error) = context.backend.fetch(&image).await {
                        tracing::warn!(error = chain(&error), "an image could not be fetched ahead");
                    }
                }
            });
            context.cancel.run_until_cancelled(fetching).await;
        });
    }

    async fn attempt(&self, plan: &TrialPlan, attempt: u32) -> TrialRecord {
        let began = Instant::now();
        let mut record = TrialRecord {
            outcome: Outcome::Cancelled,
            reason: None,
            retry: false,
            verdict: None,
            flags: Vec::new(),
            stages: Vec::new(),
            unjudged_step: None,
            capture: None,
            report: None,
            agent_version: None,
            timings: Timings::default(),
            spans: Spans::default(),
        };
        let result = match &self.harbor {
            _ if plan.cancel.is_cancelled() => Err(Failure::cancelled()),
            Some(harbor) => self.in_harbor(harbor, plan, &mut record).await,
            None => self.in_sandbox(plan, attempt, &mut record).await,
        };
        match result {
            Ok(outcome) => record.outcome = outcome,
            Err(failure) => {
                let straggler = plan.cancel.is_cancelled() && !self.cancel.is_cancelled();
                let failure = match failure.outcome {
                    Outcome::Cancelled if straggler => Failure::straggler(),
                    _ => failure,
                };
                if failure.outcome.is_graded() {
                    record.verdict = Some(prevented(&failure.reason));
                }
                record.outcome = failure.outcome;
                record.retry = failure.retry;
                record.reason = Some(failure.reason);
            }
        }
        record.timings.total_s = began.elapsed().as_secs_f32();
        record
    }

    async fn in_sandbox(&self, plan: &TrialPlan, attempt: u32, record: &mut TrialRecord) -> Result<Outcome, Failure> {
        let (began, at) = (Instant::now(), Timestamp::now());
        let ready = self.set_up(plan, attempt).await;
        record.timings.env_setup_s = began.elapsed().as_secs_f32();
        record.spans.environment_setup = Some(since(at));
        let ready = ready?;
        let result = self.in_session(plan, &ready, record).await;
        self.keep_workdir(plan, ready.sandbox.as_ref(), result.is_ok()).await;
        self.end_sandbox(plan, ready.sandbox.as_ref()).await;
        result
    }

    /// Opens the session, runs every stage in it, and closes it whatever came of them.
    async fn in_session(&self, plan: &TrialPlan, ready: &Ready, record: &mut TrialRecord) -> Result<Outcome, Failure> {
        let session = self.open_session(plan)?;
        let result = self.stages(plan, ready, &session, record).await;
        if record.capture.is_none() {
            // The stages ended before their last: what was sampled is still told.
            let closed = self.close(&session, record).await;
            return result.and_then(|outcome| closed.map(|()| outcome));
        }
        result
    }

    /// The agent's own way to the policy.
    pub(super) fn open_session(&self, plan: &TrialPlan) -> Result<SessionTicket, Failure> {
        let inside = self.scaffold.runs_inside();
        let session = self.proxy.open_session(SessionOptions {
            task_id: plan.task.id.clone(),
            episode_index: plan.episode_index,
            sampling: Some(plan.sampling),
            seed: plan.seed,
            turn_cap: self.session_turn_cap(),
            max_consecutive_no_tool: inside.then_some(self.scaffold_section.max_consecutive_no_tool),
            call_log: Some(self.folder(plan).join("calls.jsonl")),
        });
        session.map_err(|error| Failure::infrastructure(chain(&error)))
    }

    /// Closes the session. Nothing that runs on may sample after it.
    pub(super) async fn close(&self, session: &SessionTicket, record: &mut TrialRecord) -> Result<(), Failure> {
        match tokio::time::timeout(TEARDOWN, self.proxy.close_session(&session.key)).await {
            Ok(Ok(capture)) => {
                record.timings.model_s = capture.model_seconds;
                let gaps: Vec<f64> = capture.tool_gaps.iter().copied().map(f64::from).collect();
                record.timings.tool_gap_p90_s = if gaps.is_empty() {
                    0.0
                } else {
                    quantile(&gaps, 0.9) as f32
                };
                record.capture = Some(capture);
                Ok(())
            }
            Ok(Err(error)) => Err(Failure::infrastructure(chain(&error))),
            Err(_) => Err(Failure::infrastructure(format!(
                "the session did not close within {TEARDOWN:?}"
            ))),
        }
    }
}
