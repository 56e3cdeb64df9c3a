//! Tells the families of records apart by their fields.

use serde_json::{Map, Value};

/// A family of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// A small task with its files inline.
    Inline,
    /// SWE-bench and what has its shape: Verified, Lite, Multilingual, SWE-Gym.
    SweBench,
    /// SWE-bench-Live.
    SweBenchLive,
    /// SWE-bench Pro.
    SweBenchPro,
    /// Multi-SWE-bench.
    MultiSweBench,
    /// SWE-smith: the patch is the bug.
    SweSmith,
    /// SWE-rebench, both versions: with `install_config`.
    SweRebench,
    /// R2E-Gym.
    R2e,
    /// A record of another family inside the request of a training environment, as Nemotron's sets have it.
    Nemotron,
    /// An issue and the pull request that closes it, as an API gives them.
    Github,
}

/// Their names on the command line, and the fields that together mark each, the most particular first.
const MARKS: [(Family, &str, &[&str]); 12] = [
    (Family::Nemotron, "nemotron", &["responses_create_params"]),
    (Family::Nemotron, "nemotron", &["instance_dict"]),
    (
        Family::MultiSweBench,
        "multi-swe-bench",
        &["org", "repo", "number", "fix_patch"],
    ),
    (
        Family::SweRebench,
        "swe-rebench",
        &["instance_id", "repo", "install_config"],
    ),
    (
        Family::R2e,
        "r2e",
        &["docker_image", "repo_name", "expected_output_json"],
    ),
    (
        Family::SweSmith,
        "swe-smith",
        &["instance_id", "repo", "patch", "image_name", "FAIL_TO_PASS"],
    ),
    (
        Family::SweBenchPro,
        "swe-bench-pro",
        &["instance_id", "repo", "dockerhub_tag", "patch"],
    ),
    (
        Family::SweBenchLive,
        "swe-bench-live",
        &["instance_id", "repo", "base_commit", "test_cmds"],
    ),
    (Family::SweBench, "swe-bench", &["instance_id", "repo", "patch"]),
    (Family::Github, "github", &["number", "title", "body"]),
    (Family::Github, "github", &["pull_request"]),
    (Family::Inline, "inline", &["files"]),
];

/// Fields that only inline records have.
const INLINE: [&str; 4] = ["files", "test", "test_files", "solution"];

impl Family {
    /// By its name on the command line.
    pub fn by_name(name: &str) -> Option<Self> {
        MARKS
            .iter()
            .find(|(_, own, _)| *own == name)
            .map(|(family, _, _)| *family)
    }

    /// All names, in alphabetic order.
    pub fn names() -> Vec<&'static str> {
        let mut names: Vec<&str> = MARKS.iter().map(|(_, name, _)| *name).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        MARKS
            .iter()
            .find(|(family, _, _)| *family == self)
            .map_or("", |(_, name, _)| *name)
    }
}

/// The family of a record, where its fields tell one.
pub(super) fn family(record: &Map<String, Value>) -> Option<Family> {
    if record.contains_key("files") && record.contains_key("test") {
        return Some(Family::Inline);
    }
    let smith = record.get("instance_id").is_some() && record.contains_key("test_patch");
    let marked = MARKS.iter().find(|(family, _, fields)| {
        // SWE-smith alone has no patch of tests.
        (*family != Family::SweSmith || !smith) && fields.iter().all(|field| record.contains_key(*field))
    });
    match marked {
        Some((family, _, _)) => Some(*family),
        None if INLINE.iter().any(|field| record.contains_key(*field)) => Some(Family::Inline),
        // What is missing is then said by name.
        None if record.contains_key("instance_id") && record.contains_key("repo") => Some(Family::SweBench),
        None if record.contains_key("instance_id") && record.contains_key("problem_statement") => Some(Family::Inline),
        None => None,
    }
}
