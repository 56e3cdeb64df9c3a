//! Each signature by a run that has it, and nothing else; healthy runs have none.

use std::fmt::Write as _;

use super::*;
use crate::metrics::StepMetrics;
use crate::run_dir::{History, Phase, RunDir, RunState, StepLog};

pub(super) const STEPS: u32 = 30;

/// Small noise that is the same each time.
pub(super) fn noise(step: u32, salt: u32) -> f64 {
    let mixed = step
        .wrapping_mul(2_654_435_761u32.wrapping_add(salt * 97))
        .wrapping_mul(2_246_822_519)
        >> 8;
    f64::from(mixed % 1000) / 1000.0 - 0.5
}

/// Metrics of a run that learns.
pub(super) fn healthy(step: u32) -> Vec<(String, f64)> {
    let at = f64::from(step) / f64::from(STEPS);
    [
        ("critic/score/mean", 0.4 + 0.4 * at + 0.04 * noise(step, 1)),
        ("critic/advantages/max", 1.5),
        ("critic/advantages/min", -1.5),
        ("actor/lr", 1e-6),
        ("actor/grad_norm", 0.8 + 0.2 * noise(step, 2)),
        ("actor/entropy", 0.3 - 0.1 * at + 0.02 * noise(step, 3)),
        ("actor/ppo_kl", 0.0005 + 0.0002 * noise(step, 4)),
        ("actor/loss", 0.01 * noise(step, 5)),
        ("response_length/mean", 800.0 + 40.0 * noise(step, 6)),
        ("response_length/clip_ratio", 0.02),
        ("num_turns/mean", 8.0 + 0.5 * noise(step, 7)),
        ("num_tool_calls/mean", 7.0 + 0.5 * noise(step, 8)),
        ("rollout/no_signal_groups", 5.0),
        ("rollout/groups", 16.0),
        ("rollout/episodes", 128.0),
        ("rollout/hack_flags", 0.0),
        ("rollout/env_setup_s/mean", 2.0 + 0.2 * noise(step, 9)),
        ("rollout_corr/eff_sample_size", 0.97),
        ("training/rollout_actor_probs_pearson_corr", 0.9996),
        ("capture/delivered_fraction", 1.0),
        ("capture/rewrites", 0.0),
        ("trajectory_filter/invalid_ratio", 0.01),
        ("timing_s/gen", 40.0 + 3.0 * noise(step, 10)),
        ("timing_s/step", 60.0 + 4.0 * noise(step, 11)),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .to_vec()
}

/// The same with some metrics otherwise.
pub(super) fn with(changes: &dyn Fn(u32, f64) -> Vec<(&'static str, f64)>) -> impl Fn(u32) -> Vec<(String, f64)> {
    move |step| {
        let mut metrics = healthy(step);
        for (name, value) in changes(step, f64::from(step) / f64::from(STEPS)) {
            match metrics.iter_mut().find(|(known, _)| known == name) {
                Some(entry) => entry.1 = value,
                None => metrics.push((name.to_owned(), value)),
            }
        }
        metrics
    }
}

pub(super) fn log(of: &dyn Fn(u32) -> Vec<(String, f64)>) -> String {
    (1..=STEPS).fold(String::new(), |mut text, step| {
        let _ = write!(text, "step:{step}");
        for (name, value) in of(step) {
            let _ = write!(text, " - {name}:{value}");
        }
        text + "\n"
    })
}

pub(super) fn found(report: &RunReport) -> Vec<&str> {
    report
        .findings
        .iter()
        .map(|finding| finding.signature.as_str())
        .collect()
}

pub(super) type Changes = &'static dyn Fn(u32, f64) -> Vec<(&'static str, f64)>;

pub(super) const LOGS: &[(&str, Changes)] = &[
    ("routing-misaligned", &|_, _| {
        vec![
            ("training/rollout_actor_probs_pearson_corr", 0.95),
            ("rollout/moe/coverage", 0.4),
        ]
    }),
    ("logprob-mismatch", &|_, _| {
        vec![("training/rollout_actor_probs_pearson_corr", 0.97)]
    }),
    ("frozen-model", &|step, _| {
        vec![("actor/lr", if step > 20 { 0.0 } else { 1e-6 })]
    }),
    ("frozen-model", &|_, _| vec![("actor/grad_norm", 0.0)]),
    ("no-signal", &|step, _| {
        vec![
            ("rollout/no_signal_groups", 15.0),
            ("critic/score/mean", 0.02 + 0.01 * noise(step, 1)),
        ]
    }),
    ("gradient-starvation", &|step, at| {
        vec![
            ("actor/grad_norm", 1.0 - 0.98 * at.sqrt()),
            ("response_length/mean", if step > 20 { 2400.0 } else { 800.0 }),
            ("response_length/clip_ratio", at),
        ]
    }),
    ("environment-avalanche", &|step, at| {
        vec![
            ("rollout/outcome/env_setup_failed", (60.0 * at).round()),
            ("critic/score/mean", 0.6 - 0.4 * at + 0.03 * noise(step, 1)),
        ]
    }),
    ("validation-false-zero", &|step, _| {
        if step % 10 == 0 {
            vec![
                ("val/val/pass@1", 0.0),
                ("val/val/tasks", 3.0),
                ("val/val/tasks_without_reward", 81.0),
            ]
        } else {
            vec![]
        }
    }),
    ("tool-call-collapse", &|step, at| {
        vec![
            ("num_turns/mean", (9.0 - 10.0 * at).max(1.0)),
            ("num_tool_calls/mean", (8.0 - 10.0 * at).max(0.01)),
            ("critic/score/mean", 0.6 - 0.5 * at + 0.03 * noise(step, 1)),
        ]
    }),
    ("tool-call-collapse", &|step, _| {
        vec![
            ("num_turns/mean", 1.0),
            ("num_tool_calls/mean", 0.0),
            ("critic/score/mean", 0.2 + 0.02 * noise(step, 1)),
            ("rollout/no_signal_groups", 16.0),
        ]
    }),
    ("entropy-collapse", &|step, at| {
        vec![
            ("actor/entropy", 0.3 * (-6.0 * at).exp()),
            ("critic/score/mean", 0.5 + 0.05 * noise(step, 1)),
        ]
    }),
    ("reward-hacking", &|_, at| {
        vec![("rollout/hack_flags", (40.0 * at).round())]
    }),
    ("reward-hacking", &|step, at| {
        if step % 3 == 0 {
            vec![("val/val/pass@1", 0.7 - 0.4 * at + 0.01 * noise(step, 13))]
        } else {
            vec![]
        }
    }),
    ("length-explosion", &|step, at| {
        vec![
            ("response_length/mean", 800.0 + 2000.0 * at),
            ("critic/score/mean", 0.5 + 0.05 * noise(step, 1)),
        ]
    }),
    ("kl-blow-up", &|_, at| vec![("actor/ppo_kl", 0.001 + at * at)]),
    ("ess-collapse", &|_, at| {
        vec![("rollout_corr/eff_sample_size", 0.97 - 0.9 * at)]
    }),
    ("step-slowdown", &|_, at| {
        vec![
            ("timing_s/step", 60.0 + 140.0 * at),
            ("timing_s/gen", 40.0 + 140.0 * at),
        ]
    }),
    ("rollout-bound", &|_, _| {
        vec![
            ("fully_async/trainer/idle_ratio", 0.8),
            ("fully_async/rollouter/idle_ratio", 0.0),
        ]
    }),
    ("trainer-bound", &|_, _| {
        vec![
            ("fully_async/rollouter/idle_ratio", 0.7),
            ("fully_async/trainer/idle_ratio", 0.1),
        ]
    }),
    ("replica-imbalance", &|_, _| {
        vec![
            ("inference/replica_0/running", 30.0),
            ("inference/replica_1/running", 4.0),
        ]
    }),
    ("replica-lost", &|step, _| {
        let out = step > 12;
        vec![
            ("inference/replica_0/running", if out { 30.0 } else { 15.0 }),
            ("inference/replica_1/running", if out { 0.0 } else { 15.0 }),
            ("inference/replica_0/up", 1.0),
            ("inference/replica_1/up", if out { 0.0 } else { 1.0 }),
        ]
    }),
    ("frozen-model", &|step, _| vec![("actor/lr", 1e-14 * f64::from(step))]),
    ("token-drift", &|_, _| {
        vec![("capture/delivered_fraction", 0.8), ("capture/rewrites", 300.0)]
    }),
    ("crash-loop", &|step, _| {
        vec![("actor/grad_norm", if step > 25 { f64::NAN } else { 0.8 })]
    }),
];

#[test]
fn each_signature_is_claimed_on_its_evidence_and_alone() {
    for (signature, changes) in LOGS {
        let report = judge(&History::parse("log", &log(&with(changes))), None, None).unwrap();
        assert_eq!(found(&report), [*signature], "{report:#?}");
        assert!(!report.findings[0].evidence.is_empty() && report.recommendations.len() <= 3);
        assert!(report.verdict > Verdict::Healthy);
    }
}

#[test]
fn a_healthy_run_has_none_and_a_short_one_is_not_judged() {
    let text = log(&healthy);
    let report = judge(&History::parse("log", &text), None, None).unwrap();
    assert_eq!(
        (found(&report), report.verdict),
        (vec![], Verdict::Healthy),
        "{report:#?}"
    );
    assert_eq!(report.looked_at.len(), signatures().count());
    let short = text.lines().take(2).collect::<Vec<_>>().join("\n");
    assert_eq!(
        judge(&History::parse("log", &short), None, None).unwrap().verdict,
        Verdict::Healthy
    );
}

#[test]
fn what_was_wrong_before_a_resume_is_not_told_again() {
    let frozen = with(&|_, _| vec![("actor/lr", 0.0)]);
    let text = log(&frozen)
        + "step:20 - critic/score/mean:0.5 - actor/lr:1e-6\nstep:21 - critic/score/mean:0.5 - actor/lr:1e-6\n";
    let mut more = text.clone();
    for step in 22..26 {
        let _ = writeln!(more, "step:{step} - critic/score/mean:0.5 - actor/lr:1e-6");
    }
    for text in [text, more] {
        let report = judge(&History::parse("log", &text), None, None).unwrap();
        assert_eq!(found(&report), Vec::<&str>::new(), "{report:#?}");
    }
    let later = judge(
        &History::parse(
            "log",
            &log(&with(&|step, _| vec![("actor/lr", if step > 10 { 1e-6 } else { 0.0 })])),
        ),
        None,
        Some(11),
    )
    .unwrap();
    assert_eq!(later.steps, "steps 11 to 30");
}

/// A run directory with these metrics, a minute apart and ending `ago` seconds before now.
pub(super) fn directory(ago: i64, apart: i64, of: &dyn Fn(u32) -> Vec<(String, f64)>) -> (tempfile::TempDir, RunDir) {
    let folder = tempfile::tempdir().unwrap();
    let run = RunDir::create(&folder.path().join("run")).unwrap();
    let (mut log, _) = StepLog::open(&run, None, false).unwrap();
    let now = jiff::Timestamp::now().as_second();
    for step in 1..=STEPS {
        let time = jiff::Timestamp::from_second(now - ago - i64::from(STEPS - step) * apart).unwrap();
        let mut metrics = StepMetrics::new(u64::from(step), time);
        for (name, value) in of(step) {
            metrics.set(name, value);
        }
        log.append(&metrics).unwrap();
    }
    (folder, run)
}

pub(super) fn state(run: &RunDir, phase: Phase, change: impl Fn(&mut RunState)) {
    let mut state = RunState::new(phase);
    state.step = u64::from(STEPS);
    change(&mut state);
    run.write_state(&state).unwrap();
}

pub(super) fn trial(run: &RunDir, number: u32, output: &str) {
    let folder = run.trial(u64::from(STEPS), false, &format!("task__{number:02}"));
    std::fs::create_dir_all(folder.join("verifier")).unwrap();
    std::fs::write(folder.join("result.json"), r#"{"outcome": "completed", "reward": 0.0}"#).unwrap();
    std::fs::write(folder.join("verifier/test-stdout.txt"), output).unwrap();
}

#[test]
fn a_grader_that_did_not_run_is_told_from_hard_tasks() {
    let zero = with(&|_, _| vec![("critic/score/mean", 0.0), ("rollout/no_signal_groups", 16.0)]);
    for (output, expected) in [
        (
            "tests/test.sh: line 3: pytest: command not found\n",
            "grader-did-not-run",
        ),
        (
            "E   ModuleNotFoundError: No module named 'numpy'\n",
            "grader-did-not-run",
        ),
        ("2 failed, 1 passed\n", "no-signal"),
        ("", "no-signal"),
    ] {
        let (_folder, run) = directory(0, 60, &zero);
        state(&run, Phase::Finished, |_| {});
        (0..8).for_each(|number| trial(&run, number, output));
        let report = look_at_run(run.path(), None).unwrap();
        assert_eq!(found(&report), [expected], "{output}: {report:#?}");
    }
}

#[test]
fn stalls_crashes_and_slow_starts_are_seen_in_the_directory() {
    let stalled = |ago: i64, live: bool| {
        let (_folder, run) = directory(ago, 60, &healthy);
        state(&run, Phase::Running, |state| state.starts = 1);
        let lock = live.then(|| run.lock().unwrap());
        std::fs::create_dir_all(run.trial(u64::from(STEPS) + 1, false, "slow-task__03")).unwrap();
        let report = look_at_run(run.path(), None).unwrap();
        drop(lock);
        report
    };
    let report = stalled(20 * 60, true);
    assert_eq!(found(&report), ["stall"]);
    assert!(report.findings[0].evidence[1].contains("slow-task__03"), "{report:#?}");
    assert!(found(&stalled(60, true)).is_empty());
    assert!(found(&stalled(20 * 60, false)).is_empty(), "nobody works on it");

    let (_folder, run) = directory(0, 60, &healthy);
    state(&run, Phase::Failed, |state| {
        state.message = Some("no engine answers".to_owned());
    });
    let report = look_at_run(run.path(), None).unwrap();
    assert_eq!(found(&report), ["crash-loop"]);
    assert!(report.findings[0].evidence[0].contains("no engine answers"));

    let slow = with(&|_, at| vec![("rollout/env_setup_s/mean", 2.0 + 6.0 * at)]);
    for (apart, expected) in [(300, vec!["slow-sandbox-start"]), (30, vec![])] {
        let (_folder, run) = directory(0, apart, &slow);
        state(&run, Phase::Finished, |_| {});
        assert_eq!(found(&look_at_run(run.path(), None).unwrap()), expected);
    }
}

#[test]
fn every_signature_is_tried_and_its_cures_name_keys_that_exist() {
    let in_directories = ["grader-did-not-run", "stall", "slow-sandbox-start"];
    let reference = crate::config::reference();
    for signature in signatures() {
        let tried = LOGS.iter().any(|(id, _)| *id == signature.id) || in_directories.contains(&signature.id);
        assert!(tried, "{} is not tried", signature.id);
        assert!((1..=4).contains(&signature.cures.len()), "{}", signature.id);
        for id in signature.explains {
            assert!(
                signatures().any(|other| other.id == *id),
                "{} explains `{id}`",
                signature.id
            );
        }
        for cure in signature.cures {
            // Sections, keys of a section, commands, files of a task, and sections that are being built.
            let (section, key) = cure.key.rsplit_once('.').unwrap_or((cure.key, ""));
            let known = if key.is_empty() || cure.key.starts_with("lego ") || cure.key.contains('/') {
                cure.key.starts_with("lego ")
                    || cure.key.contains('/')
                    || ["async", "balance"].contains(&cure.key)
                    || reference.contains(&format!("## [{section}]"))
            } else {
                reference.contains(&format!("## [{}]", cure.key)) || reference.contains(&format!("| `{key}` |"))
            };
            assert!(known, "{}: no key `{}`", signature.id, cure.key);
        }
    }
}
