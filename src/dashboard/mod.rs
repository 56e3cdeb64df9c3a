//! The page that shows runs: a read-only server over run directories and logs, and the same page as one file.
//!
//! Nothing here starts, stops or changes a run. What agents wrote goes to the page as JSON and is shown as text only.
//! Memory is bounded: metrics as columns, trials as short records, everything larger is read when it is looked at.

mod api;
mod assets;
mod board;
mod error;
mod export;
mod find;
mod guard;
mod logs;
mod outcomes;
mod redact;
mod run;
mod series;
mod server;
mod shelf;
mod task_grid;
mod thinking;
mod tokens;
mod trial;
mod trials;
mod validation;

pub use board::{Board, BoardOptions};
pub use error::DashboardError;
pub use export::{LISTED_TRIALS, WHOLE_TRIALS, export};
pub use find::Skipped;
pub use guard::new_token;
pub use server::{ServerOptions, serve};

#[cfg(test)]
mod tests;
