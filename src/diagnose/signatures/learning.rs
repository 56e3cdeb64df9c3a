//! Signatures of learning: the update does nothing, or drives the policy somewhere it should not go.

use crate::config::SMALLEST_RATE;
use crate::diagnose::evidence::{Evidence, REWARD, median, shown, told};
use crate::diagnose::signature::{Cure, Match, Seen, Signature};

const LR: &str = "actor/lr";
const GRAD: &str = "actor/grad_norm";
const ENTROPY: &str = "actor/entropy";
const LENGTH: &str = "response_length/mean";
const CLIPPED: &str = "response_length/clip_ratio";
const ESS: &str = "rollout_corr/eff_sample_size";
const SAME: &str = "rollout/no_signal_groups";
const GROUPS: &str = "rollout/groups";

pub(in crate::diagnose) static SIGNATURES: &[Signature] = &[
    Signature {
        id: "frozen-model",
        title: "the model is frozen",
        needs: "actor/lr = 0 on all recent steps (or so small that no weight in f32 changes), or actor/grad_norm = 0 while advantages are not all 0",
        cause: "No step changes the weights: the scheduler has come down to zero, the rate was set so, or no gradient reaches \
                the parameters. What is spent from here on teaches nothing.",
        cures: &[
            Cure {
                key: "train.lr",
                text: "set a rate above zero",
            },
            Cure {
                key: "train.scheduler",
                text: "`constant`, or more `train.steps`: the others are at zero after the last step",
            },
            Cure {
                key: "train.warmup",
                text: "fewer steps than the run has",
            },
        ],
        explains: &["gradient-starvation"],
        test: frozen,
    },
    Signature {
        id: "no-signal",
        title: "no signal: groups hold equal rewards",
        needs: "rollout/no_signal_groups over rollout/groups above 0.8 on recent steps",
        cause: "A group whose members all have the same reward has no advantage. The tasks are all too hard or all too easy for \
                the policy as it is.",
        cures: &[
            Cure {
                key: "data.train",
                text: "keep tasks that are sometimes solved: `lego rollout --eval`, then an index with 0 < pass_rate < 1",
            },
            Cure {
                key: "rollout.dynamic_sampling",
                text: "`true`, with `max_extra_groups`: groups without signal are replaced",
            },
            Cure {
                key: "rollout.group_size",
                text: "larger groups hold equal rewards less often",
            },
        ],
        explains: &["gradient-starvation"],
        test: no_signal,
    },
    Signature {
        id: "gradient-starvation",
        title: "gradient starvation",
        needs: "recent actor/grad_norm below a tenth of the run's first steps, and responses at their limit or twice as long",
        cause: "Long responses share one loss: under a token mean, a step of very long episodes hardly moves anything.",
        cures: &[
            Cure {
                key: "train.loss_agg_mode",
                text: "an aggregation that does not divide by all tokens of the batch",
            },
            Cure {
                key: "data.max_response_tokens",
                text: "shorter responses, or drop those that are cut off",
            },
            Cure {
                key: "scaffold.max_turns",
                text: "fewer turns",
            },
        ],
        explains: &["length-explosion"],
        test: starvation,
    },
    Signature {
        id: "entropy-collapse",
        title: "entropy collapse",
        needs: "actor/entropy falling (t ≤ −2) to a tenth of its beginning or less, while the reward does not rise",
        cause: "The policy has become certain before it became good: all members of a group do the same, and nothing new is tried.",
        cures: &[
            Cure {
                key: "train.clip_high",
                text: "0.28 or more: unlikely tokens may then grow",
            },
            Cure {
                key: "train.kl_coef",
                text: "hold it to the reference a little",
            },
            Cure {
                key: "train.lr",
                text: "a lower rate, from a checkpoint before the fall",
            },
        ],
        explains: &["no-signal"],
        test: entropy,
    },
    Signature {
        id: "reward-hacking",
        title: "reward hacking",
        needs: "rollout/hack_flags rising (t ≥ 2) to more than a tenth of the episodes; or training reward rising while validation falls (both |t| ≥ 2)",
        cause: "The reward is got by another way than by the task: the training score and what it stands for part.",
        cures: &[
            Cure {
                key: "sandbox.hack_policy",
                text: "`zero_reward`: what is sure earns nothing",
            },
            Cure {
                key: "verifier",
                text: "tests in a sandbox of their own: `environment_mode = \"separate\"` in task.toml",
            },
            Cure {
                key: "data.train",
                text: "read the flagged trials and take those tasks out",
            },
        ],
        explains: &[],
        test: hacking,
    },
    Signature {
        id: "length-explosion",
        title: "length explosion",
        needs: "response_length/mean rising (t ≥ 2) to twice its beginning, while the reward does not rise",
        cause: "Episodes grow without earning more: length is being rewarded by the way losses or advantages are put together.",
        cures: &[
            Cure {
                key: "train.loss_agg_mode",
                text: "an aggregation by token, in which long wrong answers cost more",
            },
            Cure {
                key: "data.max_response_tokens",
                text: "a tighter limit",
            },
            Cure {
                key: "rollout.reward_unfinished",
                text: "`false`: what was cut off earns nothing",
            },
        ],
        explains: &[],
        test: length,
    },
    Signature {
        id: "kl-blow-up",
        title: "KL blow-up",
        needs: "actor/ppo_kl or actor/kl_loss rising (t ≥ 2), above 0.1 and ten times its beginning",
        cause: "The policy runs away from the one that sampled, or from the reference: steps are too large for what was measured.",
        cures: &[
            Cure {
                key: "train.lr",
                text: "a lower rate, from a checkpoint before the rise",
            },
            Cure {
                key: "train.clip_high",
                text: "a tighter clip",
            },
            Cure {
                key: "train.kl_coef",
                text: "a higher weight of the divergence",
            },
        ],
        explains: &["ess-collapse", "entropy-collapse"],
        test: divergence,
    },
    Signature {
        id: "ess-collapse",
        title: "effective sample size collapse",
        needs: "rollout_corr/eff_sample_size falling (t ≤ −2) below 0.3 on recent steps",
        cause: "A few tokens or rows carry the whole update: engine and trainer, or old and new weights, have drifted apart.",
        cures: &[
            Cure {
                key: "train.rollout_correction",
                text: "truncated weights of tokens instead of whole sequences",
            },
            Cure {
                key: "async",
                text: "less staleness",
            },
            Cure {
                key: "train.mini_batch",
                text: "fewer optimizer steps on one batch",
            },
        ],
        explains: &[],
        test: sample_size,
    },
];

fn frozen(evidence: &Evidence<'_>) -> Seen {
    let (lr, grad) = (evidence.recent(LR), evidence.recent(GRAD));
    if lr.is_none() && grad.is_none() {
        return Seen::NoData;
    }
    if let Some(lr) = lr.filter(|lr| lr.iter().all(|rate| rate.abs() < SMALLEST_RATE)) {
        let most = lr.iter().copied().fold(0.0, f64::max);
        let said = if most == 0.0 {
            format!("{LR} = 0 on each of the last {} steps", lr.len())
        } else {
            format!(
                "{LR} is {} at most on the last {} steps: a step moves a weight by about that much, and a weight in f32 of \
                 0.01 changes by 1e-9 or not at all",
                shown(most),
                lr.len()
            )
        };
        return Match::stop(&[LR, GRAD], vec![said]);
    }
    let spread = evidence
        .recent("critic/advantages/max")
        .zip(evidence.recent("critic/advantages/min"));
    let signal = spread.is_some_and(|(max, min)| max.iter().zip(&min).any(|(max, min)| max - min > 1e-9));
    match grad {
        Some(grad) if signal && grad.iter().all(|norm| *norm == 0.0) => Match::stop(
            &[GRAD, "critic/advantages/max"],
            vec![format!(
                "{GRAD} = 0 on each of the last {} steps, though advantages are not",
                grad.len()
            )],
        ),
        _ => Seen::No,
    }
}

fn no_signal(evidence: &Evidence<'_>) -> Seen {
    let (Some(same), Some(groups)) = (evidence.recent(SAME), evidence.recent(GROUPS)) else {
        return Seen::NoData;
    };
    let share = same.iter().sum::<f64>() / groups.iter().sum::<f64>();
    if share <= 0.8 || !share.is_finite() {
        return Seen::No;
    }
    let reward = evidence.recent(REWARD).map(|reward| median(&reward));
    // It has learnt its tasks: that is what the run was for.
    if evidence.learns() && reward.is_some_and(|reward| reward >= 0.9) {
        return Seen::No;
    }
    let mut said = vec![format!(
        "{:.0}% of the groups of the last {} steps hold equal rewards",
        share * 100.0,
        same.len()
    )];
    said.extend(reward.map(|reward| {
        format!(
            "{REWARD} = {}: the tasks are too {}",
            shown(reward),
            if reward < 0.5 { "hard" } else { "easy" }
        )
    }));
    Match::at_risk(&[SAME, GROUPS, REWARD], said)
}

fn starvation(evidence: &Evidence<'_>) -> Seen {
    let (Some((late, early)), Some((long, short))) = (evidence.late_and_early(GRAD), evidence.late_and_early(LENGTH))
    else {
        return Seen::NoData;
    };
    let clipped = evidence.recent(CLIPPED).map_or(0.0, |clipped| median(&clipped));
    if late >= early / 10.0 || late <= 0.0 || (clipped < 0.5 && long < 2.0 * short) {
        return Seen::No;
    }
    Match::at_risk(
        &[GRAD, LENGTH, CLIPPED],
        vec![
            format!("{GRAD} is {}, and was {} at the beginning", shown(late), shown(early)),
            format!(
                "{LENGTH} is {}, and was {}; {:.0}% of the rows reach the limit",
                shown(long),
                shown(short),
                clipped * 100.0
            ),
        ],
    )
}

fn entropy(evidence: &Evidence<'_>) -> Seen {
    let (Some((late, early)), Some(line)) = (evidence.late_and_early(ENTROPY), evidence.line(ENTROPY)) else {
        return Seen::NoData;
    };
    if line.t > -2.0 || late > early / 10.0 || evidence.learns() {
        return Seen::No;
    }
    Match::at_risk(
        &[ENTROPY, REWARD],
        vec![
            told(ENTROPY, &line),
            format!(
                "it is {}, and was {}; the reward does not rise",
                shown(late),
                shown(early)
            ),
        ],
    )
}

fn hacking(evidence: &Evidence<'_>) -> Seen {
    const FLAGS: &str = "rollout/hack_flags";
    let (flags, episodes) = (evidence.line(FLAGS), evidence.recent("rollout/episodes"));
    if let (Some(line), Some(recent), Some(episodes)) = (flags, evidence.recent(FLAGS), episodes) {
        let share = recent.iter().sum::<f64>() / episodes.iter().sum::<f64>();
        if line.t >= 2.0 && share > 0.1 {
            let said = format!("{:.0}% of the last episodes have evidence of it", share * 100.0);
            return Match::stop(&[FLAGS, REWARD], vec![told(FLAGS, &line), said]);
        }
    }
    let score = evidence.names_with("val/").find(|name| {
        let of_a_set = name.matches('/').count() == 2;
        of_a_set && (name.ends_with("/pass@1") || name.ends_with("/reward"))
    });
    let Some((score, Some(falls))) = score.map(|score| (score, evidence.line(score))) else {
        return if flags.is_some() { Seen::No } else { Seen::NoData };
    };
    match evidence.line(REWARD) {
        Some(rises) if rises.t >= 2.0 && falls.t <= -2.0 => {
            Match::stop(&[REWARD, score], vec![told(REWARD, &rises), told(score, &falls)])
        }
        Some(_) => Seen::No,
        None => Seen::NoData,
    }
}

fn length(evidence: &Evidence<'_>) -> Seen {
    let (Some((late, early)), Some(line)) = (evidence.late_and_early(LENGTH), evidence.line(LENGTH)) else {
        return Seen::NoData;
    };
    if line.t < 2.0 || late < 2.0 * early || evidence.learns() {
        return Seen::No;
    }
    let said = format!(
        "it is {}, and was {}; the reward does not rise",
        shown(late),
        shown(early)
    );
    Match::at_risk(&[LENGTH, REWARD], vec![told(LENGTH, &line), said])
}

fn divergence(evidence: &Evidence<'_>) -> Seen {
    let mut looked = false;
    for name in ["actor/ppo_kl", "actor/kl_loss", "rollout_corr/k3_kl"] {
        let (Some((late, early)), Some(line)) = (evidence.late_and_early(name), evidence.line(name)) else {
            continue;
        };
        looked = true;
        if line.t >= 2.0 && late > 0.1 && late > 10.0 * early.abs() {
            let said = format!("it is {}, and was {}", shown(late), shown(early));
            return Match::stop(&[name, REWARD], vec![told(name, &line), said]);
        }
    }
    if looked { Seen::No } else { Seen::NoData }
}

fn sample_size(evidence: &Evidence<'_>) -> Seen {
    let (Some(recent), Some(line)) = (evidence.recent(ESS), evidence.line(ESS)) else {
        return Seen::NoData;
    };
    if line.t > -2.0 || median(&recent) >= 0.3 {
        return Seen::No;
    }
    let said = format!("it is {} on the last {} steps", shown(median(&recent)), recent.len());
    Match::at_risk(&[ESS, "rollout_corr/kl"], vec![told(ESS, &line), said])
}
