//! Which replica serves a turn, when a session may send its next one, and what a pool would do under a load.
//!
//! `placement` and `scheduler` decide, and know neither requests nor clocks. `replicas` makes one engine of several by them,
//! `hold` is the way from a scheduler to tasks and clocks, `gateway` a server in front of others, and `simulate` drives the
//! same code over time that does not pass.

pub mod gateway;
pub mod hold;
pub mod placement;
pub mod replicas;
pub mod scheduler;
pub mod simulate;

pub use replicas::{Balancing, Replicas};

/// The JSON Schemas of this module's rows, by file stem.
pub fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("balance-row", schemars::schema_for!(simulate::Report)),
        ("replica", schemars::schema_for!(gateway::ReplicaRow)),
        ("session", schemars::schema_for!(gateway::SessionRow)),
    ]
}
