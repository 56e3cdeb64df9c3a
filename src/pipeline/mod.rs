//! Wires rollout → buffer → train: online training, in turns or side by side; a trainer and rollouters in processes of their
//! own; training from shards, rollout alone, and the proxy alone.
//!
//! The only module that knows all the others. It holds no arithmetic of its own, and talks to people
//! through `PipelineEvent`s alone.

mod asynchronous;
mod blocking;
mod build;
mod collect;
mod engine_gauge;
mod engines;
mod error;
mod evaluation;
mod event;
mod export;
mod first;
mod follow;
mod front;
mod generate;
mod group_order;
mod in_turns;
mod lineage;
mod measure;
mod meter;
mod offline;
mod online;
mod order;
mod planning;
mod plans;
mod predictions;
mod publishing;
mod purge;
mod remote_engines;
mod run;
mod sampled;
mod serve;
mod settings;
mod stack;
mod tasks;
mod trainer;
mod training;
mod updating;
mod validate;
mod validations;
mod watchdog;

pub use build::{BuildEnd, BuildJob, BuildObserver, BuiltTask, ImageState, build};
pub use collect::{Check, CollectEnd, CollectJob, collect};
pub use error::PipelineError;
pub use evaluation::Evaluation;
pub use event::{Phase, PipelineEvent, PipelineObserver};
pub use export::{ExportedFile, export};
pub use follow::{FollowEnd, FollowJob, follow};
pub use measure::{MeasureEnd, MeasureJob, measure};
pub use offline::{OfflineJob, train_from_shards};
pub use online::train_online;
pub use order::TaskOrder;
pub use planning::{measured, setting_of};
pub use predictions::{Prediction, predictions};
pub use publishing::{PublishingJob, train_publishing};
pub use purge::{Purged, purge};
pub use run::{RunEnd, run_directory};
pub use serve::{ServeJob, Served, replay_session, serve_proxy};
pub use settings::sampled_as;
pub use stack::StackOptions;
pub use tasks::{TaskEntry, TaskSet};
pub use training::OnlineJob;
pub use validate::{ValidateEnd, ValidateJob, validate};
pub use validations::{Validation, ValidationScore};
