//! Prepare: issues and datasets in, Harbor task folders and a task index out.
//!
//! Every family of records becomes either an inline record or a `Repair`, and that a folder. The same input gives the
//! same bytes. Nothing here runs a task.

mod cached;
mod convert;
mod dockerfile;
mod error;
mod family;
mod fields;
mod github;
mod images;
mod index;
mod inline_folder;
mod instruction;
mod language;
mod measured;
mod options;
mod parquet;
mod patch;
mod read;
mod record;
mod repair;
mod repo_cache;
mod report;
mod select;
mod stage;
mod swe;
mod unique;
mod validation;
mod warnings;

pub use cached::{Prepared, prepare_into};
pub use convert::convert;
pub use error::PrepareError;
pub use family::Family;
pub use images::{PushedImage, Unbuilt, note_build, read_pushed, write_pushed};
pub use index::{IndexReport, index, rows as index_rows};
pub use instruction::{Allowed, TEMPLATE};
pub use measured::{Measured, read_measured, write_measured, write_summary};
pub use options::{ConvertOptions, TaskNetwork};
pub use read::Source;
pub use report::{PrepareReport, PrepareRow, PrepareStatus, RejectedRow, StageRow, write_funnel};
pub use select::{Combine, IndexOptions, Split, index_fields, without_excluded};
pub use validation::{Attempt, InvalidClass, ListedTests, ValidationRow, judge, read_validation, write_validation};

/// The JSON Schemas of this module's rows and files, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("prepare-report", schemars::schema_for!(PrepareReport)),
        ("prepare-stage", schemars::schema_for!(StageRow)),
        ("prepare-row", schemars::schema_for!(PrepareRow)),
        ("prepare-rejected", schemars::schema_for!(RejectedRow)),
        ("prepare-validation", schemars::schema_for!(ValidationRow)),
        ("prepare-attempts", schemars::schema_for!(Measured)),
        ("prepare-images", schemars::schema_for!(PushedImage)),
        ("inline-record", schemars::schema_for!(record::InlineRecord)),
    ]
}

#[cfg(test)]
mod convert_tests;
#[cfg(test)]
mod repair_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod validation_tests;
