//! Agent-loop workers: one trial, the pool of trials, retries, outcomes, evaluation.
//!
//! A trial turns a task into an `Episode`. This module decides whose doing a failure was; it computes no
//! advantage and updates nothing.

mod artifacts;
mod atif;
mod evaluate;
mod event;
mod harbor;
mod harden;
mod health;
mod history;
mod image;
mod network;
mod outcome;
mod plan;
mod pool;
mod summary;
mod trial;
mod trial_episode;
mod trial_files;
mod trial_spec;
mod trial_stages;
mod trial_verdict;
mod work_patch;

pub use evaluate::{EvalReport, SeriesScore, pass_at_k, score};
pub use event::{Observer, RolloutEvent};
pub(crate) use harbor::without_effect;
pub use harbor::{Harbor, HarborAgent, HarborError};
pub use image::{image_of, images_of, name_in, unfit};
pub use network::{of_agent as reached_by_agent, of_verifier as reached_by_tests};
pub use plan::{Purpose, TrialPlan, group_plans};
pub use pool::run_all;
pub use summary::{OutcomeRow, RolloutSummary};
pub use trial::{TrialContext, TrialRecord};
pub use trial_files::Spans;
pub use trial_stages::StageRecord;
pub use trial_verdict::Judged;
