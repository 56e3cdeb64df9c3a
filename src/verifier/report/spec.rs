//! The lists that a task gives in `tests/config.json`, and the report of a log by them.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::rules::{FORMATS, unittest_name};
use super::{Parsed, Report, Status, Tally};

const FILE: &str = "config.json";
/// Largest file of that name that is read.
const LARGEST: u64 = 32 << 20;

/// Which tests must pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TestSpec {
    /// Those that the work is to make pass.
    pub fail_to_pass: Vec<String>,
    /// Those that passed before it.
    pub pass_to_pass: Vec<String>,
    /// Patch that brings the tests.
    test_patch: String,
    /// Whose log it is, where the task says so.
    log_format: Option<String>,
}

impl TestSpec {
    /// Of the last of these folders that has one.
    pub fn of(tests: &[PathBuf]) -> Option<Self> {
        tests.iter().rev().find_map(|folder| Self::read(&folder.join(FILE)))
    }

    fn read(path: &Path) -> Option<Self> {
        let meta = fs_err::metadata(path).ok()?;
        (meta.is_file() && meta.len() <= LARGEST).then_some(())?;
        Self::parse(&fs_err::read_to_string(path).ok()?)
    }

    /// `None` where the text is not of this shape: it is then some other file of the task's.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let list = |key: &str| match value.get(key)? {
            // The lists stand there as texts too.
            Value::String(text) => serde_json::from_str::<Vec<String>>(text).ok(),
            other => serde_json::from_value::<Vec<String>>(other.clone()).ok(),
        };
        let spec = Self {
            fail_to_pass: list("FAIL_TO_PASS")?,
            pass_to_pass: list("PASS_TO_PASS").unwrap_or_default(),
            test_patch: value
                .get("test_patch")
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned(),
            log_format: value.get("log_format").and_then(Value::as_str).map(str::to_owned),
        };
        (!spec.fail_to_pass.is_empty() || !spec.pass_to_pass.is_empty()).then_some(spec)
    }

    /// Test files that the lists and the patch name.
    pub fn files(&self) -> Vec<String> {
        let of_tests = self
            .fail_to_pass
            .iter()
            .chain(&self.pass_to_pass)
            .filter_map(|test| test.split_once("::"))
            .map(|(file, _)| file)
            .filter(|file| file.contains('.') && !file.contains(' '));
        let of_patch = self.test_patch.lines().filter_map(|line| line.strip_prefix("+++ b/"));
        let removed = self.test_patch.lines().filter_map(|line| line.strip_prefix("--- a/"));
        let mut files: Vec<String> = of_tests
            .chain(of_patch)
            .chain(removed)
            .map(|file| file.trim().to_owned())
            .collect();
        files.sort();
        files.dedup();
        files
    }

    /// Reads a log in the format that knows most of the listed tests.
    pub fn report(&self, log: &str) -> Report {
        let log = super::lines::plain(log);
        let known = |parsed: &Parsed| {
            let all = self.fail_to_pass.iter().chain(&self.pass_to_pass);
            all.filter(|test| status(parsed, test).is_some()).count()
        };
        let own = |name: &&str| self.log_format.as_deref().is_none_or(|own| own == *name);
        let of_task: Vec<_> = FORMATS.iter().filter(|format| own(&format.name)).collect();
        // A name that is not known here is no format: every one is tried then.
        let tried = if of_task.is_empty() {
            FORMATS.iter().collect()
        } else {
            of_task
        };
        // Of several that read it as well as each other, the first of the table: the later take lines of more shapes.
        let (name, parsed) = tried
            .into_iter()
            .rev()
            .map(|format| (format.name, format.parse(&log)))
            .max_by_key(|(_, parsed)| (known(parsed), parsed.ran, parsed.tests.len()))
            .unwrap_or_default();
        let tally = |tests: &[String]| {
            let mut tally = Tally::default();
            for test in tests {
                match status(&parsed, test) {
                    Some(Status::Passed) => &mut tally.passed,
                    Some(Status::Failed) => &mut tally.failed,
                    Some(Status::Skipped) | None => &mut tally.missing,
                }
                .push(test.clone());
            }
            tally
        };
        let (fail_to_pass, pass_to_pass) = (tally(&self.fail_to_pass), tally(&self.pass_to_pass));
        let whole = |tally: &Tally| tally.failed.is_empty() && tally.missing.is_empty();
        Report {
            format: name.to_owned(),
            ran: parsed.ran || !parsed.tests.is_empty(),
            resolved: whole(&fail_to_pass) && whole(&pass_to_pass),
            fail_to_pass,
            pass_to_pass,
        }
    }
}

/// Some lists hold names that were cut at their first blank, some `Class.test` for `file::Class::test`.
fn status(parsed: &Parsed, test: &str) -> Option<Status> {
    let test = unittest_name(&test.replace('\t', " "));
    if let Some(status) = parsed.tests.get(&test) {
        return Some(*status);
    }
    if test.contains('[') && !test.ends_with(']') {
        let start = format!("{test} ");
        let longer = parsed
            .tests
            .range(start.clone()..)
            .take_while(|(name, _)| name.starts_with(&start));
        return longer.map(|(_, status)| *status).max();
    }
    // Folders of an option are left out in some.
    if test.contains("[/") {
        let same = parsed
            .tests
            .iter()
            .filter(|(name, _)| short(name).as_deref() == Some(&test));
        return same.map(|(_, status)| *status).max();
    }
    let inner = |name: &str| {
        name.split_once("::")
            .is_some_and(|(_, rest)| rest.replace("::", ".") == test)
    };
    let same = parsed
        .tests
        .iter()
        .filter(|(name, _)| !test.contains("::") && inner(name));
    same.map(|(_, status)| *status).max()
}

/// `a[/tmp/x/y]` is `a[/y]`.
fn short(name: &str) -> Option<String> {
    let (front, option) = name.strip_suffix(']')?.split_once("[/")?;
    if option.starts_with('/') || option.contains('*') {
        return None;
    }
    let last = option.rsplit('/').next().unwrap_or(option);
    Some(format!("{front}[/{last}]"))
}
