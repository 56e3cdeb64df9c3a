//! The stages of a trial: for each, the agent, what it left, what is kept of it, and the verdict.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;

use super::harden::Ready;
use super::outcome::{Failure, chain, of_agent, of_agent_inside};
use super::trial::{TrialContext, TrialRecord};
use super::trial_files::since;
use super::trial_spec::{TEARDOWN, url_inside};
use super::trial_verdict::{Judged, over_stages};
use super::{TrialPlan, artifacts, health, network, work_patch};
use crate::proxy::SessionTicket;
use crate::run_dir::TimeSpan;
use crate::sandbox::{ExecRequest, SandboxError};
use crate::scaffold::{AgentEnd, AgentJob, AgentReport};
use crate::task::Stage;
use crate::trajectory::Outcome;
use crate::verifier::{Changes, Scene, Watch, examine, sought};

/// Time for the `setup.sh` of a step.
const STEP_SETUP: Duration = Duration::from_mins(10);

/// What became of one stage.
#[derive(Debug)]
pub struct StageRecord {
    /// Of its step; `None` where the task has no steps.
    pub step: Option<String>,
    /// Its word.
    pub judged: Judged,
    /// How the agent's run was.
    pub agent: TimeSpan,
    /// How the agent ended.
    pub end: AgentEnd,
    /// When the verifier ran.
    pub verifier: Option<TimeSpan>,
}

/// What is known of the time before a stage's agent.
struct Known {
    watch: Watch,
    /// Host folders with what the task put into the working folder, the newest first.
    originals: Vec<PathBuf>,
}

impl TrialContext {
    /// Folder of a stage: the trial's own, or a step's in it.
    fn stage_folder(&self, plan: &TrialPlan, stage: &Stage) -> PathBuf {
        let folder = self.folder(plan);
        match &stage.step {
            Some(step) => folder.join("steps").join(step),
            None => folder,
        }
    }

    /// Runs the stages until the last, or until one does not reach its `min_reward`.
    pub(super) async fn stages(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        session: &SessionTicket,
        record: &mut TrialRecord,
    ) -> Result<Outcome, Failure> {
        let mut outcome = Outcome::Completed;
        let mut known = Known {
            watch: ready.watch.clone(),
            originals: plan.task.local_source().into_iter().collect(),
        };
        for (at, stage) in ready.stages.iter().enumerate() {
            let folder = self.stage_folder(plan, stage);
            record.unjudged_step.clone_from(&stage.step);
            fs_err::create_dir_all(folder.join("agent")).map_err(|error| Failure::infrastructure(error.to_string()))?;
            self.prepare(ready, stage, at > 0).await?;
            if let Some(files) = &stage.workdir_files {
                known.originals.insert(0, files.clone());
                known.watch = Watch::look(ready.sandbox.as_ref(), ready.sandbox.workdir())
                    .await
                    .map_err(|error| Failure::setup(&error))?;
            }
            let last = at + 1 == ready.stages.len();
            let (report, agent) = self.agent(plan, ready, stage, session, &folder, record).await?;
            if last {
                outcome = self.end_of_agent(session, record, &report).await?;
            }
            let end = report.end.clone();
            record.report = Some(report);
            if plan.cancel.is_cancelled() {
                return Err(Failure::cancelled());
            }
            let (began, from) = (Instant::now(), Timestamp::now());
            let judged = self.judge(plan, ready, stage, &known, &folder, record).await;
            record.timings.verify_s += began.elapsed().as_secs_f32();
            let span = since(from);
            record.spans.verifier = Some(extended(record.spans.verifier, span));
            let judged = judged?;
            let stops = stage
                .min_reward
                .as_ref()
                .is_some_and(|least| !least.is_reached(&judged.verdict.rewards));
            record.stages.push(StageRecord {
                step: record.unjudged_step.take(),
                judged,
                agent,
                end,
                verifier: Some(span),
            });
            if stops && !last {
                let report = record.report.clone();
                if let Some(report) = report {
                    outcome = self.end_of_agent(session, record, &report).await?;
                }
                break;
            }
        }
        if let Some(capture) = &record.capture {
            record.flags.extend(sought(&capture.messages, ready.sandbox.workdir()));
        }
        record.verdict = over_stages(&record.stages, plan.task.config.multi_step_reward_strategy);
        Ok(outcome)
    }

    /// Closes the session, before any verdict: nothing that runs on may still sample.
    async fn end_of_agent(
        &self,
        session: &SessionTicket,
        record: &mut TrialRecord,
        report: &AgentReport,
    ) -> Result<Outcome, Failure> {
        self.close(session, record).await?;
        let capture = record.capture.get_or_insert_default();
        if self.scaffold.runs_inside() {
            of_agent_inside(&report.end, capture)
        } else {
            of_agent(&report.end, capture)
        }
    }

    /// What a step brings before its agent: files, a script, a check. A later one finds nothing of the tests before it.
    async fn prepare(&self, ready: &Ready, stage: &Stage, later: bool) -> Result<(), Failure> {
        let sandbox = ready.sandbox.as_ref();
        let setup = |error: &SandboxError| Failure::setup(error);
        if later {
            sandbox.end_processes().await.map_err(|error| setup(&error))?;
            for folder in ["/tests", "/logs/verifier", "/logs/agent"] {
                sandbox.reset_dir(folder).await.map_err(|error| setup(&error))?;
            }
            ready.harden_again(sandbox.workdir()).await?;
        }
        if let Some(files) = &stage.workdir_files {
            sandbox
                .upload(files, sandbox.workdir())
                .await
                .map_err(|error| setup(&error))?;
            if files.join("setup.sh").is_file() {
                let mut request = ExecRequest::shell("exec bash \"$LEGO_WORKDIR/setup.sh\"");
                request.timeout = STEP_SETUP;
                let ran = sandbox.exec(request).await.map_err(|error| setup(&error))?;
                if ran.exit_code != 0 {
                    return Err(Failure::not_ready(format!(
                        "setup.sh of step `{}` ended with exit code {}: {}",
                        stage.step.as_deref().unwrap_or_default(),
                        ran.exit_code,
                        ran.output.trim()
                    )));
                }
            }
        }
        health::wait(sandbox, stage.healthcheck.as_ref(), self.setup_limit()).await
    }

    async fn agent(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        stage: &Stage,
        session: &SessionTicket,
        folder: &Path,
        record: &mut TrialRecord,
    ) -> Result<(AgentReport, TimeSpan), Failure> {
        let (began, at) = (Instant::now(), Timestamp::now());
        let limit = self.agent_limit(stage);
        let job = AgentJob {
            task: Arc::clone(&plan.task),
            instruction: stage.instruction.clone(),
            solution: stage.solution.clone(),
            user: stage.agent_user.clone(),
            sandbox: Arc::clone(&ready.sandbox),
            session_url: if self.scaffold.runs_inside() {
                url_inside(ready.sandbox.as_ref(), session)
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
            cancel: plan.cancel.child_token(),
        };
        let policy = network::of_agent(&plan.task, stage, &self.sandbox_section);
        self.reach(ready.sandbox.as_ref(), &policy).await?;
        let ended = tokio::time::timeout(limit + TEARDOWN, self.scaffold.run(job)).await;
        record.timings.agent_s += began.elapsed().as_secs_f32();
        let span = since(at);
        record.spans.agent_execution = Some(extended(record.spans.agent_execution, span));
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
        record.timings.tool_s += report.tool_s;
        Ok((report, span))
    }

    /// From what the agent left to the verdict.
    async fn judge(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        stage: &Stage,
        known: &Known,
        folder: &Path,
        record: &mut TrialRecord,
    ) -> Result<Judged, Failure> {
        let (sandbox, workdir) = (ready.sandbox.as_ref(), ready.sandbox.workdir());
        // Before its processes end: what they hold in memory may be what is to be gathered.
        artifacts::gather(sandbox, &stage.collect).await;
        let left_running = sandbox
            .end_processes()
            .await
            .map_err(|error| Failure::of_running(&error))?;
        let changes = Changes::of(sandbox, workdir, &ready.before, folder)
            .await
            .map_err(|error| Failure::of_running(&error))?;
        if self.keeps_patches {
            work_patch::keep(sandbox, folder, &changes, &known.originals)
                .await
                .map_err(|error| Failure::of_running(&error))?;
        }
        let scene = Scene {
            left_running,
            changes: &changes,
            owned: &ready.owned,
            before: &known.watch,
            workdir,
            originals: &known.originals,
        };
        let seen = examine(sandbox, scene)
            .await
            .map_err(|error| Failure::of_running(&error))?;
        for flag in seen {
            if !record.flags.contains(&flag) {
                record.flags.push(flag);
            }
        }
        let kept = folder.join("artifacts");
        let entries = artifacts::collect(sandbox, &stage.artifacts, workdir, &kept)
            .await
            .map_err(|error| Failure::infrastructure(chain(&error)))?;
        self.verdict(plan, ready, stage, folder, &changes, &entries).await
    }
}

/// From the start of the first to the end of the second.
fn extended(first: Option<TimeSpan>, second: TimeSpan) -> TimeSpan {
    TimeSpan {
        started_at: first.and_then(|span| span.started_at).or(second.started_at),
        finished_at: second.finished_at,
    }
}
