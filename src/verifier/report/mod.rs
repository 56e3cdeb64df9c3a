//! What a test run says of single tests, for tasks that list which must pass (`FAIL_TO_PASS` / `PASS_TO_PASS`).
//!
//! The reward is the task's own word. The report tells "the tests failed" from "the tests never ran", which no
//! reward file does.

mod lines;
mod rules;
mod spec;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::run_dir::ReportSummary;

pub use rules::{grade_awk, log_formats, log_rules};
pub use spec::TestSpec;

/// How one test ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Status {
    /// It passed, or failed as it was expected to.
    Passed,
    /// It was not run.
    Skipped,
    /// It failed, or could not be run.
    Failed,
}

/// What one parser found in a log.
#[derive(Debug, Default)]
pub(super) struct Parsed {
    /// By name. A test that is named twice has the worse status: a program under test can print "passed" too.
    tests: BTreeMap<String, Status>,
    /// Whether the runner itself said that it ran tests.
    ran: bool,
}

impl Parsed {
    fn add(&mut self, name: &str, status: Status) {
        let name = rules::unittest_name(name.trim());
        if name.is_empty() {
            return;
        }
        let known = self.tests.entry(name).or_insert(status);
        *known = (*known).max(status);
    }
}

/// Which tests of a list did what.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Tally {
    /// Passed.
    pub passed: Vec<String>,
    /// Failed.
    pub failed: Vec<String>,
    /// Not in the log, or skipped.
    pub missing: Vec<String>,
}

/// The report of one test run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// Whose log it was read as, such as `pytest`, `unittest`, `go`, `cargo` or `jest`.
    pub format: String,
    /// Whether any test ran.
    pub ran: bool,
    /// Whether every test of both lists passed.
    pub resolved: bool,
    /// Tests that the work is to make pass.
    pub fail_to_pass: Tally,
    /// Tests that passed before it.
    pub pass_to_pass: Tally,
}

impl Report {
    /// The numbers.
    pub fn summary(&self) -> ReportSummary {
        let counts = |tally: &Tally| {
            let passed = tally.passed.len();
            (passed, passed + tally.failed.len() + tally.missing.len())
        };
        ReportSummary {
            format: self.format.clone(),
            ran: self.ran,
            resolved: self.resolved,
            fail_to_pass: counts(&self.fail_to_pass),
            pass_to_pass: counts(&self.pass_to_pass),
        }
    }
}
