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
        id: "replica-lost",
        title: "an engine was lost",
        needs: "a replica that was given no requests for more than half of the time of recent steps (`inference/replica_N/up`)",
        cause: "It does not answer, or did not take new weights. Its sessions went to the others, which serve more than they were \
                meant to.",
        cures: &[
            Cure {
                key: "engine.endpoints",
                text: "its own log, then start it again at the same address: it is given the current weights and taken back",
            },
            Cure {
                key: "engine.endpoints",
                text: "or take it out of the list at the next start",
            },
        ],
        explains: &["replica-imbalance", "rollout-bound", "step-slowdown"],
        test: lost,
    },
    Signature {
        id: "replica-imbalance",
        title: "replicas are not evenly used",
        needs: "the same figure of two replicas or more (`…/replica_N/running`, `in_flight`, `tokens`), one more than twice another's",
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

/// Figures of which replicas should have about the same.
const EVEN: [&str; 4] = ["/running", "/in_flight", "/num_requests_running", "/tokens"];
/// Requests of which the busiest replica has at least so many: below, a session more or less is all the difference.
const BUSY: f64 = 2.0;

fn imbalance(evidence: &Evidence<'_>) -> Seen {
    let mut looked = false;
    for figure in EVEN {
        let counts = of_replicas(evidence, figure);
        if counts.len() < 2 {
            continue;
        }
        looked = true;
        let by_count = |one: &&(String, f64), other: &&(String, f64)| one.1.total_cmp(&other.1);
        let (Some(most), Some(least)) = (counts.iter().max_by(by_count), counts.iter().min_by(by_count)) else {
            continue;
        };
        if most.1 > 2.0 * least.1 && (most.1 >= BUSY || figure == "/tokens") {
            let said = format!("{} is {}, {} is {}", most.0, shown(most.1), least.0, shown(least.1));
            return Match::at_risk(&[&most.0, &least.0], vec![said]);
        }
    }
    if looked { Seen::No } else { Seen::NoData }
}

/// One figure of each replica, of logs that tell them: `…/replica_3/running`; the median of recent steps.
fn of_replicas(evidence: &Evidence<'_>, figure: &str) -> Vec<(String, f64)> {
    let names = evidence.history.names().iter();
    names
        .filter(|name| name.ends_with(figure) && replica_in(name).is_some())
        .filter_map(|name| Some((name.clone(), median(&evidence.recent(name)?))))
        .collect()
}

/// The part of a name that says which replica it is of.
fn replica_in(name: &str) -> Option<&str> {
    name.split('/')
        .find(|part| part.starts_with("replica_") || part.starts_with("replica-"))
}

fn lost(evidence: &Evidence<'_>) -> Seen {
    let up = of_replicas(evidence, "/up");
    if up.is_empty() {
        return Seen::NoData;
    }
    let out: Vec<&(String, f64)> = up.iter().filter(|(_, share)| *share < 0.5).collect();
    if out.is_empty() {
        return Seen::No;
    }
    let told = |(name, share): &(String, f64)| {
        let number = replica_in(name).and_then(|part| part.get("replica_".len()..)?.parse::<usize>().ok());
        let address = number.and_then(|number| evidence.around.endpoints.get(number));
        let since = evidence
            .points(name)
            .iter()
            .find(|(_, up)| *up < 1.0)
            .map(|(step, _)| *step);
        format!(
            "{name} is {}: {} of {} is out{}",
            shown(*share),
            address.map_or_else(|| "one".to_owned(), Clone::clone),
            up.len(),
            since.map_or_else(String::new, |step| format!(", first at step {step}"))
        )
    };
    let metrics: Vec<&str> = out.iter().map(|(name, _)| name.as_str()).collect();
    Match::at_risk(&metrics, out.into_iter().map(told).collect())
}
