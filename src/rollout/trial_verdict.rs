//! The verdict of a trial, and whose doing it was where the tests gave none (sandbox.md §4).

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use super::TrialPlan;
use super::outcome::{Failure, chain};
use super::trial::TrialContext;
use super::trial_spec::resolved;
use crate::sandbox::Sandbox;
use crate::verifier::{self, HackFlag, Verdict, VerifierError, VerifyOptions};

/// The flag of an episode whose agent kept the tests from giving a reward.
const PREVENTED: &str = "verifier_prevented";

impl TrialContext {
    /// The verifier's word; asked a second time in the same sandbox where the first gave none.
    ///
    /// Where neither did and the agent could have brought that about, the same tests run once more in a sandbox that
    /// no agent touched. If they give a reward there, then it was the agent that kept them from it: the trial is graded
    /// 0 and flagged, for a drop would let it escape a bad grade. If they do not, the task is broken, and nobody is graded.
    pub(super) async fn verdict(
        &self,
        plan: &TrialPlan,
        sandbox: &dyn Sandbox,
        folder: &Path,
    ) -> Result<Verdict, Failure> {
        let logs = folder.join("verifier");
        if let Ok(verdict) = self.ask(plan, sandbox, &logs).await? {
            return Ok(verdict);
        }
        let last = match self.ask(plan, sandbox, &logs).await? {
            Ok(verdict) => return Ok(verdict),
            Err(error) => error,
        };
        let reason = chain(&last);
        if !last.may_be_the_agents_doing() {
            return Err(Failure::verifier(reason));
        }
        let untouched = self.start_sandbox(plan, "control").await?;
        let control = self
            .ask(plan, untouched.as_ref(), &folder.join("verifier-control"))
            .await;
        self.end_sandbox(plan, untouched.as_ref()).await;
        match control? {
            Ok(_) => Ok(prevented(&reason)),
            Err(error) => Err(Failure::verifier(format!(
                "{reason}; in a sandbox that no agent touched: {}",
                chain(&error)
            ))),
        }
    }

    async fn ask(
        &self,
        plan: &TrialPlan,
        sandbox: &dyn Sandbox,
        logs: &Path,
    ) -> Result<Result<Verdict, VerifierError>, Failure> {
        let options = VerifyOptions {
            env: resolved(plan, &plan.task.config.verifier.env)?,
            ..VerifyOptions::new(self.verifier_limit(plan), logs)
        };
        Ok(verifier::verify(sandbox, &plan.task.tests_dir(), &options).await)
    }
}

/// Graded 0, with what was seen.
fn prevented(reason: &str) -> Verdict {
    Verdict {
        reward: 0.0,
        rewards: BTreeMap::from([("reward".to_owned(), 0.0)]),
        output: String::new(),
        exit_code: 1,
        duration: Duration::ZERO,
        flags: vec![HackFlag {
            kind: PREVENTED.to_owned(),
            evidence: format!("{reason}; in a sandbox that no agent touched they give a reward"),
        }],
    }
}
