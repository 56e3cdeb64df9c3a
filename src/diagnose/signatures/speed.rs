//! Signatures of speed: who waits for whom.

use crate::diagnose::evidence::{Evidence, median, shown, told};
use crate::diagnose::signature::{Cure, Match, Seen, Signature};

const STEP: &str = "timing_s/step";
const TRAINER: &str = "fully_async/trainer/idle_ratio";
const ROLLOUTER: &str = "fully_async/rollouter/idle_ratio";

pub(in crate::diagnose) static SIGNATURES: &[Signature] = &[
    Signature {
        id: "step-slowdown",
        title: "steps take longer and longer",
        needs: "timing_s/step rising (t ≥ 2) to twice its beginning, with episodes that are not longer",
        cause: "The same work takes more time: a machine, an engine or a disk that fills up.",
        cures: &[
            Cure {
                key: "engine",
                text: "which part grows is named: look at that machine",
            },
            Cure {
                key: "checkpoint.keep",
                text: "fewer checkpoints, where saving grows",
            },
            Cure {
                key: "sandbox.concurrency",
                text: "fewer at a time, where verification grows",
            },
        ],
        explains: &[],
        test: slowdown,
    },
    Signature {
        id: "rollout-bound",
        title: "the trainer waits for episodes",
        needs: "fully_async/trainer/idle_ratio above 0.5 on recent steps",
        cause: "Sampling is the bottleneck.",
        cures: &[
            Cure {
                key: "engine.endpoints",
                text: "more engines",
            },
            Cure {
                key: "sandbox.concurrency",
                text: "more trials at a time, where the engines have room",
            },
            Cure {
                key: "rollout.tail_kill",
                text: "end the last trials that the others wait for",
            },
        ],
        explains: &[],
        test: |evidence| waits(evidence, TRAINER),
    },
    Signature {
        id: "trainer-bound",
        title: "sampling waits for the trainer",
        needs: "fully_async/rollouter/idle_ratio above 0.5 on recent steps",
        cause: "The update is the bottleneck.",
        cures: &[
            Cure {
                key: "train.max_tokens_per_micro_batch",
                text: "larger micro-batches, where memory allows",
            },
            Cure {
                key: "async",
                text: "more staleness, where learning allows",
            },
            Cure {
                key: "engine.endpoints",
                text: "fewer engines, and more devices for the trainer",
            },
        ],
        explains: &[],
        test: |evidence| waits(evidence, ROLLOUTER),
    },
    Signature {
        id: "replica-imbalance",
        title: "replicas are not evenly used",
        needs: "figures of two replicas or more (`…/replica_N/running`, `in_flight`, `tokens`), one more than twice another's",
        cause: "Sessions stay where they began, or one replica is slower than the others.",
        cures: &[
            Cure {
                key: "balance",
                text: "a policy that looks at the load",
            },
            Cure {
                key: "engine.endpoints",
                text: "take the slow one out",
            },
            Cure {
                key: "lego balance --simulate",
                text: "try policies on the recorded load",
            },
        ],
        explains: &[],
        test: imbalance,
    },
];

fn slowdown(evidence: &Evidence<'_>) -> Seen {
    let (Some((late, early)), Some(line)) = (evidence.late_and_early(STEP), evidence.line(STEP)) else {
        return Seen::NoData;
    };
    let longer = evidence
        .late_and_early("response_length/mean")
        .is_some_and(|(late, early)| late > 1.5 * early);
    if line.t < 2.0 || late < 2.0 * early || longer {
        return Seen::No;
    }
    let mut said = vec![
        told(STEP, &line),
        format!("it is {} s, and was {} s", shown(late), shown(early)),
    ];
    let parts = evidence.names_with("timing_s/").filter(|name| *name != STEP);
    let grown = parts
        .filter_map(|name| evidence.late_and_early(name).map(|(late, early)| (name, late - early)))
        .max_by(|one, other| one.1.total_cmp(&other.1));
    said.extend(grown.map(|(name, more)| format!("most of it is {name}: {} s more", shown(more))));
    Match::at_risk(&[STEP, grown.map_or("timing_s/gen", |(name, _)| name)], said)
}

fn waits(evidence: &Evidence<'_>, name: &str) -> Seen {
    match evidence.recent(name) {
        None => Seen::NoData,
        Some(recent) if median(&recent) > 0.5 => Match::at_risk(
            &[name],
            vec![format!(
                "{name} is {} on the last {} steps",
                shown(median(&recent)),
                recent.len()
            )],
        ),
        Some(_) => Seen::No,
    }
}

fn imbalance(evidence: &Evidence<'_>) -> Seen {
    let counts = replica_metrics(evidence);
    if counts.len() < 2 {
        return Seen::NoData;
    }
    let by_count = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
    let (Some(most), Some(least)) = (counts.iter().max_by(by_count), counts.iter().min_by(by_count)) else {
        return Seen::NoData;
    };
    if most.1 <= 2.0 * least.1 {
        return Seen::No;
    }
    Match::at_risk(
        &[],
        vec![format!(
            "{} has {}, {} has {}",
            most.0,
            shown(most.1),
            least.0,
            shown(least.1)
        )],
    )
}

/// Requests in flight by replica, of logs that tell them: `…/replica_3/running`.
fn replica_metrics(evidence: &Evidence<'_>) -> Vec<(String, f64)> {
    let names = evidence.history.names().iter().filter(|name| {
        let of_replica = name
            .split('/')
            .any(|part| part.starts_with("replica_") || part.starts_with("replica-"));
        of_replica
            && ["/running", "/in_flight", "/num_requests_running", "/tokens"]
                .iter()
                .any(|ending| name.ends_with(ending))
    });
    names
        .filter_map(|name| Some((name.clone(), median(&evidence.recent(name)?))))
        .collect()
}
