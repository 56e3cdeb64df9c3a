//! The verdict of a stage, and whose doing it was where the tests gave none (sandbox.md §4).

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::artifacts::{self, Entry};
use super::harden::Ready;
use super::outcome::{Failure, chain};
use super::trial::TrialContext;
use super::trial_spec::resolved;
use super::trial_stages::StageRecord;
use super::{TrialPlan, network};
use crate::sandbox::Sandbox;
use crate::task::{MultiStepReward, Stage, VerifierMode};
use crate::verifier::{self, Changes, HackFlag, Kind, Verdict, VerifierError, VerifyOptions};

/// A verdict, and what further runs of the same tests said.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Of the first run.
    pub verdict: Verdict,
    /// Rewards of all runs, the first among them; `None` for a run without one.
    pub runs: Vec<Option<f32>>,
}

impl Judged {
    pub(super) fn once(verdict: Verdict) -> Self {
        Self {
            runs: vec![Some(verdict.reward)],
            verdict,
        }
    }

    /// Whether the runs disagree.
    pub fn is_flaky(&self) -> bool {
        self.runs.windows(2).any(|pair| match (pair[0], pair[1]) {
            (Some(one), Some(other)) => (one - other).abs() > 1e-6,
            (one, other) => one.is_some() != other.is_some(),
        })
    }
}

impl TrialContext {
    /// The verifier's word, from the agent's sandbox or from one of its own.
    pub(super) async fn verdict(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        stage: &Stage,
        folder: &Path,
        changes: &Changes,
        entries: &[Entry],
    ) -> Result<Judged, Failure> {
        if stage.mode == VerifierMode::Shared {
            self.reach(ready.sandbox.as_ref(), &network::of_verifier(&plan.task, stage))
                .await?;
            if let Err(failure) = ready.restore(ready.sandbox.workdir()).await {
                // Where the sandbox still answers, it is what the agent made of the folder.
                return match ready.sandbox.end_processes().await {
                    Ok(_) => Ok(Judged::once(prevented(&failure.reason))),
                    Err(_) => Err(failure),
                };
            }
            return self.asked(plan, ready, stage, ready.sandbox.as_ref(), folder).await;
        }
        if !changes.is_whole() && stage.tests_image.is_none() {
            // A folder filled so that nothing of it can be judged.
            return Ok(Judged::once(prevented(
                "the working folder is too large to be looked at, or closed",
            )));
        }
        let own = self.separate(plan, ready, stage, changes).await?;
        let carried = artifacts::carry(
            entries,
            &folder.join("artifacts"),
            own.as_ref(),
            ready.sandbox.workdir(),
        )
        .await;
        let judged = match carried {
            Ok(()) => self.asked(plan, ready, stage, own.as_ref(), folder).await,
            Err(error) => Err(Failure::infrastructure(chain(&error))),
        };
        self.end_sandbox(plan, own.as_ref()).await;
        judged
    }

    async fn separate(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        stage: &Stage,
        changes: &Changes,
    ) -> Result<Arc<dyn Sandbox>, Failure> {
        let label = format!(
            "verifier{}",
            stage.step.as_ref().map_or_else(String::new, |step| format!("-{step}"))
        );
        let own = self.fresh_for_tests(plan, stage, ready, &label, Some(changes)).await?;
        self.reach(own.as_ref(), &network::of_verifier(&plan.task, stage))
            .await?;
        Ok(own)
    }

    /// Asked a second time in the same sandbox where the first gave no reward.
    ///
    /// Where neither did and the agent could have brought that about, the same tests run once more in a sandbox that
    /// no agent touched. If they give a reward there, then it was the agent that kept them from it: the trial is graded
    /// 0 and flagged, for a drop would let it escape a bad grade. If they do not, the task is broken, and nobody is graded.
    async fn asked(
        &self,
        plan: &TrialPlan,
        ready: &Ready,
        stage: &Stage,
        sandbox: &dyn Sandbox,
        folder: &Path,
    ) -> Result<Judged, Failure> {
        let logs = folder.join("verifier");
        if let Ok(verdict) = self.ask(plan, stage, sandbox, &logs).await? {
            return self.repeated(plan, stage, sandbox, folder, verdict).await;
        }
        let last = match self.ask(plan, stage, sandbox, &logs).await? {
            Ok(verdict) => return Ok(Judged::once(verdict)),
            Err(error) => error,
        };
        let reason = chain(&last);
        if !last.may_be_the_agents_doing() {
            return Err(Failure::verifier(reason));
        }
        let untouched = self.fresh_for_tests(plan, stage, ready, "control", None).await?;
        self.reach(untouched.as_ref(), &network::of_verifier(&plan.task, stage))
            .await?;
        let control = self
            .ask(plan, stage, untouched.as_ref(), &folder.join("verifier-control"))
            .await;
        self.end_sandbox(plan, untouched.as_ref()).await;
        match control? {
            // Its work kept the tests from running, as a program that does not compile does: a failure like others.
            Ok(_) if matches!(last, VerifierError::NotRun { .. }) => Ok(Judged::once(zero(Vec::new()))),
            Ok(_) => Ok(Judged::once(prevented(&format!(
                "{reason}; in a sandbox that no agent touched they give a reward"
            )))),
            Err(error) => Err(Failure::verifier(format!(
                "{reason}; in a sandbox that no agent touched: {}",
                chain(&error)
            ))),
        }
    }

    /// Runs the tests again as often as `verifier.repeats` asks.
    async fn repeated(
        &self,
        plan: &TrialPlan,
        stage: &Stage,
        sandbox: &dyn Sandbox,
        folder: &Path,
        verdict: Verdict,
    ) -> Result<Judged, Failure> {
        let mut judged = Judged::once(verdict);
        for run in 2..=self.verifier_section.repeats {
            let logs = folder.join(format!("verifier-{run}"));
            let again = self.ask(plan, stage, sandbox, &logs).await?;
            judged.runs.push(again.ok().map(|verdict| verdict.reward));
        }
        if judged.is_flaky() {
            tracing::warn!(trial = plan.name(), runs = ?judged.runs, "the tests disagree with themselves");
        }
        Ok(judged)
    }

    async fn ask(
        &self,
        plan: &TrialPlan,
        stage: &Stage,
        sandbox: &dyn Sandbox,
        logs: &Path,
    ) -> Result<Result<Verdict, VerifierError>, Failure> {
        let options = VerifyOptions {
            env: resolved(plan, &stage.verifier_env)?,
            user: stage.verifier_user.clone(),
            bundled: stage.tests_image.is_some(),
            ..VerifyOptions::new(self.verifier_limit(stage), logs)
        };
        Ok(verifier::verify(sandbox, &stage.tests, &options).await)
    }
}

fn zero(flags: Vec<HackFlag>) -> Verdict {
    Verdict {
        reward: 0.0,
        rewards: BTreeMap::from([("reward".to_owned(), 0.0)]),
        output: String::new(),
        exit_code: 1,
        duration: Duration::ZERO,
        flags,
        report: None,
    }
}

/// Graded 0, with what was seen.
pub(super) fn prevented(reason: &str) -> Verdict {
    zero(vec![HackFlag::new(Kind::VerifierPrevented, reason)])
}

/// One verdict of all stages that ran: the mean of each named reward, where one that a stage lacks counts 0, or the
/// last stage's. `None` without any.
pub(super) fn over_stages(stages: &[StageRecord], strategy: MultiStepReward) -> Option<Verdict> {
    let all: Vec<Verdict> = stages.iter().map(|stage| stage.judged.verdict.clone()).collect();
    let mut verdict = all.last()?.clone();
    if strategy == MultiStepReward::Mean && all.len() > 1 {
        let count = all.len() as f64;
        let mut sums: BTreeMap<String, f64> = BTreeMap::new();
        for (name, reward) in all.iter().flat_map(|one| &one.rewards) {
            *sums.entry(name.clone()).or_default() += reward;
        }
        verdict.reward = all.iter().map(|one| one.reward).sum::<f32>() / count as f32;
        verdict.rewards = sums.into_iter().map(|(name, sum)| (name, sum / count)).collect();
    }
    verdict.flags = all.into_iter().flat_map(|one| one.flags).collect();
    Some(verdict)
}

#[cfg(test)]
#[path = "trial_verdict_tests.rs"]
mod tests;
