//! The signature of a run that breaks: the process, the numbers, or what it needs.

use std::collections::BTreeSet;

use crate::diagnose::evidence::Evidence;
use crate::diagnose::signature::{Cure, Match, Seen, Signature};
use crate::run_dir::Phase;

pub(in crate::diagnose) static SIGNATURES: &[Signature] = &[Signature {
    id: "crash-loop",
    title: "it crashes",
    needs: "a state `failed`, three starts without ten steps, a kill for memory (137), or a metric of the update that is not finite",
    cause: "The process or the numbers break, and starting it again alone will break them again.",
    cures: &[
        Cure {
            key: "train.lr",
            text: "where a metric is not finite: a lower rate, `grad_clip`, from a checkpoint before that step",
        },
        Cure {
            key: "train.max_tokens_per_micro_batch",
            text: "where memory ran out: smaller micro-batches, or fewer trials at a time (`sandbox.concurrency`)",
        },
        Cure {
            key: "engine",
            text: "where an engine was lost: its own log, then start it and run the same command again",
        },
        Cure {
            key: "lego train",
            text: "what stopped it is told above: mend that; the same command then goes on from the newest checkpoint",
        },
    ],
    explains: &[
        "stall",
        "replica-lost",
        "replica-imbalance",
        "logprob-mismatch",
        "kl-blow-up",
        "no-signal",
    ],
    test: crash,
}];

/// The cures of a crash, by their places.
const NUMBERS: usize = 0;
const MEMORY: usize = 1;
const ENGINE: usize = 2;
const MESSAGE: usize = 3;

/// What follows from the end of a process alone.
const OF_THE_END: &[&str] = &["stall", "replica-lost", "replica-imbalance"];

/// What an error is about, as far as its own words tell.
fn cure_of(message: &str) -> usize {
    let says = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match () {
        () if says(&["engine", "could not be served"]) => ENGINE,
        () if says(&["not finite"]) => NUMBERS,
        () if is_for_memory(message) => MEMORY,
        () => MESSAGE,
    }
}

/// Whether a text tells of a kill for memory: in words, or by 137 as an exit code, not as a part of an address or an id.
fn is_for_memory(text: &str) -> bool {
    let is_code = |(at, number): (usize, &str)| {
        let before = text[..at].trim_end_matches([' ', ':', '=', '(']);
        let behind = text[at + number.len()..].chars().next();
        ["code", "status", "exit", "exited", "with"]
            .iter()
            .any(|word| before.ends_with(word))
            && behind.is_none_or(|next| !next.is_ascii_digit())
    };
    let named = ["out of memory", "OOMKilled", "OOM killed", "OOM-kill"];
    named.iter().any(|words| text.contains(words)) || text.match_indices("137").any(is_code)
}

fn crash(evidence: &Evidence<'_>) -> Seen {
    let mut cures = BTreeSet::new();
    let mut said = Vec::new();
    let mut metrics = Vec::new();
    for name in evidence
        .history
        .names()
        .iter()
        .filter(|name| name.starts_with("actor/"))
    {
        if let Some((step, value)) = evidence.raw(name).iter().find(|(_, value)| !value.is_finite()) {
            said.push(format!("{name} is {value} first at step {step}"));
            metrics.push(name.as_str());
            cures.insert(NUMBERS);
            break;
        }
    }
    if let Some((step, count)) = evidence
        .points("actor/nan_count")
        .iter()
        .find(|(_, count)| *count > 0.0)
    {
        said.push(format!("actor/nan_count = {count} at step {step}"));
        metrics.push("actor/nan_count");
        cures.insert(NUMBERS);
    }
    if let Some(state) = &evidence.around.state {
        if state.state == Phase::Failed {
            let message = state.message.as_deref().unwrap_or("no message");
            said.push(format!("it failed after step {}: {message}", state.step));
            cures.insert(cure_of(message));
        } else if state.starts >= 3 && state.step < 10 && !evidence.around.alive && state.state == Phase::Running {
            said.push(format!("{} starts, and {} steps", state.starts, state.step));
            cures.insert(MESSAGE);
        }
    }
    let killed = |text: &&String| is_for_memory(text);
    let kills = evidence
        .around
        .trials
        .iter()
        .filter_map(|trial| trial.exception.as_ref())
        .filter(killed)
        .count();
    if kills > 0 && kills * 4 >= evidence.around.trials.len() {
        said.push(format!(
            "{kills} of the last {} trials were killed for memory (137)",
            evidence.around.trials.len()
        ));
        cures.insert(MEMORY);
    }
    match () {
        () if !said.is_empty() => {
            // Broken numbers make broken answers; a process that ended says nothing of what it learnt from.
            let of_numbers = cures.contains(&NUMBERS);
            let seen = Match::stop(&metrics, said).with_cures(cures);
            if of_numbers {
                seen
            } else {
                seen.with_explains(OF_THE_END)
            }
        }
        () if evidence.around.state.is_none() && evidence.history.steps().is_empty() => Seen::NoData,
        () => Seen::No,
    }
}
