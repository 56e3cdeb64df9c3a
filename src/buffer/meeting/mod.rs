//! Where rollouters and a trainer meet that are other processes: a folder, or a prefix of an object store.
//!
//! The only channel between them. Everything in it is a whole object, put at once: `published.json` (what the trainer says),
//! `weights/` (what it published), `claims/` (which rollouter works on which group), `rollouters/` (that each is alive),
//! `rollouts/` (shards). Nothing is appended to and nothing is renamed, so that a bucket does as well as a folder. What
//! was trained on is not decided here: the ledger is the trainer's alone.

mod claim;
mod published;
mod store;
#[cfg(test)]
mod tests;

pub use claim::{Claim, Pulse, Rollouter};
pub use published::{Order, Published};
pub use store::{Meeting, MeetingError};

/// The JSON Schemas of this module's objects, by file stem.
pub(super) fn schemas() -> Vec<(&'static str, schemars::Schema)> {
    vec![
        ("published", schemars::schema_for!(Published)),
        ("claim", schemars::schema_for!(Claim)),
        ("rollouter", schemars::schema_for!(Rollouter)),
    ]
}
