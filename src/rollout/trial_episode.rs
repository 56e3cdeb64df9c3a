//! From what a trial left behind to its episode: reward rules, flags, reasons.

use jiff::Timestamp;

use super::TrialPlan;
use super::trial::{TrialContext, TrialRecord};
use crate::config::HackPolicy;
use crate::proxy::SessionCapture;
use crate::trajectory::{Episode, Ledger, TrialId};
use crate::verifier::HackFlag;

impl TrialContext {
    /// The episode of a trial that is not tried again.
    pub(super) fn episode(
        &self,
        plan: &TrialPlan,
        trial_id: TrialId,
        attempt: u32,
        started_at: Timestamp,
        record: TrialRecord,
    ) -> Episode {
        let capture = record.capture.unwrap_or_else(|| SessionCapture {
            messages: "[]".to_owned(),
            ..SessionCapture::default()
        });
        let audit = capture.audit;
        let mut reward = record.verdict.as_ref().map(|verdict| verdict.reward);
        let of_verdict = record.verdict.iter().flat_map(|verdict| &verdict.flags);
        let flags: Vec<&HackFlag> = record.flags.iter().chain(of_verdict).collect();
        let sure = flags.iter().any(|flag| flag.is_sure());
        let hack_flags: Vec<String> = flags
            .iter()
            .map(|flag| format!("{}: {}", flag.kind, flag.evidence))
            .collect();
        let mut drop_reason = (!record.outcome.is_graded()).then(|| record.outcome.name().to_owned());
        if !hack_flags.is_empty() {
            match self.sandbox_section.hack_policy {
                None if sure => reward = reward.map(|_| 0.0),
                None | Some(HackPolicy::Flag) => {}
                Some(HackPolicy::ZeroReward) => reward = reward.map(|_| 0.0),
                Some(HackPolicy::Drop) => drop_reason = Some("hack".to_owned()),
            }
        }
        if capture.without_ids {
            drop_reason.get_or_insert(Ledger::NO_TOKEN_IDS.to_owned());
        }
        if !self.reward_unfinished && record.outcome.is_unfinished() {
            reward = reward.map(|_| 0.0);
        }
        if self.unparsed_zeroes_reward && audit.num_parse_errors > 0 {
            reward = reward.map(|_| 0.0);
        }
        if let Some(reason) = &record.reason {
            tracing::info!(
                trial = plan.name(),
                outcome = record.outcome.name(),
                reason,
                "trial failed"
            );
        }
        Episode {
            run_id: self.run_id.clone(),
            step: plan.step as i32,
            task_id: plan.task.id.clone(),
            data_source: plan.data_source.clone(),
            group_id: plan.group_id(),
            episode_id: plan.episode_id(),
            trial_id,
            trial_name: plan.name(),
            attempt: attempt as i32,
            agent: self.scaffold.name().to_owned(),
            agent_version: record
                .agent_version
                .unwrap_or_else(|| self.scaffold.version().to_owned()),
            model: self.model.clone(),
            tool_parser: self.tool_parser.clone(),
            endpoint: capture.endpoint,
            segments: capture.segments,
            reward: if record.outcome.is_graded() { reward } else { None },
            rewards: record.verdict.map(|verdict| verdict.rewards).unwrap_or_default(),
            sampling: plan.sampling,
            outcome: record.outcome,
            failure: record.reason.filter(|_| !record.outcome.is_graded()),
            drop_reason,
            audit,
            hack_flags,
            started_at,
            timings: record.timings,
            messages: capture.messages,
        }
    }
}
