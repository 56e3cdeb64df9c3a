//! What is wrong, said on evidence: reads what runs have left, never changes it and never starts anything.

mod accounts;
mod compare;
mod consumption;
mod evidence;
#[cfg(test)]
mod mixed_tests;
mod run;
mod shards;
mod signature;
#[cfg(test)]
mod signature_tests;
mod signatures;
mod surroundings;
mod trial;

pub use accounts::Accounts;
pub use consumption::Consumption;
pub use run::{LookedAt, RunFinding, RunReport, judge, look_at_log, look_at_run, newest_run};
pub use shards::{ShardsReport, look_at_shards};
pub use signature::{Cure, Signature, Verdict, signatures};
pub use trial::{Side, TrialFact, TrialReport, look_at_trial};

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("diagnose-account", schemars::schema_for!(AccountRow)),
        ("diagnose-run", schemars::schema_for!(RunReport)),
        ("diagnose-trial", schemars::schema_for!(TrialReport)),
    ]
}

/// One account of the loss ledger.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
pub struct AccountRow {
    /// Its name; masked and dropped tokens are accounted by reason.
    pub account: String,
    /// Sampled tokens in it, where it is one of tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// Episodes in it, where it is one of episodes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub episodes: Option<u64>,
}
