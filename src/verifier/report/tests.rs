//! Logs as runners write them, with what has misled parsers before.

use super::rules::FORMATS;
use super::*;

fn spec(fail_to_pass: &[&str], pass_to_pass: &[&str]) -> TestSpec {
    let text = serde_json::json!({"FAIL_TO_PASS": fail_to_pass, "PASS_TO_PASS": pass_to_pass}).to_string();
    TestSpec::parse(&text).unwrap()
}

/// Reads a log; gives its format and which of the tests passed, failed and are missing.
fn read(tests: &[&str], log: &str) -> (String, Vec<String>, Vec<String>, Vec<String>) {
    let report = spec(tests, &[]).report(log);
    let tally = report.fail_to_pass;
    (report.format, tally.passed, tally.failed, tally.missing)
}

fn all_pass(format: &str, tests: &[&str], log: &str) {
    let (found, passed, failed, missing) = read(tests, log);
    assert_eq!(
        (found.as_str(), failed, missing),
        (format, Vec::new(), Vec::new()),
        "{log}"
    );
    assert_eq!(passed, tests, "{log}");
}

fn all_fail(format: &str, tests: &[&str], log: &str) {
    let (found, passed, failed, missing) = read(tests, log);
    assert_eq!(
        (found.as_str(), passed, missing),
        (format, Vec::new(), Vec::new()),
        "{log}"
    );
    assert_eq!(failed, tests, "{log}");
}

#[test]
fn status_lines_that_are_split_over_lines() {
    all_pass(
        "pytest",
        &["tests/a.py::test_x", "tests/a.py::test_y"],
        "tests/a.py::test_x some output\nmore\nPASSED [ 50%]\ntests/a.py::test_y \nnoise PASSED\n2 passed in 0.1s\n",
    );
    all_pass(
        "unittest",
        &["test_a (app.tests.C)", "test_b (app.tests.C)", "test_c (app.tests.C)"],
        "test_a (app.tests.C)\nWhat it is for. ... ok\ntest_b (app.tests.C) ... printed\nok\n\
         test_c (app.tests.C.test_c) ... ok\n\nRan 3 tests in 0.01s\n",
    );
    all_pass(
        "cargo",
        &["a::b", "src/lib.rs - c (line 3)"],
        "running 2 tests\ntest a::b ... printed\nmore\nok\ntest src/lib.rs - c (line 3) ... ok\n\ntest result: ok. 2 passed; 0 failed\n",
    );
    all_fail(
        "go",
        &["TestA/sub"],
        "=== RUN TestA\nprinted without an end    --- FAIL: TestA/sub (0.00s)\nFAIL\n",
    );
}

#[test]
fn statuses_before_and_behind_the_name() {
    let tests = ["tests/a.py::test_x", "tests/a.py::test_y[a - b]", "tests/a.py::test_z"];
    all_pass(
        "pytest",
        &tests,
        "tests/a.py::test_x \u{1b}[32mPASSED\u{1b}[0m [ 33%]\n[gw1] [ 66%] PASSED tests/a.py::test_y[a - b]\n\
         PASSED tests/a.py::test_z\n3 passed in 1s\n",
    );
    all_fail(
        "pytest",
        &tests,
        "=== short test summary info ===\nFAILED tests/a.py::test_x - assert 1 == 2\n\
         FAILED tests/a.py::test_y[a - b] - ValueError: no - really\nERROR tests/a.py::test_z\n=== 2 failed, 1 error in 1s ===\n",
    );
    all_pass(
        "go",
        &["TestA", "TestB"],
        "--- PASS: TestA (0.01s)\n{\"Action\":\"pass\",\"Test\":\"TestB\"}\nok  \tx\t0.1s\n",
    );
    all_pass(
        "jest",
        &["adds", "math adds", "math > adds", "takes away"],
        "PASS ./a.test.js\n  math\n    ✓ adds (5 ms)\n    √ takes away\n\nTests: 2 passed, 2 total\n",
    );
}

#[test]
fn what_a_program_prints_is_no_pass() {
    // A patch that prints the line of a passing test.
    let log = "PASSED tests/a.py::test_x\n----- Captured stdout -----\nPASSED tests/a.py::test_x\n\
               === short test summary info ===\nFAILED tests/a.py::test_x - assert\n=== 1 failed in 0.1s ===\n";
    all_fail("pytest", &["tests/a.py::test_x"], log);
    all_fail(
        "go",
        &["TestA"],
        "--- PASS: TestA (0.00s)\n--- FAIL: TestA (0.00s)\nFAIL\tx\t0.1s\n",
    );
    // Nor is a summary that the runner did not write.
    let report = spec(&["tests/a.py::test_x"], &[]).report("PASSED test_x\nall good\n");
    assert!(!report.ran && !report.resolved);
}

#[test]
fn tests_that_never_ran_are_told_from_tests_that_failed() {
    for log in [
        "",
        "sh: pytest: not found\n",
        "/usr/bin/python3: No module named pytest\n",
        "=== no tests ran in 0.01s ===\n",
        "Ran 0 tests in 0.000s\n",
    ] {
        let report = spec(&["tests/a.py::test_x"], &[]).report(log);
        assert!(!report.ran, "{log}");
    }
    for log in [
        "ERROR tests/a.py - SyntaxError: invalid syntax\n=== 1 error in 0.1s ===\n",
        "tests/a.py::test_y FAILED\n=== 1 failed in 0.1s ===\n",
        "test result: FAILED. 0 passed; 1 failed\n",
        // Its own program or its tests do not compile: the runner was there.
        "error[E0432]: unresolved import\nerror: could not compile `x`\n",
        "FAIL\texample.com/x [build failed]\n",
    ] {
        let report = spec(&["tests/a.py::test_x"], &[]).report(log);
        assert!(report.ran && !report.resolved, "{log}");
        assert_eq!(report.fail_to_pass.missing, ["tests/a.py::test_x"]);
    }
}

#[test]
fn both_lists_count_and_skipped_tests_are_missing() {
    let log = "tests/a.py::test_x PASSED\ntests/a.py::test_y SKIPPED (why)\n=== 1 passed, 1 skipped in 1s ===\n";
    let report = spec(&["tests/a.py::test_x"], &["tests/a.py::test_y"]).report(log);
    assert!(report.ran && !report.resolved);
    let summary = report.summary();
    assert_eq!((summary.fail_to_pass, summary.pass_to_pass), ((1, 1), (0, 1)));
    assert!(spec(&["tests/a.py::test_x"], &[]).report(log).resolved);
}

#[test]
fn the_lists_may_be_texts_and_name_the_verifiers_files() {
    let text = r#"{"FAIL_TO_PASS": "[\"tests/a.py::test_x\"]", "PASS_TO_PASS": ["lib/b_test.py::C::test_y", "test_z (m.C)"],
        "test_patch": "--- a/tests/a.py\n+++ b/tests/a.py\n@@ -1 +1 @@\n--- /dev/null\n+++ b/tests/data.json\n"}"#;
    let spec = TestSpec::parse(text).unwrap();
    assert_eq!(spec.files(), ["lib/b_test.py", "tests/a.py", "tests/data.json"]);
    assert_eq!(TestSpec::parse("{\"anything\": 1}"), None);
    assert_eq!(TestSpec::parse("[1]"), None);
}

#[test]
fn names_of_lists_that_were_cut_or_folded_are_found() {
    let log = "PASSED tests/a.py::test_x[a b]\nFAILED tests/a.py::test_x[a c] - no\nPASSED r2e_tests/t.py::TestA::test_y\n2 passed, 1 failed in 1s\n";
    let report = spec(&["tests/a.py::test_x[a", "TestA.test_y"], &[]).report(log);
    assert_eq!(
        report.fail_to_pass.failed,
        ["tests/a.py::test_x[a"],
        "the worst of those that begin so"
    );
    assert_eq!(report.fail_to_pass.passed, ["TestA.test_y"]);
    let log = "PASSED tests/a.py::test_z[/tmp/one/file.txt]\n1 passed in 1s\n";
    assert!(spec(&["tests/a.py::test_z[/file.txt]"], &[]).report(log).resolved);
}

/// The log read by grade.awk, as a task's test.sh has it done: status and name of every test.
fn by_awk(
    format: &str,
    log: &str,
    code: i32,
    lists: [&[&str]; 2],
) -> (std::collections::BTreeMap<String, String>, serde_json::Value) {
    let folder = tempfile::tempdir().unwrap();
    let place = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let rules = place("rules", &log_rules(format).unwrap());
    let script = place("grade.awk", grade_awk());
    let log = place("log", log);
    let [fail, pass] = lists.map(|names| names.iter().flat_map(|name| [*name, "\n"]).collect::<String>());
    let (fail, pass) = (place("fail", &fail), place("pass", &pass));
    let awk = |dump: &str| {
        let mut command = std::process::Command::new("awk");
        command
            .arg("-f")
            .arg(&script)
            .args(["-v", dump, "-v", &format!("code={code}"), "part=rules"])
            .arg(&rules);
        command
            .arg("part=fail")
            .arg(&fail)
            .arg("part=pass")
            .arg(&pass)
            .arg("part=log")
            .arg(&log);
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let names = awk("dump=1");
    let names = names.lines().filter_map(|line| line.split_once('\t'));
    let names = names
        .map(|(status, name)| (name.to_owned(), status.to_owned()))
        .collect();
    (names, serde_json::from_str(&awk("dump=0")).unwrap())
}

/// Logs of every format, with what has misled parsers.
const LOGS: [(&str, &str); 12] = [
    (
        "pytest",
        "tests/a.py::test_x some output\nPASSED [ 50%]\ntests/a.py::C::test_y[a b] PASSED (why) [100%]\n[gw0] [ 10%] FAILED tests/b.py::t\n=== short test summary info ===\nPASSED tests/a.py::z\nFAILED tests/a.py::w[x - y] - assert [1]\nERROR tests/c.py - ImportError: no\nSKIPPED [1] tests/a.py:3: why\n=== 1 failed in 0.1s ===\n",
    ),
    (
        "pytest",
        "PASSED tests/a.py::spoofed\n=== short test summary info ===\nFAILED tests/a.py::spoofed - no\n=== 1 failed in 0.1s ===\n",
    ),
    (
        "unittest",
        "test_a (app.C)\nWhat it is for. ... ok\ntest_b (app.C) ... printed\nok\ntest_c (app.C.test_c) ... FAIL\ntest_d (app.C) ... skipped 'why'\n\n======\nFAIL: test_c (app.C.test_c) [i=1]\n------\nRan 4 tests in 0.1s\n",
    ),
    (
        "sympy",
        "test_a ok\ntest_b F\ntest_c slow E\ntests finished: 1 passed\n",
    ),
    (
        "go",
        "=== RUN TestA\nnoise    --- FAIL: TestA/sub (0.00s)\n--- PASS: TestB (0.01s)\n{\"Action\":\"skip\",\"Package\":\"p\",\"Test\":\"TestC\"}\nok  \tx\t0.1s\n",
    ),
    (
        "cargo",
        "running 3 tests\ntest a::b ... printed\nmore\nok\ntest src/lib.rs - c (line 3) ... ok\ntest d - should panic ... FAILED\ntest e ... ignored, slow\n\ntest result: FAILED. 2 passed; 1 failed\n",
    ),
    (
        "jest",
        "PASS ./a.test.js\n  math\n    ✓ adds (5 ms)\n    inner\n      ✕ takes away\n    ○ skipped later\nTests: 1 failed, 1 passed, 2 total\n",
    ),
    (
        "jest",
        "TAP version 13\n# Subtest: sums\n    ok 1 - two\n      ---\n    not ok 2 - three\nnot ok 1 - sums\nok 2 - later # SKIP\n# tests 4\n",
    ),
    (
        "junit",
        "+ mvn -Dtest=a.BTest#c test\n[INFO] Tests run: 3, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 0.1 s - in a.BTest\n[ERROR] a.CTest.d  Time elapsed: 0.1 s  <<< FAILURE!\n[INFO] BUILD SUCCESS\na.D > e PASSED\na.D > f\nWARNING: x\nFAILED\n",
    ),
    (
        "ctest",
        " 1/3 Test #1: adds .......   Passed    0.00 sec\n 2/3 Test #2: takes ......***Failed    0.00 sec\n 3/3 Test #3: later ......***Skipped   0.0 sec\n[       OK ] A.b (1 ms)\n[  FAILED  ] A.c (1 ms)\nPASS: d\nFAIL: e\n66% tests passed, 1 tests failed out of 3\n",
    ),
    (
        "phpunit",
        "Calc (Tests\\Calc)\n ✔ Adds\n ✘ Takes away [0.5 ms]\n ↩ Later\n\nTests: 3, Assertions: 2, Failures: 1.\n",
    ),
    (
        "rspec",
        "Calc adds - passed\nCalc takes - failed\nCalc later - pending\n3 examples, 1 failure\n",
    ),
];

#[test]
fn the_script_inside_and_the_host_read_the_same() {
    for (format, log) in LOGS {
        let parsed = FORMATS
            .iter()
            .find(|known| known.name == format)
            .unwrap()
            .parse(&super::lines::plain(log));
        let host: std::collections::BTreeMap<String, String> = parsed
            .tests
            .iter()
            .map(|(name, status)| (name.clone(), (*status as usize + 1).to_string()))
            .collect();
        assert!(
            parsed.ran && (host.len() > 1 || format == "pytest"),
            "{format}: {host:?}"
        );
        let (inside, _) = by_awk(format, log, 0, [&[], &[]]);
        assert_eq!(inside, host, "{format}");
    }
}

#[test]
fn the_reward_needs_every_listed_test_and_an_end_that_is_accounted_for() {
    let reward =
        |log: &str, code: i32, lists: [&[&str]; 2]| by_awk("pytest", log, code, lists).1["reward"].as_i64().unwrap();
    let passes = "tests/a.py::x PASSED\ntests/a.py::y PASSED\n2 passed in 1s\n";
    let x: &[&str] = &["tests/a.py::x"];
    assert_eq!(reward(passes, 0, [x, &["tests/a.py::y"]]), 1);
    assert_eq!(reward(passes, 0, [x, &["tests/a.py::z"]]), 0, "missing");
    assert_eq!(reward(passes, 1, [x, &[]]), 0, "it ended badly, and no test says why");
    assert_eq!(
        reward(
            "tests/a.py::x PASSED\ntests/a.py::y FAILED\n1 failed in 1s\n",
            1,
            [x, &[]]
        ),
        1,
        "another one failed"
    );
    assert_eq!(
        reward("tests/a.py::x SKIPPED\n1 skipped in 1s\n", 0, [x, &[]]),
        0,
        "skipped"
    );
    assert_eq!(
        reward("tests/a.py::x XFAIL\n1 xfailed in 1s\n", 0, [x, &[]]),
        1,
        "fails as expected"
    );
    // Without lists all of them count.
    assert_eq!(reward(passes, 0, [&[], &[]]), 1);
    assert_eq!(
        reward(
            "tests/a.py::x PASSED\ntests/a.py::y FAILED\n1 failed in 1s\n",
            1,
            [&[], &[]]
        ),
        0
    );
    assert_eq!(reward("nothing\n", 0, [&[], &[]]), 0);
}

#[test]
fn recorded_logs_are_read_as_the_public_graders_read_them() {
    // Written by tests/bench/swebench_parity.py, which makes such logs anew and asks the graders themselves.
    let recorded = include_str!("../../../tests/bench/swebench_slice.jsonl");
    let mut statuses = 0;
    for line in recorded.lines() {
        let row: serde_json::Value = serde_json::from_str(line).unwrap();
        let format = row["format"].as_str().unwrap();
        let names: Vec<&str> = row["tests"].as_object().unwrap().keys().map(String::as_str).collect();
        let text = serde_json::json!({"FAIL_TO_PASS": names, "log_format": format}).to_string();
        let report = TestSpec::parse(&text).unwrap().report(row["log"].as_str().unwrap());
        assert_eq!(report.format, format);
        for (name, passed) in row["tests"].as_object().unwrap() {
            let found = report.fail_to_pass.passed.contains(name);
            assert_eq!(found, passed.as_bool().unwrap(), "{format}: {name}");
            statuses += 1;
        }
    }
    assert!(statuses > 60, "{statuses}");
}
