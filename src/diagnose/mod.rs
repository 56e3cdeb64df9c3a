//! What is wrong, said on evidence: reads what runs have left, never changes it and never starts anything.

mod accounts;
mod compare;
mod shards;

pub use accounts::Accounts;
pub use shards::{ShardsReport, look_at_shards};

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("diagnose-account", schemars::schema_for!(AccountRow))]
}

/// One account of the loss ledger.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct AccountRow {
    /// Its name; masked and dropped tokens are accounted by reason.
    pub account: String,
    /// Sampled tokens in it.
    pub tokens: u64,
}
