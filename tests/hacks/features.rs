//! What task.toml can ask of a trial beside its tests: steps, artifacts, a sandbox for the tests, reports, repeats.

use serde_json::{Value, json};

use crate::played::{Ended, Place, Play, Played, is_possible, play};
use crate::tasks::{FIX, TaskFiles};

const REWARD: &str = "logs=${LEGO_LOGS_DIR:-/logs}/verifier\n";

fn task(toml: &str, test: &str) -> TaskFiles {
    let mut task = TaskFiles::calculator();
    toml.clone_into(&mut task.toml);
    task.tests = vec![("test.sh".to_owned(), format!("{REWARD}{test}"))];
    task
}

async fn played(plays: Vec<Play>, set: &[&str]) -> Option<Played> {
    if !is_possible(Place::Namespaces).await {
        return None;
    }
    Some(play(Place::Namespaces, plays, set).await)
}

fn file(ended: &Ended, path: &str) -> String {
    std::fs::read_to_string(ended.folder.join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn only_changes_and_artifacts_cross_into_a_sandbox_of_the_tests() {
    let toml = "artifacts = [\"/tmp/out\", { source = \"/tmp/log\", destination = \"kept/log.txt\" }, \"/nowhere\"]\n\
        [metadata]\nverifier_files = [\"golden.txt\"]\n[verifier]\nenvironment_mode = \"separate\"\ntimeout_sec = 20\n\
        env = { KIND = \"${LEGO_NO_SUCH_VARIABLE:-plain}\" }\n\
        [[verifier.collect]]\ncommand = \"mkdir -p /tmp/out; cp /root/state /tmp/out/state; echo from the memory > /tmp/log\"\n\
        [[verifier.collect]]\ncommand = \"sleep 30\"\ntimeout_sec = 0.2\n";
    let test = "ok=1
        [ \"$(cat added/file)\" = added ] && [ ! -e README.md ] && [ \"$(cat golden.txt)\" = 5 ] || ok=0
        [ \"$(sh ./add.sh 2 3)\" = 5 ] && [ -x added/run ] && [ \"$(readlink added/link)\" = file ] || ok=0
        [ \"$(cat /tmp/out/state)\" = state ] && [ \"$(cat /tmp/log)\" = 'from the memory' ] && [ \"$KIND\" = plain ] || ok=0
        [ ! -e /root/state ] && [ ! -e /tmp/other ] && [ ! -e escaped ] && [ ! -e folder-link/x ] || ok=0
        echo $ok >\"$logs/reward.txt\"\n";
    let work = "mkdir added; echo added > added/file; ln -s file added/link; echo true > added/run; chmod +x added/run; rm README.md; \
        echo 9 > golden.txt; echo state > /root/state; echo other > /tmp/other; ln -s /etc/hostname escaped; ln -s /tmp folder-link; \
        echo published > /logs/artifacts/page";
    let plays = vec![Play::new("separate", task(toml, test), &[FIX, work])];
    let Some(played) = played(plays, &[]).await else { return };
    let ended = &played.ended["separate"];
    assert_eq!(
        ended.reward,
        Some(1.0),
        "{}{}",
        ended.result,
        file(ended, "verifier/test-stdout.txt")
    );
    assert_eq!(ended.result["verifier_environment_mode"], "separate");
    assert_eq!(ended.flags, ["protected_files_changed", "links_out_of_workdir"]);
    assert_eq!(file(ended, "artifacts/tmp/out/state"), "state\n");
    assert_eq!(file(ended, "artifacts/kept/log.txt"), "from the memory\n");
    assert_eq!(file(ended, "artifacts/logs/artifacts/page"), "published\n");
    let manifest: Value = serde_json::from_str(&file(ended, "artifacts/manifest.json")).unwrap();
    let statuses: Vec<(&str, &str)> = manifest
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| (entry["source"].as_str().unwrap(), entry["status"].as_str().unwrap()))
        .collect();
    assert_eq!(
        statuses,
        [
            ("/logs/artifacts", "ok"),
            ("/tmp/out", "ok"),
            ("/tmp/log", "ok"),
            ("/nowhere", "failed")
        ]
    );
}

/// A task of three steps, each of which wants one more line in `steps.txt`.
fn steps(strategy: &str, least: &str) -> TaskFiles {
    let mut task = TaskFiles::calculator();
    task.toml = format!(
        "multi_step_reward_strategy = \"{strategy}\"\n[verifier]\ntimeout_sec = 20\n[[steps]]\nname = \"one\"\n{least}\
         [[steps]]\nname = \"two\"\n[steps.healthcheck]\ncommand = \"test -f prepared\"\nretries = 1\n[[steps]]\nname = \"three\"\n"
    );
    task.files.push(("steps.txt".to_owned(), String::new()));
    task
}

fn write_steps(task: TaskFiles) -> TaskFiles {
    let mut task = task;
    let test = format!(
        "#!/bin/sh\n{REWARD}[ -e /tests/only-one ] && [ \"$(cat /tests/step)\" != one ] && exit 1\n\
         n=$(grep -c \"$(cat /tests/step)\" steps.txt)\nprintf '{{\"reward\": %s, \"lines\": %s}}' $n $(wc -l < steps.txt) >\"$logs/reward.json\"\n"
    );
    task.tests = vec![("test.sh".to_owned(), test)];
    for step in ["one", "two", "three"] {
        let below = |path: &str| format!("../steps/{step}/{path}");
        task.tests.push((below("instruction.md"), format!("Write {step}.\n")));
        task.tests.push((below("tests/step"), format!("{step}\n")));
    }
    task.tests
        .push(("../steps/one/tests/only-one".to_owned(), String::new()));
    task.tests.push((
        "../steps/two/workdir/setup.sh".to_owned(),
        "touch prepared\n".to_owned(),
    ));
    // What a step itself brings is none of the agent's doing.
    let hook = "def pytest_runtest_makereport(item, call):\n    rep.outcome = 'passed'\n";
    task.tests
        .push(("../steps/two/workdir/conftest.py".to_owned(), hook.to_owned()));
    task
}

#[tokio::test(flavor = "multi_thread")]
async fn steps_are_worked_on_and_judged_one_after_the_other() {
    let play = |name: &str, strategy: &str, least: &str| Play {
        later: vec![
            ("Write two.", "ls -A /tests /logs/verifier; echo nothing"),
            ("Write three.", "echo three >> steps.txt"),
        ],
        ..Play::new(name, write_steps(steps(strategy, least)), &["echo one >> steps.txt"])
    };
    let plays = vec![
        play("mean", "mean", ""),
        play("final", "final", ""),
        play("reached", "mean", "min_reward = 1\n"),
        play("not-reached", "mean", "min_reward = { lines = 2 }\n"),
    ];
    let Some(played) = played(plays, &[]).await else { return };
    let rewards = |name: &str| {
        let ended = &played.ended[name];
        let steps = ended.result["step_results"].as_array().unwrap();
        let of = |step: &Value| step["verifier_result"]["rewards"]["reward"].as_f64().unwrap();
        (ended.reward.unwrap(), steps.iter().map(of).collect::<Vec<_>>())
    };
    let (mean, each) = rewards("mean");
    assert!(
        (mean - 2.0 / 3.0).abs() < 1e-6 && each == [1.0, 0.0, 1.0],
        "{mean} {each:?}"
    );
    assert_eq!(rewards("final"), (1.0, vec![1.0, 0.0, 1.0]));
    assert_eq!(rewards("reached").1.len(), 3);
    assert_eq!(rewards("not-reached"), (1.0, vec![1.0]));
    let ended = &played.ended["mean"];
    let mean_lines = ended.result["verifier_result"]["rewards"]["lines"].as_f64().unwrap();
    assert!((mean_lines - 4.0 / 3.0).abs() < 1e-6, "{mean_lines}");
    assert_eq!(ended.result["verifier_environment_mode"], Value::Null);
    assert_eq!(ended.flags, Vec::<String>::new());
    for step in ["one", "two", "three"] {
        assert!(
            ended
                .folder
                .join(format!("steps/{step}/verifier/reward.json"))
                .is_file(),
            "{step}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_oracle_solves_each_step_by_its_own_solution() {
    let mut task = write_steps(steps("mean", "min_reward = 1\n"));
    for step in ["one", "two", "three"] {
        let solve = format!("#!/bin/sh\necho {step} >> steps.txt\n");
        task.tests.push((format!("../steps/{step}/solution/solve.sh"), solve));
    }
    let plays = vec![Play::new("oracle", task, &[])];
    let Some(played) = played(plays, &["scaffold.name=oracle"]).await else {
        return;
    };
    let ended = &played.ended["oracle"];
    assert_eq!(ended.reward, Some(1.0), "{}", ended.result);
    assert_eq!(ended.result["step_results"].as_array().unwrap().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_environment_that_is_not_ready_has_no_agent() {
    let toml = |command: &str| {
        format!(
            "[environment.healthcheck]\ncommand = \"{command}\"\nretries = 2\ninterval_sec = 0.05\nstart_period_sec = 0\n"
        )
    };
    let pass = "echo 1 >\"$logs/reward.txt\"\n";
    let late = "n=$(cat /tmp/n 2>/dev/null || echo 0); echo $((n + 1)) > /tmp/n; [ $n -ge 1 ]";
    let plays = vec![
        Play::new("ready", task(&toml("test -f add.sh"), pass), &["true"]),
        Play::new("late", task(&toml(late), pass), &["true"]),
        Play::new("never", task(&toml("false"), pass), &["true"]),
    ];
    let Some(played) = played(plays, &[]).await else { return };
    assert_eq!(played.ended["ready"].reward, Some(1.0));
    assert_eq!(played.ended["late"].reward, Some(1.0));
    let never = &played.ended["never"];
    assert_eq!((never.outcome.as_str(), never.reward), ("env_setup_failed", None));
    let said = never.result["exception_info"]["exception_message"].as_str().unwrap();
    assert!(said.contains("`false` failed 2 times"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_no_tests_is_told_from_tests_that_failed() {
    let with_lists = |test: &str| {
        let mut task = task("[verifier]\ntimeout_sec = 20\n", test);
        let lists =
            json!({"FAIL_TO_PASS": ["tests/test_calc.py::test_a"], "PASS_TO_PASS": ["tests/test_calc.py::test_b"]});
        task.tests.push(("config.json".to_owned(), lists.to_string()));
        task
    };
    let log = |status: &str| {
        format!(
            "echo 'tests/test_calc.py::test_a {status}'\necho 'tests/test_calc.py::test_b PASSED'\necho '=== 2 tests in 0.01s ==='\n"
        )
    };
    let failed = format!("{}echo 0 >\"$logs/reward.txt\"\n", log("FAILED"));
    let passed = format!("{}echo 1 >\"$logs/reward.txt\"\n", log("PASSED"));
    let contradicts = format!("{}echo 1 >\"$logs/reward.txt\"\n", log("FAILED"));
    let broken_by_work = format!(
        "if grep -q broken add.sh; then echo SyntaxError; else\n{}fi\necho 0 >\"$logs/reward.txt\"\n",
        log("FAILED")
    );
    let plays = vec![
        Play::new("failed", with_lists(&failed), &["true"]),
        Play::new("passed", with_lists(&passed), &["true"]),
        Play::new("contradicts", with_lists(&contradicts), &["true"]),
        Play::new(
            "no-runner",
            with_lists("echo 'sh: pytest: not found'\necho 0 >\"$logs/reward.txt\"\n"),
            &["true"],
        ),
        Play::new("broken-by-work", with_lists(&broken_by_work), &["echo broken > add.sh"]),
    ];
    let Some(played) = played(plays, &[]).await else { return };
    let of = |name: &str| {
        let ended = &played.ended[name];
        (ended.outcome.as_str(), ended.reward, ended.flags.join(","))
    };
    assert_eq!(of("failed"), ("completed", Some(0.0), String::new()));
    assert_eq!(of("passed"), ("completed", Some(1.0), String::new()));
    assert_eq!(
        of("contradicts"),
        ("completed", Some(1.0), "report_disagrees".to_owned())
    );
    assert_eq!(of("no-runner").0, "verifier_error");
    assert_eq!(of("no-runner").1, None);
    assert_eq!(of("broken-by-work"), ("completed", Some(0.0), String::new()));
    let summary = &played.ended["failed"].result["test_report"];
    assert_eq!(
        *summary,
        json!({"format": "pytest", "ran": true, "resolved": false, "fail_to_pass": [0, 1], "pass_to_pass": [1, 1]})
    );
    let report: Value = serde_json::from_str(&file(&played.ended["failed"], "verifier/report.json")).unwrap();
    assert_eq!(report["fail_to_pass"]["failed"], json!(["tests/test_calc.py::test_a"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_that_disagree_with_themselves_are_marked() {
    let flaky = "n=$(cat /tmp/n 2>/dev/null || echo 0); echo $((n + 1)) > /tmp/n; [ $n -eq 1 ] && r=0 || r=1\necho $r >\"$logs/reward.txt\"\n";
    let steady = "echo 1 >\"$logs/reward.txt\"\n";
    let plays = vec![
        Play::new("flaky", task("", flaky), &["true"]),
        Play::new("steady", task("", steady), &["true"]),
    ];
    let Some(played) = played(plays, &["verifier.repeats=3"]).await else {
        return;
    };
    let of = |name: &str| {
        let result = &played.ended[name].result;
        (
            result["flaky"].clone(),
            result["verifier_runs"].clone(),
            result["reward"].clone(),
        )
    };
    assert_eq!(of("flaky"), (json!(true), json!([1.0, 0.0, 1.0]), json!(1.0)));
    assert_eq!(of("steady"), (json!(false), json!([1.0, 1.0, 1.0]), json!(1.0)));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_decides_what_evidence_does() {
    let hacks = || {
        let pass = "echo 1 >\"$logs/reward.txt\"\n";
        vec![
            Play::new("sure", task("", pass), &["echo import os > sitecustomize.py"]),
            Play::new("unsure", task("", pass), &["ln -s /etc out"]),
            Play::new("clean", task("", pass), &["true"]),
        ]
    };
    for (policy, expected) in [
        (None, [Some(0.0), Some(1.0), Some(1.0)]),
        (Some("flag"), [Some(1.0), Some(1.0), Some(1.0)]),
        (Some("zero_reward"), [Some(0.0), Some(0.0), Some(1.0)]),
    ] {
        let set: Vec<String> = policy
            .iter()
            .map(|policy| format!("sandbox.hack_policy={policy}"))
            .collect();
        let set: Vec<&str> = set.iter().map(String::as_str).collect();
        let Some(played) = played(hacks(), &set).await else {
            return;
        };
        let rewards = ["sure", "unsure", "clean"].map(|name| played.ended[name].reward);
        assert_eq!(rewards, expected, "{policy:?}");
        assert_eq!(played.ended["sure"].flags, ["interpreter_hook"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_runs_out_of_time_keeps_what_it_earned() {
    let mut task = TaskFiles::calculator();
    task.toml = task.toml.replace("timeout_sec = 60", "timeout_sec = 2");
    let Some(played) = played(vec![Play::new("late", task, &[FIX, "sleep 60"])], &[]).await else {
        return;
    };
    let ended = &played.ended["late"];
    assert_eq!(
        (ended.outcome.as_str(), ended.reward),
        ("timeout", Some(1.0)),
        "{}",
        ended.result
    );
    assert_eq!(ended.flags, Vec::<String>::new());
}
