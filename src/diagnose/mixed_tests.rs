//! Runs with more than one fault: each that stands for itself is told, none that follows from another, and nothing else. The
//! test prints what was found against what was to be found.

use std::fmt::Write as _;

use super::signature_tests::{Changes, LOGS, STEPS, directory, found, noise, state, trial, with};
use super::*;
use crate::run_dir::{Phase, RunDir};

/// What lies in the run's directory beside its metrics.
#[derive(Clone, Copy)]
enum Beside {
    /// A run that ended.
    Nothing,
    /// Trials whose verifiers said this.
    Verified(&'static str),
    /// It failed with this message.
    Failed(&'static str),
    /// A process that lives and is silent.
    Silent,
    /// Trials that failed with this exception.
    Exceptions(&'static str),
}

/// Faults that need no directory, by the name of the signature and, where there are several, which of them.
fn of(name: &str, which: usize) -> Changes {
    let mut known = LOGS.iter().filter(|(id, _)| *id == name);
    known
        .nth(which)
        .unwrap_or_else(|| panic!("no run with `{name}` ({which})"))
        .1
}

const ZERO: Changes = &|_, _| vec![("critic/score/mean", 0.0), ("rollout/no_signal_groups", 16.0)];
const SLOW_START: Changes = &|_, at| vec![("rollout/env_setup_s/mean", 2.0 + 6.0 * at)];
/// Rewards that neither rise nor fall.
const FLAT: Changes = &|step, _| vec![("critic/score/mean", 0.5 + 0.05 * noise(step, 1))];
/// A run that has learnt, and whose last groups are all solved.
const LEARNT: Changes = &|step, at| {
    vec![
        ("critic/score/mean", (0.5 + 0.7 * at).min(0.98 + 0.01 * noise(step, 1))),
        ("rollout/no_signal_groups", if step > 20 { 15.0 } else { 5.0 }),
    ]
};

struct Mixed {
    faults: Vec<Changes>,
    beside: Beside,
    /// Seconds between steps.
    apart: i64,
    expected: &'static [&'static str],
}

fn mixed(faults: &[Changes], expected: &'static [&'static str]) -> Mixed {
    Mixed {
        faults: faults.to_vec(),
        beside: Beside::Nothing,
        apart: 60,
        expected,
    }
}

impl Mixed {
    fn beside(self, beside: Beside) -> Self {
        Self { beside, ..self }
    }

    fn apart(self, apart: i64) -> Self {
        Self { apart, ..self }
    }
}

fn runs() -> Vec<Mixed> {
    let lr_zero: Changes = &|_, _| vec![("actor/lr", 0.0)];
    vec![
        mixed(&[of("no-signal", 0), lr_zero], &["frozen-model", "no-signal"]),
        mixed(
            &[of("environment-avalanche", 0), lr_zero],
            &["environment-avalanche", "frozen-model"],
        ),
        mixed(
            &[of("tool-call-collapse", 1), lr_zero],
            &["tool-call-collapse", "frozen-model"],
        ),
        mixed(
            &[of("routing-misaligned", 0), of("ess-collapse", 0)],
            &["routing-misaligned"],
        ),
        mixed(
            &[of("routing-misaligned", 0), of("rollout-bound", 0)],
            &["routing-misaligned", "rollout-bound"],
        ),
        mixed(
            &[of("logprob-mismatch", 0), of("kl-blow-up", 0)],
            &["logprob-mismatch", "kl-blow-up"],
        ),
        mixed(
            &[of("logprob-mismatch", 0), of("token-drift", 0)],
            &["logprob-mismatch", "token-drift"],
        ),
        mixed(&[of("no-signal", 0), of("entropy-collapse", 0)], &["entropy-collapse"]),
        mixed(
            &[of("gradient-starvation", 0), of("length-explosion", 0)],
            &["gradient-starvation"],
        ),
        mixed(
            &[of("reward-hacking", 0), of("length-explosion", 0)],
            &["reward-hacking", "length-explosion"],
        ),
        mixed(
            &[of("environment-avalanche", 0), SLOW_START, of("step-slowdown", 0)],
            &["environment-avalanche"],
        )
        .apart(300),
        mixed(
            &[SLOW_START, of("token-drift", 0)],
            &["slow-sandbox-start", "token-drift"],
        )
        .apart(300),
        mixed(
            &[of("step-slowdown", 0), of("rollout-bound", 0)],
            &["step-slowdown", "rollout-bound"],
        ),
        mixed(
            &[of("trainer-bound", 0), of("replica-imbalance", 0)],
            &["trainer-bound", "replica-imbalance"],
        ),
        mixed(&[of("replica-lost", 0), of("step-slowdown", 0)], &["replica-lost"]),
        mixed(
            &[of("replica-lost", 0), of("no-signal", 0)],
            &["replica-lost", "no-signal"],
        ),
        mixed(
            &[of("no-signal", 0), of("replica-lost", 0)],
            &["crash-loop", "no-signal"],
        )
        .beside(Beside::Failed(
            "engine unavailable: http://a:1/health: connection refused",
        )),
        mixed(
            &[of("crash-loop", 0), of("kl-blow-up", 0), of("no-signal", 0)],
            &["crash-loop"],
        ),
        mixed(&[ZERO, lr_zero], &["grader-did-not-run", "frozen-model"])
            .beside(Beside::Verified("tests/test.sh: line 3: pytest: command not found\n")),
        mixed(&[of("validation-false-zero", 0), FLAT], &["validation-false-zero"])
            .beside(Beside::Verified("2 failed, 1 passed\n")),
        mixed(&[of("replica-lost", 0), FLAT], &["stall", "replica-lost"]).beside(Beside::Silent),
        mixed(
            &[of("validation-false-zero", 0), of("reward-hacking", 0)],
            &["validation-false-zero", "reward-hacking"],
        ),
        mixed(
            &[of("environment-avalanche", 0)],
            &["environment-avalanche", "crash-loop"],
        )
        .beside(Beside::Exceptions(
            "SandboxError: the command ended with exit code 137 (out of memory)",
        )),
        mixed(&[of("environment-avalanche", 0)], &["environment-avalanche"]).beside(Beside::Exceptions(
            "SandboxError: connection to 10.0.0.137:41370 refused",
        )),
        mixed(&[LEARNT, of("token-drift", 0)], &["token-drift"]),
    ]
}

fn fill(run: &RunDir, beside: Beside) {
    let (phase, message) = match beside {
        Beside::Failed(message) => (Phase::Failed, Some(message.to_owned())),
        Beside::Silent => (Phase::Running, None),
        _ => (Phase::Finished, None),
    };
    state(run, phase, |state| {
        state.starts = 1;
        state.message.clone_from(&message);
    });
    match beside {
        Beside::Verified(output) => (0..8).for_each(|number| trial(run, number, output)),
        Beside::Exceptions(text) => {
            let (kind, message) = text.split_once(": ").unwrap();
            let result = serde_json::json!({"outcome": "env_setup_failed", "exception_info":
                {"exception_type": kind, "exception_message": message}});
            for number in 0..8 {
                let folder = run.trial(u64::from(STEPS), false, &format!("task__{number:02}"));
                std::fs::create_dir_all(&folder).unwrap();
                std::fs::write(folder.join("result.json"), result.to_string()).unwrap();
            }
        }
        _ => {}
    }
}

#[test]
fn of_several_faults_each_is_told_and_what_follows_is_not() {
    let runs = runs();
    assert!(runs.len() >= 20);
    let mut table = format!("{:>3}  {:<64} {}\n", "run", "to be found", "found");
    let mut wrong = 0;
    for (number, mixed) in runs.iter().enumerate() {
        let together = |step: u32, at: f64| -> Vec<(&'static str, f64)> {
            mixed.faults.iter().flat_map(|fault| fault(step, at)).collect()
        };
        let of_step = with(&together);
        let silent = matches!(mixed.beside, Beside::Silent);
        let (_folder, run) = directory(if silent { 20 * 60 } else { 0 }, mixed.apart, &of_step);
        fill(&run, mixed.beside);
        let lock = silent.then(|| run.lock().unwrap());
        let report = look_at_run(run.path(), None).unwrap();
        drop(lock);
        let (mut seen, mut expected) = (found(&report), mixed.expected.to_vec());
        seen.sort_unstable();
        expected.sort_unstable();
        let mark = if seen == expected { "" } else { "  <-- wrong" };
        wrong += usize::from(seen != expected);
        let _ = writeln!(
            table,
            "{:>3}  {:<64} {}{mark}",
            number + 1,
            expected.join(", "),
            seen.join(", ")
        );
        // Of each finding one cure before a second of any, three at most.
        assert!(report.recommendations.len() <= 3 && report.findings.iter().all(|finding| !finding.cures.is_empty()));
    }
    let _ = writeln!(table, "{} of {} as they are to be", runs.len() - wrong, runs.len());
    #[expect(clippy::print_stdout, reason = "the table is what this test is for")]
    {
        print!("{table}");
    }
    assert_eq!(wrong, 0, "\n{table}");
}
