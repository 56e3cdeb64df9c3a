//! Online training, asynchronous: trials go on while the trainer updates.
//!
//! One task drives both sides: `groups` says what is sampled next, `rollouter` runs the trials, `update` is the trainer's
//! side, `validating` scores beside both, and `steps` is the loop that joins them, with `step_end`. Rollouters in other
//! processes take the place of the first two (`elsewhere`). How far sampling may be ahead is
//! `buffer::StalenessGate`'s to say. A group belongs to the step that it was drawn for, whichever update takes it, so
//! that a run that was killed knows its groups again.

mod account;
mod elsewhere;
mod groups;
mod here;
mod rollouter;
mod sampling;
mod step_end;
mod steps;
mod update;
mod validating;

pub(super) use elsewhere::{Elsewhere, PublishedTo, SILENCE};
pub(super) use groups::Drawn;
pub(super) use rollouter::Rollouter;
pub(super) use steps::{Sides, steps, train};
pub(super) use update::Outlet;
pub(super) use validating::Validations;
