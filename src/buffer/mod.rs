//! The data buffer: shards on disk, and a ledger of which of their episodes an update has consumed.
//!
//! The ledger is append-only and tells nothing of tokens or rewards. It never decides what to train.

mod entry;
mod error;
mod ledger;
mod view;

pub use entry::{LedgerEntry, LedgerKind};
pub use error::LedgerError;
pub use ledger::Ledger;
pub use view::{Fate, LedgerView};

/// The JSON Schemas of this module's lines, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("ledger", schemars::schema_for!(LedgerEntry))]
}

#[cfg(test)]
mod tests;
