//! When a session may send its next turn to its replica, and what a pool would do under a load.
//!
//! Which replica a session is with is `inference::Replicas`' to say.

pub mod scheduler;
pub mod simulate;

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![("balance-row", schemars::schema_for!(simulate::Report))]
}
