//! Rows of a preflight and the verdict.

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::{Loaded, Location, starred};

/// How a check ended; the order is from best to worst.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Nothing wrong.
    Pass,
    /// Not looked at, with the reason.
    Skip,
    /// Looks unwise; the run may start.
    Warn,
    /// The run must not start.
    Fatal,
}

/// One row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// Id of the check.
    pub check: String,
    /// How it ended.
    pub status: Status,
    /// What was found, and why it matters.
    pub detail: String,
    /// The key of run.toml that it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Where that key was written: `run.toml:31`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub location: Option<String>,
    /// The line there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<String>,
    /// What to write instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
    /// Whether it is about a service that cannot be reached.
    #[serde(skip)]
    unreachable: bool,
}

impl Finding {
    fn new(check: &str, status: Status, detail: impl Into<String>) -> Self {
        Self {
            check: check.to_owned(),
            status,
            detail: detail.into(),
            key: None,
            location: None,
            line: None,
            help: None,
            unreachable: false,
        }
    }

    /// It is about a service that cannot be reached.
    #[must_use]
    pub(super) fn unreachable(mut self) -> Self {
        self.unreachable = true;
        self
    }

    /// Nothing wrong.
    pub fn pass(check: &str, detail: impl Into<String>) -> Self {
        Self::new(check, Status::Pass, detail)
    }

    /// Not looked at.
    pub fn skip(check: &str, why: impl Into<String>) -> Self {
        Self::new(check, Status::Skip, why)
    }

    /// Unwise.
    pub fn warn(check: &str, detail: impl Into<String>) -> Self {
        Self::new(check, Status::Warn, detail)
    }

    /// The run must not start.
    pub fn fatal(check: &str, detail: impl Into<String>) -> Self {
        Self::new(check, Status::Fatal, detail)
    }

    /// The key it is about, placed where the key was written.
    #[must_use]
    pub fn at(mut self, run: &Loaded, key: &str) -> Self {
        let place = run.location(key);
        self.key = Some(key.to_owned());
        self.location = place.map(Location::short);
        self.line = place.map(|place| starred(place.line_text()));
        self
    }

    /// What to write instead.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }
}

/// All rows, worst last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// The rows.
    pub findings: Vec<Finding>,
}

impl Report {
    pub(super) fn new(mut findings: Vec<Finding>) -> Self {
        findings.sort_by_key(|finding| finding.status);
        Self { findings }
    }

    /// Rows that ended in this way.
    pub fn count(&self, status: Status) -> usize {
        self.findings.iter().filter(|finding| finding.status == status).count()
    }

    /// Whether the run may start.
    pub fn is_safe(&self) -> bool {
        self.count(Status::Fatal) == 0
    }

    /// Whether all that keeps it from running is a service that cannot be reached.
    pub fn is_unreachable(&self) -> bool {
        let mut fatal = self
            .findings
            .iter()
            .filter(|finding| finding.status == Status::Fatal)
            .peekable();
        fatal.peek().is_some() && fatal.all(|finding| finding.unreachable)
    }

    /// The last line.
    pub fn verdict(&self) -> String {
        let warnings = match self.count(Status::Warn) {
            1 => "1 warning".to_owned(),
            many => format!("{many} warnings"),
        };
        if self.is_safe() {
            format!("safe to run: {warnings}")
        } else {
            format!("not safe to run: {} fatal, {warnings}", self.count(Status::Fatal))
        }
    }
}
