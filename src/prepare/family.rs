//! Tells the families of records apart by their fields.

use serde_json::{Map, Value};

/// A family of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Family {
    /// A small task with its files inline.
    Inline,
    /// One that is not converted yet.
    Other(&'static str),
    /// None that is known.
    Unknown,
}

/// Fields that together mark a family, the most particular first.
const MARKS: [(&str, &[&str]); 8] = [
    ("Multi-SWE-bench", &["org", "repo", "number", "fix_patch"]),
    ("SWE-rebench", &["instance_id", "repo", "base_commit", "install_config"]),
    ("R2E", &["docker_image", "repo_name", "parsed_commit_content"]),
    ("SWE-smith", &["instance_id", "repo", "patch", "image_name"]),
    ("SWE-bench-Live", &["instance_id", "repo", "base_commit", "test_cmds"]),
    (
        "SWE-bench",
        &["instance_id", "repo", "base_commit", "patch", "test_patch"],
    ),
    ("GitHub pull request", &["number", "title", "body", "base", "head"]),
    ("GitHub issue", &["number", "title", "body"]),
];

/// Fields that only inline records have.
const INLINE: [&str; 4] = ["files", "test", "test_files", "solution"];

/// The family of a record.
pub(super) fn family(record: &Map<String, Value>) -> Family {
    if record.contains_key("files") {
        return Family::Inline;
    }
    let marked = MARKS
        .iter()
        .find(|(_, fields)| fields.iter().all(|field| record.contains_key(*field)));
    match marked {
        Some((family, _)) => Family::Other(family),
        None if INLINE.iter().any(|field| record.contains_key(*field)) => Family::Inline,
        None if record.contains_key("instance_id") && record.contains_key("problem_statement") => Family::Inline,
        None => Family::Unknown,
    }
}
