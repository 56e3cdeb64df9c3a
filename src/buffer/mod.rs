//! The data buffer: shards on disk, and a ledger of which of their episodes an update has consumed.
//!
//! The ledger is append-only and tells nothing of tokens or rewards. It never decides what to train. `gate` and `queue`
//! bound what is sampled ahead; they hold no episode of their own.

mod entry;
mod error;
mod gate;
mod ledger;
pub mod meeting;
pub mod plan;
mod queue;
mod view;

pub use entry::{LedgerEntry, LedgerKind};
pub use error::LedgerError;
pub use gate::StalenessGate;
pub use ledger::Ledger;
pub use queue::GroupQueue;
pub use view::{Fate, LedgerView};

/// The JSON Schemas of this module's lines, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    let mut schemas = vec![("ledger", schemars::schema_for!(LedgerEntry))];
    schemas.extend(meeting::schemas());
    schemas.push(("train-plan", schemars::schema_for!(plan::Forecast)));
    schemas
}

#[cfg(test)]
mod tests;
