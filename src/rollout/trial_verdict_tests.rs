//! Verdicts over stages and over repeated runs, by hand.

use super::*;
use crate::run_dir::TimeSpan;
use crate::scaffold::AgentEnd;

fn stage(rewards: &[(&str, f64)]) -> StageRecord {
    let rewards: BTreeMap<String, f64> = rewards
        .iter()
        .map(|(name, reward)| ((*name).to_owned(), *reward))
        .collect();
    let verdict = Verdict {
        reward: rewards.get("reward").copied().unwrap_or_default() as f32,
        rewards,
        ..zero(vec![HackFlag::new(Kind::GitHooks, "h")])
    };
    StageRecord {
        step: Some("s".to_owned()),
        judged: Judged::once(verdict),
        agent: TimeSpan::default(),
        end: AgentEnd::Completed,
        verifier: None,
    }
}

#[test]
fn the_mean_counts_a_missing_reward_as_zero_and_the_last_stage_stands_alone() {
    let stages = [
        stage(&[("reward", 1.0), ("style", 0.5)]),
        stage(&[("reward", 0.0)]),
        stage(&[("reward", 0.5)]),
    ];
    let mean = over_stages(&stages, MultiStepReward::Mean).unwrap();
    assert_eq!((mean.reward, mean.rewards["reward"]), (0.5, 0.5));
    assert!((mean.rewards["style"] - 0.5 / 3.0).abs() < 1e-12);
    assert_eq!(mean.flags.len(), 3);
    let last = over_stages(&stages, MultiStepReward::Final).unwrap();
    assert_eq!((last.reward, last.rewards.len()), (0.5, 1));
    assert!(over_stages(&[], MultiStepReward::Mean).is_none());
}

#[test]
fn runs_that_disagree_are_flaky() {
    let judged = |runs: &[Option<f32>]| {
        let mut judged = Judged::once(zero(Vec::new()));
        judged.runs = runs.to_vec();
        judged.is_flaky()
    };
    assert!(!judged(&[Some(1.0)]) && !judged(&[Some(1.0), Some(1.0)]));
    assert!(judged(&[Some(1.0), Some(0.0)]) && judged(&[Some(1.0), Some(1.0), None]));
}
