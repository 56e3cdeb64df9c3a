//! Known ways to fool a grader, played by an agent through whole trials, and honest work beside them: a hack changes no
//! reward or is flagged, and honest work raises no flag.
//!
//! Everything runs by `lego::pipeline::collect`, as `lego rollout` does, with the answers of a recording. `Place` says
//! where: another backend is one more value of it.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod features;
mod history;
mod honest;
mod known;
mod played;
mod retries;
mod table;
mod tasks;
