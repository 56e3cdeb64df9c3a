//! Logs as runners write them, with what has misled parsers before.

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
        "error[E0432]: unresolved import\nerror: could not compile `x`\n",
    ] {
        let report = spec(&["tests/a.py::test_x"], &[]).report(log);
        assert!(!report.ran, "{log}");
    }
    for log in [
        "ERROR tests/a.py - SyntaxError: invalid syntax\n=== 1 error in 0.1s ===\n",
        "tests/a.py::test_y FAILED\n=== 1 failed in 0.1s ===\n",
        "test result: FAILED. 0 passed; 1 failed\n",
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
