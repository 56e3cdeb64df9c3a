//! Failures that were reported against other systems, of trials, sandboxes, time and rewards: where each is held.

use std::path::Path;

/// System and issue, file, test. They are checked to exist.
const LINES: &[(&str, &str, &str)] = &[
    // Trials, sandboxes, time.
    (
        "evalscope 1685",
        "commands/tests/sandbox/commands.rs",
        "a_deadline_ends_the_command_and_all_that_it_started",
    ),
    (
        "tinker-cookbook 944",
        "tests/hacks/retries.rs",
        "a_trial_that_is_tried_again_is_tried_alone",
    ),
    (
        "verifiers 1676",
        "src/rollout/trial_spec.rs",
        "the_tasks_own_limit_is_the_only_one",
    ),
    (
        "verifiers 2605",
        "commands/tests/sandbox/lifetime.rs",
        "a_killed_owner_leaves_no_process_and_reap_takes_the_rest",
    ),
    (
        "benchflow 949",
        "tests/hacks/features.rs",
        "only_changes_and_artifacts_cross_into_a_sandbox_of_the_tests",
    ),
    (
        "OpenEnv 1036",
        "commands/tests/sandbox/lifetime.rs",
        "a_lifetime_ends_everything",
    ),
    (
        "AutoGPT 12774",
        "commands/tests/sandbox/lifetime.rs",
        "a_start_that_nobody_waits_for_leaves_nothing",
    ),
    (
        "agent-lightning 218",
        "src/train/update/refusals.rs",
        "an_episode_given_twice_is_refused",
    ),
    (
        "verl 288",
        "commands/tests/sandbox/verifier.rs",
        "a_grader_that_never_ends_is_killed_and_one_that_was_killed_says_so",
    ),
    // Rewards.
    (
        "SWE-bench 465, SWE-bench_Pro 93",
        "tests/hacks/history.rs",
        "no_command_inside_finds_the_fix",
    ),
    (
        "SWE-bench 465, SWE-bench_Pro 93",
        "src/rollout/history/tests.rs",
        "no_store_keeps_the_fix_and_what_is_not_its_history_stays",
    ),
    (
        "SWE-bench 620",
        "src/verifier/report/tests.rs",
        "what_a_program_prints_is_no_pass",
    ),
    (
        "SWE-bench 620",
        "commands/tests/sandbox/verifier.rs",
        "words_are_no_reward_and_exit_codes_neither",
    ),
    (
        "benchflow 1116",
        "tests/hacks/known.rs",
        "no_hack_is_worth_it_where_the_agent_worked",
    ),
    (
        "OpenEnv 1025",
        "tests/pipeline/trials.rs",
        "breaking_the_tests_is_graded_zero_and_a_broken_task_is_not_graded",
    ),
    (
        "marin 8947",
        "tests/hacks/features.rs",
        "an_agent_that_runs_out_of_time_keeps_what_it_earned",
    ),
    (
        "SWE-bench 167, 337, 270",
        "src/verifier/report/tests.rs",
        "status_lines_that_are_split_over_lines",
    ),
    (
        "SWE-bench 167, 337, 270",
        "src/verifier/report/tests.rs",
        "statuses_before_and_behind_the_name",
    ),
    (
        "SWE-smith 26, SWE-bench-Live 18",
        "tests/hacks/features.rs",
        "tests_that_disagree_with_themselves_are_marked",
    ),
    (
        "deep-swe 13",
        "tests/pipeline/trials.rs",
        "the_oracle_solves_a_task_and_nothing_does_not",
    ),
];

#[test]
fn every_line_has_its_test() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    for (line, file, test) in LINES {
        let text = std::fs::read_to_string(root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(text.contains(&format!("fn {test}(")), "{line}: {file} has no {test}");
    }
}
