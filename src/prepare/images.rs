//! What making the images of tasks has told of them, and where images were pushed; both kept beside the tasks.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::validation::{VERSION as VALIDATION, read_lines, tail, write_lines};
use super::{InvalidClass, PrepareError, ValidationRow};
use crate::task::IndexRow;

/// Version of images.jsonl.
const VERSION: u32 = 1;
const FILE: &str = "images.jsonl";

/// A line of images.jsonl: the image of a task in a registry.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PushedImage {
    /// Version of the line.
    pub v: u32,
    /// The task.
    pub instance_id: String,
    /// Which task folder it was built from: that of this content.
    pub task_checksum: String,
    /// Its name there, without a tag.
    pub image: String,
    /// Its digest there.
    pub digest: String,
}

impl PushedImage {
    /// That of a row's task.
    pub fn of(row: &IndexRow, image: String, digest: String) -> Self {
        Self {
            v: VERSION,
            instance_id: row.instance_id.clone(),
            task_checksum: row.task_checksum.clone().unwrap_or_default(),
            image,
            digest,
        }
    }

    /// Whether it was built from the row's task as it is.
    pub fn is_of(&self, row: &IndexRow) -> bool {
        self.instance_id == row.instance_id && row.task_checksum.as_ref() == Some(&self.task_checksum)
    }
}

/// What is known of the images of the tasks in a folder, by task.
pub fn read_pushed(folder: &Path) -> Result<BTreeMap<String, PushedImage>, PrepareError> {
    read_lines(&folder.join(FILE), |row: &PushedImage| row.instance_id.clone())
}

/// Writes images.jsonl.
pub fn write_pushed(folder: &Path, rows: &BTreeMap<String, PushedImage>) -> Result<(), PrepareError> {
    write_lines(&folder.join(FILE), rows.values())
}

/// Why an image could not be made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unbuilt {
    /// What was seen.
    pub detail: String,
    /// What was said meanwhile.
    pub log: String,
}

/// Puts down what came of making a task's images: one that cannot be made makes the task none, and one that can be made
/// takes such a word back. What trials have told of the task as it is stays. Gives whether anything changed.
pub fn note_build(known: &mut BTreeMap<String, ValidationRow>, row: &IndexRow, unbuilt: Option<&Unbuilt>) -> bool {
    let earlier = known
        .get(&row.instance_id)
        .filter(|found| row.task_checksum.as_ref() == Some(&found.task_checksum));
    match (unbuilt, earlier) {
        (_, Some(found)) if !found.is_of_build() => false,
        (None, None) => false,
        (None, Some(_)) => known.remove(&row.instance_id).is_some(),
        (Some(unbuilt), _) => {
            let found = ValidationRow {
                v: VALIDATION,
                instance_id: row.instance_id.clone(),
                task_checksum: row.task_checksum.clone().unwrap_or_default(),
                class: Some(InvalidClass::EnvironmentDoesNotBuild),
                detail: Some(unbuilt.detail.clone()),
                nop_reward: None,
                oracle_reward: None,
                verify_sec: None,
                attempts: 0,
                log_tail: Some(tail(&unbuilt.log)),
            };
            known.insert(row.instance_id.clone(), found);
            true
        }
    }
}

impl ValidationRow {
    /// Whether no trial was run for it: the task's image could not be made.
    pub fn is_of_build(&self) -> bool {
        self.attempts == 0 && self.class == Some(InvalidClass::EnvironmentDoesNotBuild)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(sum: &str) -> IndexRow {
        IndexRow {
            instance_id: "a".to_owned(),
            task_checksum: Some(sum.to_owned()),
            ..IndexRow::default()
        }
    }

    #[test]
    fn builds_and_trials_leave_each_others_words() {
        let unbuilt = Unbuilt {
            detail: "exit code 2".to_owned(),
            log: "x".repeat(9000),
        };
        let mut known = BTreeMap::new();
        assert!(!note_build(&mut known, &row("1"), None));
        assert!(note_build(&mut known, &row("1"), Some(&unbuilt)));
        let found = &known["a"];
        assert!(found.is_of_build());
        assert_eq!(found.log_tail.as_ref().map(String::len), Some(4000));
        // Mended: it is to be tried again.
        assert!(note_build(&mut known, &row("1"), None));
        assert!(known.is_empty());
        // Another content: what was known of the old one says nothing.
        note_build(&mut known, &row("1"), Some(&unbuilt));
        assert!(!note_build(&mut known, &row("2"), None));
        assert!(note_build(&mut known, &row("2"), Some(&unbuilt)));
        assert_eq!(known["a"].task_checksum, "2");
        // Trials know better.
        for class in [
            None,
            Some(InvalidClass::EnvironmentDoesNotBuild),
            Some(InvalidClass::Flaky),
        ] {
            let tried = ValidationRow {
                class,
                attempts: 2,
                ..known["a"].clone()
            };
            let mut known = BTreeMap::from([("a".to_owned(), tried.clone())]);
            assert!(!note_build(&mut known, &row("2"), Some(&unbuilt)));
            assert!(!note_build(&mut known, &row("2"), None));
            assert_eq!(known["a"], tried);
        }
    }

    #[test]
    fn an_image_is_of_the_content_that_it_was_built_from() {
        let folder = tempfile::tempdir().unwrap();
        let pushed = PushedImage::of(&row("1"), "reg/a".to_owned(), "sha256:1".to_owned());
        write_pushed(folder.path(), &BTreeMap::from([("a".to_owned(), pushed.clone())])).unwrap();
        assert_eq!(read_pushed(folder.path()).unwrap()["a"], pushed);
        assert!(pushed.is_of(&row("1")) && !pushed.is_of(&row("2")));
    }
}
