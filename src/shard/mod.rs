//! Rollout shards: Parquet files with one row a segment; the schema, the writer, the reader.
//!
//! A row holds exactly what the engine saw and sampled. This module never touches text beyond carrying
//! it, computes no advantages, and skips nothing: a file it cannot read whole is an error.

mod column;
mod column_list;
mod column_nested;
mod episodes;
mod error;
mod grouping;
mod meta;
mod reader;
mod remote;
mod row;
mod source;
mod verify;
mod writer;

pub use episodes::episode_rows;
pub use error::ShardError;
pub use grouping::{Sorted, group_episodes, sort_rows};
pub use meta::{SCHEMA_VERSION, ShardMeta};
pub use reader::ShardReader;
pub use row::{COLUMNS, RoutedRun, Row, schema};
pub use source::ShardFile;
pub use verify::verify_row;
pub use writer::{ShardWriter, WriterOptions};

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("shard-row", schemars::schema_for!(Row))]
}

#[cfg(test)]
mod tests;
