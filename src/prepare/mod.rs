//! Prepare: issues and datasets in, Harbor task folders and a task index out.
//!
//! Converts records whose files are inline; other record families are recognised and refused. The same
//! input gives the same bytes. Nothing here runs a task.

mod cached;
mod convert;
mod error;
mod family;
mod index;
mod read;
mod record;
mod report;
mod stage;

pub use cached::{Prepared, prepare_into};
pub use convert::{ConvertOptions, convert};
pub use error::PrepareError;
pub use index::{IndexReport, index};
pub use read::Source;
pub use report::{PrepareReport, PrepareRow, PrepareStatus, RejectedRow};

/// The JSON Schemas of this module's rows and files, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("prepare-report", schemars::schema_for!(PrepareReport)),
        ("prepare-row", schemars::schema_for!(PrepareRow)),
        ("prepare-rejected", schemars::schema_for!(RejectedRow)),
        ("inline-record", schemars::schema_for!(record::InlineRecord)),
    ]
}

#[cfg(test)]
mod tests;
