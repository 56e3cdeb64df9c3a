//! One trial from start to end: sandbox, session, agent, verifier, episode. Every phase has its bound, and
//! whatever happens the sandbox is destroyed and the session closed.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;

use super::outcome::{Failure, chain, of_agent};
use super::{Observer, RolloutEvent, TrialPlan};
use crate::config::{SandboxSection, ScaffoldSection};
use crate::proxy::{Proxy, SessionCapture, SessionOptions};
use crate::sandbox::{Backend, Limits, Network, Sandbox, SandboxSpec};
use crate::scaffold::{AgentJob, AgentReport, Scaffold};
use crate::task::resolve_env;
use crate::trajectory::{Episode, Outcome, Timings, TrialId};
use crate::verifier::{self, Verdict, VerifyOptions};

/// Time for what has no limit of its own: stopping, collecting, tearing down.
const TEARDOWN: Duration = Duration::from_secs(30);
/// Time to start a sandbox where neither the run nor the task says otherwise.
const SETUP: Duration = Duration::from_mins(10);

/// Time for the agent where neither the run nor the task limits it.
const AGENT: Duration = Duration::from_hours(1);

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
}

impl TrialContext {
    /// Runs a trial, again after infrastructure failures, and says how it ended. Never fails: a trial that could
    /// not be run is an episode whose outcome says why.
    pub async fn run(&self, plan: TrialPlan, queued: Instant) -> Episode {
        let mut attempt = 0;
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
                && attempt < self.max_retries
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
            let episode = self.episode(&plan, trial, attempt, started_at, record);
            (self.observer)(RolloutEvent::Finished {
                trial: episode.trial_id.clone(),
                name: plan.name(),
                outcome: episode.outcome,
                reward: episode.reward,
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
        let began = Instant::now();
        let setup = self.sandbox_section.timeouts.setup.map_or(SETUP, |limit| limit.0);
        let spec = self.sandbox_spec(plan, attempt)?;
        let sandbox = match tokio::time::timeout(setup, self.backend.create(spec)).await {
            Ok(Ok(sandbox)) => sandbox,
            Ok(Err(error)) => return Err(Failure::setup(&error)),
            Err(_) => {
                return Err(Failure {
                    outcome: Outcome::EnvSetupFailed,
                    reason: format!("the sandbox was not ready within {setup:?}"),
                    retry: true,
                });
            }
        };
        record.timings.env_setup_s = began.elapsed().as_secs_f32();
        let result = self.agent_and_verifier(plan, &sandbox, record).await;
        let failed = tokio::time::timeout(TEARDOWN, sandbox.destroy()).await;
        match failed {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(trial = plan.name(), error = chain(&error), "sandbox not removed"),
            Err(_) => tracing::warn!(trial = plan.name(), "sandbox not removed within {TEARDOWN:?}"),
        }
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
        let session = self.proxy.open_session(SessionOptions {
            task_id: plan.task.id.clone(),
            episode_index: plan.episode_index,
            sampling: Some(plan.sampling),
            seed: plan.seed,
            turn_cap: self.turn_cap,
            call_log: Some(folder.join("calls.jsonl")),
        });
        let session = match session {
            Ok(session) => session,
            Err(error) => return Err(Failure::infrastructure(chain(&error))),
        };
        let began = Instant::now();
        let limit = self.agent_limit(plan);
        let job = AgentJob {
            task: Arc::clone(&plan.task),
            instruction: plan.task.instruction().to_owned(),
            sandbox: Arc::clone(sandbox),
            session_url: session.url.clone(),
            session_token: session.token.clone(),
            model: self.model.clone(),
            max_turns: self.scaffold_section.max_turns,
            max_consecutive_no_tool: self.scaffold_section.max_consecutive_no_tool,
            timeout: limit,
            logs: folder.join("agent"),
            cancel: self.cancel.child_token(),
        };
        let ended = tokio::time::timeout(limit + TEARDOWN, self.scaffold.run(job)).await;
        record.timings.agent_s = began.elapsed().as_secs_f32();
        // The session closes before the verdict: nothing that runs on may still sample.
        let capture = tokio::time::timeout(TEARDOWN, self.proxy.close_session(&session.key)).await;
        match capture {
            Ok(Ok(capture)) => {
                record.timings.model_s = capture.model_seconds;
                record.timings.tool_gap_p90_s = quantile(&capture.tool_gaps, 0.9);
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
        let outcome = of_agent(&report.end);
        record.report = Some(report);
        if self.cancel.is_cancelled() {
            return Err(Failure::cancelled());
        }
        let began = Instant::now();
        let verdict = self.verdict(plan, sandbox, &folder).await;
        record.timings.verify_s = began.elapsed().as_secs_f32();
        record.verdict = Some(verdict?);
        Ok(outcome)
    }

    /// The verifier's word; asked a second time in the same sandbox where the first gave none.
    async fn verdict(&self, plan: &TrialPlan, sandbox: &Arc<dyn Sandbox>, folder: &Path) -> Result<Verdict, Failure> {
        let env = resolved(plan, &plan.task.config.verifier.env)?;
        let mut last = String::new();
        for _ in 0..2 {
            let options = VerifyOptions {
                env: env.clone(),
                ..VerifyOptions::new(self.verifier_limit(plan), folder.join("verifier"))
            };
            match verifier::verify(sandbox.as_ref(), &plan.task.tests_dir(), &options).await {
                Ok(verdict) => return Ok(verdict),
                Err(error) => last = chain(&error),
            }
        }
        Err(Failure::verifier(last))
    }

    fn folder(&self, plan: &TrialPlan) -> PathBuf {
        self.trials.join(format!("step_{:04}", plan.step)).join(plan.name())
    }

    fn agent_limit(&self, plan: &TrialPlan) -> Duration {
        self.phase_limit(
            self.sandbox_section.timeouts.agent,
            plan.task.agent_timeout().unwrap_or(AGENT),
        )
    }

    /// The run's own limit, else the task's times the multiplier.
    fn phase_limit(&self, own: Option<crate::config::HumanDuration>, tasks: Duration) -> Duration {
        own.map_or_else(
            || tasks.mul_f64(self.sandbox_section.timeout_multiplier),
            |limit| limit.0,
        )
    }

    fn verifier_limit(&self, plan: &TrialPlan) -> Duration {
        self.phase_limit(self.sandbox_section.timeouts.verifier, plan.task.verifier_timeout())
    }

    fn sandbox_spec(&self, plan: &TrialPlan, attempt: u32) -> Result<SandboxSpec, Failure> {
        let section = &self.sandbox_section;
        let environment = &plan.task.config.environment;
        let mut env = resolved(plan, &environment.env)?;
        env.extend(self.scaffold_section.env.clone());
        let source = plan.task.local_source().ok_or_else(|| Failure {
            outcome: Outcome::EnvSetupFailed,
            reason: format!(
                "{} has no environment/files: the `local` backend starts from that folder; other images need `docker`",
                plan.task.dir.display()
            ),
            retry: false,
        })?;
        Ok(SandboxSpec {
            source,
            workdir: plan.task.workdir(),
            env,
            limits: Limits {
                cpus: section.cpus,
                memory: section
                    .memory
                    .map(|size| size.0)
                    .or(environment.memory_mb().map(|mb| mb << 20)),
                pids: section.pids,
                disk: None,
            },
            network: Network::Proxy(self.proxy_address),
            name: format!("{}-{}-{attempt}", plan.step, plan.name()),
            labels: BTreeMap::from([("run".to_owned(), self.run_id.clone())]),
            lifetime: SETUP + self.agent_limit(plan) + self.verifier_limit(plan) * 2 + TEARDOWN * 4,
        })
    }
}

/// An environment table of task.toml with the host's variables filled in.
fn resolved(plan: &TrialPlan, table: &BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Failure> {
    resolve_env(&plan.task.dir.join("task.toml"), table, |name| std::env::var(name).ok()).map_err(|error| Failure {
        retry: false,
        ..Failure::setup(&error)
    })
}

/// The `q`-quantile of times, 0 of none.
fn quantile(times: &[f32], q: f64) -> f32 {
    let mut times = times.to_vec();
    times.sort_by(f32::total_cmp);
    times
        .get(((times.len().max(1) - 1) as f64 * q).round() as usize)
        .copied()
        .unwrap_or(0.0)
}
