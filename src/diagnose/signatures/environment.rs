//! Signatures of the environment: sandboxes, verifiers, validations, processes.

use std::collections::BTreeMap;

use crate::diagnose::evidence::{Evidence, REWARD, median, shown, told};
use crate::diagnose::signature::{Cure, Match, Seen, Signature};
use crate::metrics::trend;

const SETUP: &str = "rollout/env_setup_s/mean";

pub(in crate::diagnose) static SIGNATURES: &[Signature] = &[
    Signature {
        id: "stall",
        title: "it has stalled",
        needs: "a live process without a new step for five times the median step (30 minutes where there are fewer than three steps)",
        cause: "Something is waited for that does not come.",
        cures: &[
            Cure {
                key: "sandbox.timeouts",
                text: "the trials that are still out are named: bound what they wait for",
            },
            Cure {
                key: "rollout.tail_kill",
                text: "end the last trials of a step that the others wait for",
            },
            Cure {
                key: "engine",
                text: "look whether it still answers (`/health`)",
            },
        ],
        explains: &[],
        test: stall,
    },
    Signature {
        id: "environment-avalanche",
        title: "environment avalanche",
        needs: "env_setup_failed or infra_error rising over steps (t ≥ 2) while the reward falls (t ≤ −2)",
        cause: "More and more trials do not even start. What is left of each group is smaller, and not the same mix of tasks.",
        cures: &[
            Cure {
                key: "sandbox.backend",
                text: "look at the failed trials' exceptions; free what old sandboxes hold",
            },
            Cure {
                key: "sandbox.network",
                text: "what the agent installs at each start: put it into the image",
            },
            Cure {
                key: "sandbox.concurrency",
                text: "fewer at a time",
            },
        ],
        explains: &["no-signal", "slow-sandbox-start", "step-slowdown"],
        test: avalanche,
    },
    Signature {
        id: "grader-did-not-run",
        title: "all rewards are zero, and the grader did not run",
        needs: "critic/score/mean = 0 on all recent steps, or no step at all, and verifier output that only a grader that did not run writes",
        cause: "The tests never began: the zeros say nothing about the policy.",
        cures: &[
            Cure {
                key: "tests/Dockerfile",
                text: "put what the grader fetches or imports into the image beforehand",
            },
            Cure {
                key: "sandbox.network",
                text: "where it must fetch: let its phase reach the host (`allowed_hosts` in `[verifier]`)",
            },
            Cure {
                key: "lego rollout --scaffold oracle",
                text: "the solution must earn 1 before anything is trained",
            },
        ],
        explains: &["no-signal", "validation-false-zero"],
        test: grader,
    },
    Signature {
        id: "validation-false-zero",
        title: "validation is zero, falsely",
        needs: "a validation score of 0 while the training reward is above 0.1, and validation trials that did not land",
        cause: "Trials that gave no reward are counted, or the few that landed are not the others.",
        cures: &[
            Cure {
                key: "eval",
                text: "divide by what landed; look at `val/…/tasks_without_reward`",
            },
            Cure {
                key: "data.val",
                text: "images and networks of the validation tasks: `lego preflight`",
            },
            Cure {
                key: "sandbox.timeouts.agent",
                text: "the same time for validation as for training",
            },
        ],
        explains: &[],
        test: validation,
    },
    Signature {
        id: "slow-sandbox-start",
        title: "sandboxes start slower and slower",
        needs: "rollout/env_setup_s/mean rising linearly (t ≥ 2) over an hour or more, to twice its beginning and a second more",
        cause: "Something is left behind by each trial: control groups, mounts, images, a full node.",
        cures: &[
            Cure {
                key: "sandbox.docker.image_cache",
                text: "bound what images hold",
            },
            Cure {
                key: "lego rollout --reap",
                text: "remove what earlier runs left",
            },
            Cure {
                key: "sandbox.backend",
                text: "look at the node: mounts, control groups, disk",
            },
        ],
        explains: &["step-slowdown"],
        test: slow_start,
    },
];

/// When the attempt's steps ended, in seconds, as far as it is known.
fn times(evidence: &Evidence<'_>) -> Vec<f64> {
    let times = evidence.history.times().iter().skip(evidence.from).copied();
    times.filter(|time| time.is_finite()).collect()
}

fn stall(evidence: &Evidence<'_>) -> Seen {
    const LONGEST: f64 = 1800.0;
    const SHORTEST: f64 = 120.0;
    let Some(state) = evidence.around.state.as_ref().filter(|_| evidence.around.alive) else {
        return Seen::NoData;
    };
    let times = times(evidence);
    let gaps: Vec<f64> = times.windows(2).map(|pair| pair[1] - pair[0]).collect();
    let bound = if gaps.len() < 3 {
        LONGEST
    } else {
        (5.0 * median(&gaps)).max(SHORTEST)
    };
    let began = evidence
        .around
        .began
        .unwrap_or(state.started_at.as_millisecond() as f64 / 1000.0);
    let last = times.last().copied().unwrap_or(began);
    let silent = evidence.around.now - last;
    if silent <= bound {
        return Seen::No;
    }
    let mut said = vec![format!(
        "the process lives, and the last step ended {:.0} minutes ago; more than {:.0} is too long here",
        silent / 60.0,
        bound / 60.0
    )];
    let open = &evidence.around.open_trials;
    if !open.is_empty() {
        let named: Vec<&str> = open.iter().take(5).map(String::as_str).collect();
        said.push(format!("{} trials are still out: {}", open.len(), named.join(", ")));
    }
    Match::at_risk(&[REWARD], said)
}

fn avalanche(evidence: &Evidence<'_>) -> Seen {
    let mut looked = false;
    for name in [
        "rollout/outcome/env_setup_failed",
        "trajectory_filter/reason/env_setup_failed",
        "rollout/outcome/infra_error",
    ] {
        let counts = evidence.counts(name);
        let (Some(line), Some(reward)) = (trend(&counts).filter(|_| counts.len() >= 6), evidence.line(REWARD)) else {
            continue;
        };
        looked = true;
        let recent: Vec<f64> = counts.iter().rev().take(3).map(|count| count.1).collect();
        if line.t >= 2.0 && median(&recent) >= 1.0 && reward.t <= -2.0 {
            let mut said = vec![told(name, &line), told(REWARD, &reward)];
            said.extend(most_said(evidence));
            return Match::stop(&[name, REWARD], said);
        }
    }
    // A run of ours writes an outcome only where there is one.
    if looked || evidence.line(REWARD).is_some() {
        Seen::No
    } else {
        Seen::NoData
    }
}

/// The exception that most of the last trials ended with.
fn most_said(evidence: &Evidence<'_>) -> Option<String> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for text in evidence
        .around
        .trials
        .iter()
        .filter_map(|trial| trial.exception.as_deref())
    {
        *counts.entry(text).or_default() += 1;
    }
    let (text, count) = counts.into_iter().max_by_key(|(_, count)| *count)?;
    let text: String = text.chars().take(200).collect();
    Some(format!(
        "{count} of the last {} trials: {text}",
        evidence.around.trials.len()
    ))
}

fn grader(evidence: &Evidence<'_>) -> Seen {
    let reward = evidence.recent(REWARD);
    // A run whose trials all have no verdict ends before its first step.
    let stepless = evidence.raw(REWARD).is_empty();
    if reward.is_none() && !stepless {
        return Seen::NoData;
    }
    if reward.iter().flatten().any(|reward| *reward != 0.0) {
        return Seen::No;
    }
    let ran: Vec<_> = evidence
        .around
        .trials
        .iter()
        .filter(|trial| trial.outcome == "completed" || trial.ungraded.is_some())
        .collect();
    let troubled: Vec<_> = ran.iter().filter_map(|trial| trial.ungraded.as_ref()).collect();
    if ran.is_empty() {
        return Seen::NoData;
    }
    if troubled.len() * 2 < ran.len() {
        return Seen::No;
    }
    let mut said = vec![
        reward.map_or_else(
            || "no trial has a reward, and no step was trained".to_owned(),
            |reward| format!("{REWARD} = 0 for {} of {} steps", reward.len(), reward.len()),
        ),
        format!(
            "in {} of the last {} trials the verifier's output says that the tests did not run",
            troubled.len(),
            ran.len()
        ),
    ];
    said.push(troubled[0].clone());
    let seen = Match::stop(&[REWARD], said);
    if stepless {
        seen.with_explains(&["no-signal", "crash-loop"])
    } else {
        seen
    }
}

fn validation(evidence: &Evidence<'_>) -> Seen {
    let Some(reward) = evidence.recent(REWARD) else {
        return Seen::NoData;
    };
    let mut looked = false;
    for name in evidence.names_with("val/") {
        let Some(stem) = name.strip_suffix("/pass@1").or_else(|| name.strip_suffix("/reward")) else {
            continue;
        };
        let Some((step, score)) = evidence.points(name).last().copied() else {
            continue;
        };
        looked = true;
        let newest = |suffix: &str| {
            evidence
                .points(&format!("{stem}/{suffix}"))
                .last()
                .map_or(0.0, |point| point.1)
        };
        let (lost, landed) = (newest("tasks_without_reward") + newest("invalid"), newest("tasks"));
        if score == 0.0 && median(&reward) > 0.1 && lost > 0.0 && lost >= landed {
            return Match::at_risk(
                &[name, REWARD],
                vec![
                    format!(
                        "{name} = 0 at step {step}, while {REWARD} is {}",
                        shown(median(&reward))
                    ),
                    format!("{landed} landed, {lost} did not"),
                ],
            );
        }
    }
    if looked { Seen::No } else { Seen::NoData }
}

fn slow_start(evidence: &Evidence<'_>) -> Seen {
    let (Some((late, early)), Some(line)) = (evidence.late_and_early(SETUP), evidence.line(SETUP)) else {
        return Seen::NoData;
    };
    let times = times(evidence);
    let hours = times
        .first()
        .zip(times.last())
        .map_or(0.0, |(first, last)| (last - first) / 3600.0);
    if line.t < 2.0 || late < 2.0 * early || late - early < 1.0 || hours < 1.0 {
        return Seen::No;
    }
    Match::at_risk(
        &[SETUP],
        vec![
            told(SETUP, &line),
            format!(
                "it is {} s, and was {} s, {hours:.1} hours ago",
                shown(late),
                shown(early)
            ),
        ],
    )
}
