//! What trials leave: their files, graded sabotage, kept folders; and nothing of their sandboxes, however they end.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// Tests that report through a file of the working folder, so that an agent can break them.
const TESTS: &str = "#!/bin/sh\nsh ./report >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"\n";

/// A rollout of one task in which the agent runs one command and says that it is done.
pub(super) struct Rollout {
    folder: tempfile::TempDir,
}

impl Rollout {
    pub(super) fn new(task: &str, report: &str, command: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let record = json!({"instance_id": task, "problem_statement": "Mend it.", "data_source": "made",
            "files": {"report": report}, "test": TESTS, "solution": "#!/bin/sh\ntrue\n"});
        let call = json!({"name": "bash", "arguments": {"command": command}});
        let turns = json!({"instance_id": task, "turns": [{"tool_calls": [call]}, {"content": "done"}]});
        std::fs::write(folder.path().join("tasks.jsonl"), format!("{record}\n")).unwrap();
        std::fs::write(folder.path().join("turns.jsonl"), format!("{turns}\n")).unwrap();
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/policy");
        let config = format!(
            "[policy]\nmodel = \"{}\"\n[data]\ntrain = \"tasks.jsonl\"\nmax_prompt_tokens = 128\n\
             max_response_tokens = 128\n[engine]\nkind = \"replay\"\nrecording = \"turns.jsonl\"\n\
             [scaffold]\nmax_turns = 4\nmax_consecutive_no_tool = 1\n[rollout]\ngroup_size = 1\nmax_retries = 0\n",
            policy.display()
        );
        std::fs::write(folder.path().join("run.toml"), config).unwrap();
        Self { folder }
    }

    /// Gives the task another solution.
    fn solved_by(&self, script: &str) {
        let path = self.folder.path().join("tasks.jsonl");
        let mut task: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        task["solution"] = json!(format!("#!/bin/sh\n{script}\n"));
        std::fs::write(path, format!("{task}\n")).unwrap();
    }

    pub(super) fn command(&self, set: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command.arg("rollout").arg(self.folder.path().join("run.toml"));
        command.arg("-o").arg(self.folder.path().join("out"));
        for value in set {
            command.args(["--set", value]);
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(super) fn run(&self, set: &[&str]) -> Output {
        self.ends(set, 0)
    }

    fn ends(&self, set: &[&str], code: i32) -> Output {
        let output = self.command(set).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{error}");
        output
    }

    pub(super) fn config(&self) -> PathBuf {
        self.folder.path().join("run.toml")
    }

    pub(super) fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    pub(super) fn trial(&self, task: &str) -> PathBuf {
        self.out().join(format!("trials/step_0000/{task}__00"))
    }

    fn read(&self, task: &str, file: &str) -> Value {
        let path = self.trial(task).join(file);
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }
}

#[test]
fn a_trial_leaves_its_result_its_trajectory_and_what_is_to_be_kept() {
    let rollout = Rollout::new("plain", "echo 0\n", "echo 'echo 1' > report; echo written");
    rollout.run(&["sandbox.keep=always"]);
    let result = rollout.read("plain", "result.json");
    assert_eq!(result["trial_name"], "plain__00");
    assert_eq!(result["outcome"], "completed");
    assert_eq!(result["reward"], 1.0);
    assert_eq!(result["verifier_result"]["rewards"]["reward"], 1.0);
    assert!(result["agent_result"]["n_output_tokens"].as_u64().unwrap() > 0);
    assert_eq!(result["task_checksum"].as_str().unwrap().len(), 64);
    for span in ["environment_setup", "agent_execution", "verifier"] {
        let (from, to) = (&result[span]["started_at"], &result[span]["finished_at"]);
        assert!(from.as_str().unwrap() <= to.as_str().unwrap(), "{span}");
    }
    let schema = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schemas/trial-result.schema.json");
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(schema).unwrap()).unwrap();
    assert!(jsonschema::is_valid(&schema, &result));

    let trajectory = rollout.read("plain", "trajectory.json");
    assert_eq!(
        trajectory,
        rollout.read("plain", "agent/trajectory.json"),
        "where Harbor looks"
    );
    let steps = trajectory["steps"].as_array().unwrap();
    let sources: Vec<&str> = steps.iter().map(|step| step["source"].as_str().unwrap()).collect();
    assert_eq!(sources, ["system", "user", "agent", "agent"]);
    assert_eq!(steps[2]["observation"]["results"][0]["content"], "written");
    assert_eq!(steps[3]["message"], "done");
    let kept = std::fs::read_to_string(rollout.trial("plain").join("workdir/report")).unwrap();
    assert_eq!(kept, "echo 1\n");
}

#[test]
fn breaking_the_tests_is_graded_zero_and_a_broken_task_is_not_graded() {
    let sabotage = Rollout::new("sabotage", "echo 0\n", "echo 'echo nan' > report");
    sabotage.run(&[]);
    let result = sabotage.read("sabotage", "result.json");
    assert_eq!(
        (&result["outcome"], &result["reward"]),
        (&json!("completed"), &json!(0.0))
    );
    let flag = result["hack_flags"][0].as_str().unwrap();
    assert!(
        flag.starts_with("verifier_prevented") && flag.contains("finite"),
        "{flag}"
    );
    assert!(!sabotage.trial("sabotage").join("workdir").exists());

    let broken = Rollout::new("broken", "echo nan\n", "touch worked");
    broken.ends(&["sandbox.keep=failed"], 3);
    let result = broken.read("broken", "result.json");
    assert_eq!(
        (&result["outcome"], &result["reward"]),
        (&json!("verifier_error"), &Value::Null)
    );
    assert_eq!(result["exception_info"]["exception_type"], "VerifierError");
    assert!(broken.trial("broken").join("workdir/worked").exists());
}

#[test]
fn a_limit_that_cannot_be_kept_is_refused() {
    let output = Rollout::new("cores", "echo 0\n", "true")
        .command(&["sandbox.cpus=2"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("sandbox.cpus"), "{error}");
}

/// What the machine holds of a sandbox: processes with the marker, folders and mounts with the task's name.
fn left(marker: &str, task: &str) -> (usize, usize, usize) {
    let processes = std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(Result::ok)
        .filter(|entry| {
            std::fs::read(entry.path().join("cmdline"))
                .is_ok_and(|line| line.starts_with(b"sleep\0") && line.ends_with(format!("\0{marker}\0").as_bytes()))
        });
    let scratch = lego::pipeline::StackOptions::here(PathBuf::new()).scratch;
    let folders = std::fs::read_dir(scratch).map_or(0, |entries| {
        let names = entries.filter_map(Result::ok).map(|entry| entry.file_name());
        names.filter(|name| name.to_string_lossy().contains(task)).count()
    });
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    (
        processes.count(),
        folders,
        mounts.lines().filter(|line| line.contains(task)).count(),
    )
}

/// Starts a rollout whose agent sleeps, and waits until it does.
fn asleep(rollout: &Rollout, marker: &str, task: &str) -> Child {
    let child = rollout.command(&[]).spawn().unwrap();
    let deadline = Instant::now() + Duration::from_mins(1);
    while left(marker, task).0 == 0 {
        assert!(Instant::now() < deadline, "the agent did not start");
        std::thread::sleep(Duration::from_millis(20));
    }
    child
}

fn interrupt(child: &Child) {
    let script = format!("kill -INT {}", child.id());
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
}

#[test]
fn nothing_of_a_sandbox_remains_after_two_interrupts_or_a_kill() {
    let own = std::process::id();
    let (marker, task) = (format!("87{own:07}"), format!("ended{own}"));
    let rollout = Rollout::new(
        &task,
        "echo 0\n",
        &format!("(setsid sleep {marker} &) ; sleep {marker}"),
    );

    let mut child = asleep(&rollout, &marker, &task);
    interrupt(&child);
    std::thread::sleep(Duration::from_millis(300));
    assert!(
        child.try_wait().unwrap().is_none(),
        "the first interrupt lets trials end"
    );
    interrupt(&child);
    let ended = child.wait_with_output().unwrap();
    assert_eq!(ended.status.code(), Some(130));
    assert_eq!(left(&marker, &task), (0, 0, 0), "after two interrupts");
    let said = String::from_utf8_lossy(&ended.stderr);
    let at = |text: &str| said.find(text).unwrap_or_else(|| panic!("no `{text}` in {said}"));
    assert!(at("stopping: waits for trials that run; a second signal stops at once") < at("\nstopped at once"));

    let mut child = asleep(&rollout, &marker, &task);
    child.kill().unwrap();
    child.wait().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    while left(&marker, &task).0 > 0 {
        assert!(Instant::now() < deadline, "processes outlived their owner");
        std::thread::sleep(Duration::from_millis(20));
    }
    let mut reap = Command::new(env!("CARGO_BIN_EXE_lego"));
    let reaped = reap
        .args(["rollout", "--reap"])
        .arg(rollout.folder.path().join("run.toml"))
        .output()
        .unwrap();
    assert!(reaped.status.success());
    assert!(
        String::from_utf8_lossy(&reaped.stdout).contains(&task),
        "what was removed is named"
    );
    assert_eq!(left(&marker, &task), (0, 0, 0), "after a kill and the next start");
}

#[test]
fn the_oracle_solves_a_task_and_nothing_does_not() {
    for (scaffold, reward) in [("oracle", 1.0), ("nop", 0.0)] {
        let rollout = Rollout::new("plain", "cat answer 2>/dev/null || echo 0\n", "true");
        rollout.solved_by("echo 1 > answer");
        rollout.run(&[&format!("scaffold.name={scaffold}")]);
        assert_eq!(rollout.read("plain", "result.json")["reward"], reward, "{scaffold}");
    }
}

#[test]
fn tests_that_are_killed_behind_a_planted_reward_give_none() {
    let report = "echo 1 >\"${LEGO_LOGS_DIR:-/logs}/verifier/reward.txt\"; kill -9 $PPID";
    let rollout = Rollout::new("sabotaged", "echo 0\n", &format!("cat > report <<'E'\n{report}\nE"));
    rollout.run(&[]);
    let result = rollout.read("sabotaged", "result.json");
    assert_eq!(result["reward"], 0.0, "{result}");
    assert!(result.to_string().contains("verifier_prevented"), "{result}");
}

/// Three trials end at once, the fourth would sleep on.
#[test]
fn a_straggler_is_cancelled_once_the_others_have_ended() {
    let rollout = Rollout::new("tail", "echo 1", "true");
    rollout.solved_by("mkdir \"${TMPDIR:-/tmp}/x\"; exec sleep \"$(cat seconds 2>/dev/null || echo 0)\"");
    let path = rollout.folder.path().join("tasks.jsonl");
    let record: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let mut slow = record.clone();
    slow["instance_id"] = json!("slow");
    slow["files"]["seconds"] = json!("3000");
    std::fs::write(&path, format!("{slow}\n{record}\n")).unwrap();
    let began = Instant::now();
    rollout.run(&[
        "scaffold.name=oracle",
        "rollout.group_size=2",
        "sandbox.concurrency=4",
        "rollout.tail_kill={min_trials=4, share=0.5, grace=\"1s\"}",
    ]);
    assert!(began.elapsed() < Duration::from_mins(5));
    assert_eq!(rollout.read("tail", "result.json")["outcome"], "completed");
    let late = rollout.read("slow", "result.json");
    assert_eq!(late["outcome"], "cancelled");
    assert_eq!(late["reward"], Value::Null);
    let said = late["exception_info"]["exception_message"].as_str().unwrap();
    assert!(said.contains("rollout.tail_kill.grace"), "{said}");
}
