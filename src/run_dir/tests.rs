//! Run directories: lock, logs, state, events, discovery.

use std::path::Path;

use fs_err as fs;
use jiff::Timestamp;

use super::*;
use crate::metrics::StepMetrics;

fn step(step: u64) -> StepMetrics {
    let mut metrics = StepMetrics::new(step, Timestamp::UNIX_EPOCH);
    metrics.set("critic/score/mean", step as f64 / 10.0);
    metrics
}

fn run() -> (tempfile::TempDir, RunDir) {
    let dir = tempfile::tempdir().unwrap();
    let run = RunDir::create(&dir.path().join("first")).unwrap();
    (dir, run)
}

#[test]
fn a_second_writer_is_refused_while_the_first_lives() {
    let (_dir, run) = run();
    let lock = run.lock().unwrap();
    let message = run.lock().unwrap_err().to_string();
    assert!(
        message.contains(&format!("in use by process {} on ", std::process::id())),
        "{message}"
    );
    assert_eq!(run.holder().unwrap().unwrap().is_alive(), Some(true));
    drop(lock);
    assert_eq!(run.holder().unwrap(), None);
    run.lock().unwrap();
}

#[test]
fn a_lock_of_a_dead_process_is_taken_over_and_one_of_another_machine_is_not() {
    let (_dir, run) = run();
    let path = run.path().join("lock");
    let holder = |host: &str| LockHolder {
        pid: 1,
        host: host.into(),
        process_start: 7,
        since: Timestamp::UNIX_EPOCH,
    };
    fs::write(&path, serde_json::to_string(&holder(&lock::host())).unwrap()).unwrap();
    assert_eq!(
        run.holder().unwrap(),
        None,
        "process 1 lives, but did not start at tick 7"
    );
    drop(run.lock().unwrap());
    fs::write(&path, serde_json::to_string(&holder("elsewhere")).unwrap()).unwrap();
    let message = run.lock().unwrap_err().to_string();
    assert!(
        message.contains("process 1 on elsewhere has not released this run; if it is gone, delete "),
        "{message}"
    );
    fs::write(&path, "{").unwrap();
    assert!(run.lock().unwrap_err().to_string().contains("not a lock of a run"));
}

#[test]
fn nothing_is_written_within_a_run_that_is_live() {
    let (dir, run) = run();
    let inside = [
        run.rollouts(),
        run.path().join("new/folder"),
        dir.path().join("link/new"),
    ];
    fs::os::unix::fs::symlink(run.path(), dir.path().join("link")).unwrap();
    let lock = run.lock().unwrap();
    for folder in &inside {
        let said = RunDir::create(folder).unwrap_err().to_string();
        assert!(
            said.starts_with(&format!(
                "{}: lies in the run {}, which process ",
                folder.display(),
                run.path().display()
            )),
            "{said}"
        );
    }
    assert!(!run.path().join("new").exists() && !run.rollouts().join("state.json").exists());
    RunDir::create(run.path()).unwrap();
    drop(lock);
    for folder in &inside {
        RunDir::create(folder).unwrap();
    }
}

#[test]
fn a_resume_leaves_each_surviving_step_once() {
    let (_dir, run) = run();
    let (mut log, moved) = StepLog::open(&run, None, true).unwrap();
    assert_eq!(moved, 0);
    for number in 1..=4 {
        log.append(&step(number)).unwrap();
    }
    drop(log);
    // A crash in mid-line.
    let torn = fs::read_to_string(run.metrics()).unwrap() + "{\"v\":1,\"ste";
    fs::write(run.metrics(), &torn).unwrap();
    assert_eq!(read_metrics(&run.metrics()).unwrap().len(), 4);

    let (mut log, moved) = StepLog::open(&run, Some(2), true).unwrap();
    assert_eq!(moved, 3);
    log.append(&step(3)).unwrap();
    let steps = |path: &Path| {
        read_metrics(path)
            .unwrap()
            .iter()
            .map(|metrics| metrics.step)
            .collect::<Vec<_>>()
    };
    assert_eq!(steps(&run.metrics()), [1, 2, 3]);
    assert_eq!(
        fs::read_to_string(run.train_log()).unwrap(),
        "step:1 - critic/score/mean:0.1\nstep:2 - critic/score/mean:0.2\nstep:3 - critic/score/mean:0.3\n"
    );
    let voided = fs::read_to_string(run.path().join("metrics.jsonl.voided")).unwrap();
    assert_eq!(voided.lines().count(), 3);
    assert_eq!(fs::read_dir(run.events()).unwrap().count(), 2);

    let damaged = torn.replacen("\"v\":1", "\"v\":x", 1);
    fs::write(run.metrics(), damaged).unwrap();
    let message = read_metrics(&run.metrics()).unwrap_err().to_string();
    assert!(
        message.contains("metrics.jsonl: line 1: not a line of metrics"),
        "{message}"
    );
    assert!(StepLog::open(&run, Some(2), false).is_err());
}

#[test]
fn an_event_file_holds_its_records() {
    let dir = tempfile::tempdir().unwrap();
    let mut events = EventWriter::create(dir.path(), 3).unwrap();
    events.scalars(&step(300)).unwrap();
    let bytes = fs::read(events.path()).unwrap();
    let mut rest = bytes.as_slice();
    let mut records = Vec::new();
    while !rest.is_empty() {
        let length = u64::from_le_bytes(rest[..8].try_into().unwrap()) as usize;
        assert_eq!(
            u32::from_le_bytes(rest[8..12].try_into().unwrap()),
            crc32c::masked(&rest[..8])
        );
        let data = &rest[12..12 + length];
        assert_eq!(
            u32::from_le_bytes(rest[12 + length..16 + length].try_into().unwrap()),
            crc32c::masked(data)
        );
        records.push(data.to_vec());
        rest = &rest[16 + length..];
    }
    assert_eq!(records.len(), 3);
    assert!(records[0].ends_with(b"\x1a\x0dbrain.Event:2"));
    assert_eq!(records[1][9..], [0x10, 3, 0x3a, 2, 0x08, 1]);
    // step 300 = 0xac 0x02; summary { value { tag, simple_value 30.0 } }
    let mut expected = vec![0x10, 0xac, 0x02, 0x2a, 26, 0x0a, 24, 0x0a, 17];
    expected.extend_from_slice(b"critic/score/mean");
    expected.push(0x15);
    expected.extend_from_slice(&30.0f32.to_le_bytes());
    assert_eq!(records[2][9..], expected);
}

#[test]
fn runs_are_found_newest_first_with_their_true_state() {
    let (dir, run) = run();
    let mut state = run.state().unwrap();
    (state.step, state.steps) = (3, Some(30));
    run.write_state(&state).unwrap();
    let other = RunDir::create(&dir.path().join("sub/second")).unwrap();
    let mut state = other.state().unwrap();
    state.become_phase(Phase::Finished);
    other.write_state(&state).unwrap();
    let broken = RunDir::create(&dir.path().join("broken")).unwrap();
    fs::write(broken.path().join("state.json"), "{}").unwrap();

    let lock = run.lock().unwrap();
    let (runs, damaged) = discover(dir.path()).unwrap();
    let names: Vec<(&str, Phase)> = runs.iter().map(|run| (run.name.as_str(), run.state)).collect();
    assert_eq!(names, [("second", Phase::Finished), ("first", Phase::Running)]);
    assert_eq!((runs[1].step, runs[1].steps), (3, Some(30)));
    assert!(
        damaged[0]
            .to_string()
            .contains("broken/state.json: not the state of a run (missing field")
    );
    drop(lock);
    assert_eq!(discover(dir.path()).unwrap().0[1].state, Phase::Interrupted);
    assert!(matches!(RunDir::open(dir.path()), Err(RunDirError::NotARun { .. })));
    assert!(
        RunDir::open(&dir.path().join("none"))
            .unwrap_err()
            .to_string()
            .contains("none")
    );
}

#[test]
fn a_state_of_a_newer_release_is_refused() {
    let (_dir, run) = run();
    let mut state = run.state().unwrap();
    state.schema_version = 2;
    run.write_state(&state).unwrap();
    assert!(
        run.state()
            .unwrap_err()
            .to_string()
            .ends_with("schema_version 2 is newer than 1; upgrade lego to read it")
    );
}

#[test]
fn a_trial_result_has_the_fields_of_harbor() {
    let (_dir, run) = run();
    let task = TrialTaskRef {
        path: "/tasks/a".into(),
    };
    let result = TrialResult {
        id: "0191".into(),
        task_name: "org/a".into(),
        trial_name: "a__1".into(),
        trial_uri: "file:///x".into(),
        task_id: task.clone(),
        source: None,
        task_checksum: "00".into(),
        config: TrialConfigRef {
            task,
            trial_name: "a__1".into(),
        },
        agent_info: AgentInfo {
            name: "builtin".into(),
            version: "1".into(),
            model_info: None,
        },
        agent_result: Some(AgentResult {
            n_output_tokens: Some(5),
            ..AgentResult::default()
        }),
        verifier_result: Some(VerifierResult {
            rewards: Some([("reward".to_owned(), 1.0)].into()),
        }),
        verifier_environment_mode: Some("shared".into()),
        exception_info: None,
        started_at: Some(Timestamp::UNIX_EPOCH),
        finished_at: None,
        environment_setup: Some(TimeSpan::default()),
        agent_setup: None,
        agent_execution: None,
        verifier: None,
        step_results: None,
        outcome: "completed".into(),
        reward: Some(1.0),
        hack_flags: Vec::new(),
        verifier_runs: None,
        flaky: false,
        test_report: None,
    };
    let path = result.write(&run.trial(12, false, "a__1")).unwrap();
    assert!(path.ends_with("trials/step_0012/a__1/result.json"));
    let value: serde_json::Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    assert_eq!(value["verifier_result"]["rewards"]["reward"], 1.0);
    assert_eq!(value["started_at"], "1970-01-01T00:00:00Z");
    assert!(jsonschema::is_valid(
        &schemars::schema_for!(TrialResult).to_value(),
        &value
    ));
}
