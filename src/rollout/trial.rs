//! One trial from start to end: sandbox, session, agent, verifier, episode. Every phase has its bound, and
//! whatever happens the sandbox is destroyed and the session closed.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::outcome::{Failure, chain, of_agent, of_agent_inside};
use super::trial_files::{Ended, Spans, since};
use super::trial_spec::{TEARDOWN, url_inside};
use super::{Observer, RolloutEvent, TrialPlan, network};
use crate::config::{SandboxSection, ScaffoldSection};
use crate::metrics::quantile;
use crate::proxy::{Proxy, SessionCapture, SessionOptions};
use crate::sandbox::{Backend, Sandbox};
use crate::scaffold::{AgentJob, AgentReport, Scaffold};
use crate::trajectory::{Episode, Outcome, Timings, TrialId};
use crate::verifier::Verdict;

/// What all trials of a rollout share.
pub struct TrialContext {
    /// Identity of the run.
    pub run_id: String,
    /// Makes sandboxes.
    pub backend: Backend,
    /// The agent.
    pub scaffold: Arc<dyn Scaffold>,
    /// The API in front of the policy.
    pub proxy: Proxy,
    /// Where it listens.
    pub proxy_address: SocketAddr,
    /// `[scaffold]`
    pub scaffold_section: ScaffoldSection,
    /// `[sandbox]`
    pub sandbox_section: SandboxSection,
    /// Tries after an infrastructure failure.
    pub max_retries: u32,
    /// Whether an episode that ran out of turns, tokens or time keeps the verifier's reward; else it gets 0.
    pub reward_unfinished: bool,
    /// Model calls of a session at most, whatever the scaffold allows.
    pub turn_cap: Option<u32>,
    /// Whether malformed tool calls cost the reward.
    pub unparsed_zeroes_reward: bool,
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
    /// The verifier's word.
    pub verdict: Option<Verdict>,
    /// What was sampled.
    pub capture: Option<SessionCapture>,
    /// How the agent ended.
    pub report: Option<AgentReport>,
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
        loop {
            let trial = TrialId::fresh();
            let started_at = Timestamp::now();
            let queue_wait = queued.elapsed();
            (self.observer)(RolloutEvent::Started {
                trial: trial.clone(),
                name: plan.name(),
            });
            let mut record = self.attempt(&plan, attempt).await;
            record.timings.queue_wait_s = queue_wait.as_secs_f32();
            let again = matches!(record.outcome, Outcome::EnvSetupFailed | Outcome::InfraError)
                && attempt - plan.first_attempt < self.max_retries
                && !self.cancel.is_cancelled();
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

    async fn attempt(&self, plan: &TrialPlan, attempt: u32) -> TrialRecord {
        let began = Instant::now();
        let mut record = TrialRecord {
            outcome: Outcome::Cancelled,
            reason: None,
            verdict: None,
            capture: None,
            report: None,
            timings: Timings::default(),
            spans: Spans::default(),
        };
        let result = if self.cancel.is_cancelled() {
            Err(Failure::cancelled())
        } else {
            self.in_sandbox(plan, attempt, &mut record).await
        };
        match result {
            Ok(outcome) => record.outcome = outcome,
            Err(failure) => {
                record.outcome = failure.outcome;
                record.reason = Some(failure.reason);
            }
        }
        record.timings.total_s = began.elapsed().as_secs_f32();
        record
    }

    async fn in_sandbox(&self, plan: &TrialPlan, attempt: u32, record: &mut TrialRecord) -> Result<Outcome, Failure> {
        let (began, at) = (Instant::now(), Timestamp::now());
        let sandbox = self.start_sandbox(plan, &attempt.to_string()).await;
        record.timings.env_setup_s = began.elapsed().as_secs_f32();
        record.spans.environment_setup = Some(since(at));
        let sandbox = sandbox?;
        let result = self.agent_and_verifier(plan, &sandbox, record).await;
        self.keep_workdir(plan, sandbox.as_ref(), result.is_ok()).await;
        self.end_sandbox(plan, sandbox.as_ref()).await;
        result
    }

    async fn agent_and_verifier(
        &self,
        plan: &TrialPlan,
        sandbox: &Arc<dyn Sandbox>,
        record: &mut TrialRecord,
    ) -> Result<Outcome, Failure> {
        let folder = self.folder(plan);
        fs_err::create_dir_all(folder.join("agent")).map_err(|error| Failure::infrastructure(error.to_string()))?;
        let inside = self.scaffold.runs_inside();
        let session = self.proxy.open_session(SessionOptions {
            task_id: plan.task.id.clone(),
            episode_index: plan.episode_index,
            sampling: Some(plan.sampling),
            seed: plan.seed,
            turn_cap: self.session_turn_cap(),
            max_consecutive_no_tool: inside.then_some(self.scaffold_section.max_consecutive_no_tool),
            call_log: Some(folder.join("calls.jsonl")),
        });
        let session = match session {
            Ok(session) => session,
            Err(error) => return Err(Failure::infrastructure(chain(&error))),
        };
        let (began, at) = (Instant::now(), Timestamp::now());
        let limit = self.agent_limit(plan);
        let job = AgentJob {
            task: Arc::clone(&plan.task),
            instruction: plan.task.instruction().to_owned(),
            sandbox: Arc::clone(sandbox),
            session_url: if inside {
                url_inside(sandbox.as_ref(), &session)
            } else {
                session.url.clone()
            },
            session_token: session.token.clone(),
            model: self.model.clone(),
            window: self.window,
            max_tokens: self.max_tokens,
            max_turns: self.scaffold_section.max_turns,
            max_consecutive_no_tool: self.scaffold_section.max_consecutive_no_tool,
            timeout: limit,
            logs: folder.join("agent"),
            no_more_calls: self.proxy.no_more_calls(&session.key).unwrap_or_default(),
            cancel: self.cancel.child_token(),
        };
        self.reach(sandbox.as_ref(), &network::of_agent(&plan.task, &self.sandbox_section))
            .await?;
        let ended = tokio::time::timeout(limit + TEARDOWN, self.scaffold.run(job)).await;
        record.timings.agent_s = began.elapsed().as_secs_f32();
        record.spans.agent_execution = Some(since(at));
        // The session closes before the verdict: nothing that runs on may still sample.
        let capture = tokio::time::timeout(TEARDOWN, self.proxy.close_session(&session.key)).await;
        match capture {
            Ok(Ok(capture)) => {
                record.timings.model_s = capture.model_seconds;
                let gaps: Vec<f64> = capture.tool_gaps.iter().copied().map(f64::from).collect();
                record.timings.tool_gap_p90_s = if gaps.is_empty() {
                    0.0
                } else {
                    quantile(&gaps, 0.9) as f32
                };
                record.capture = Some(capture);
            }
            Ok(Err(error)) => return Err(Failure::infrastructure(chain(&error))),
            Err(_) => {
                return Err(Failure::infrastructure(format!(
                    "the session did not close within {TEARDOWN:?}"
                )));
            }
        }
        let report = match ended {
            Ok(Ok(report)) => report,
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => {
                return Err(Failure::infrastructure(format!(
                    "the agent did not stop within {:?}",
                    limit + TEARDOWN
                )));
            }
        };
        record.timings.tool_s = report.tool_s;
        let capture = record.capture.get_or_insert_default();
        let outcome = if inside {
            of_agent_inside(&report.end, capture)?
        } else {
            of_agent(&report.end, capture)?
        };
        record.report = Some(report);
        if self.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        let (began, at) = (Instant::now(), Timestamp::now());
        self.reach(sandbox.as_ref(), &network::of_verifier(&plan.task)).await?;
        let verdict = self.verdict(plan, sandbox.as_ref(), &folder).await;
        record.timings.verify_s = began.elapsed().as_secs_f32();
        record.spans.verifier = Some(since(at));
        record.verdict = Some(verdict?);
        Ok(outcome)
    }
}
