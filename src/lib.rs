//! `lego`: online reinforcement learning for coding agents on real software-engineering tasks.
//!
//! The library behind the `lego` command line. It never prints, never parses arguments and never
//! panics on input; `commands/` is the only package that meets the terminal. Modules are ranked, and
//! a module imports only from ranks below its own (`tests/repo.rs` checks it); see ARCHITECTURE.md.

// rank 0
mod http_client;
mod http_server;
pub mod metrics;
pub mod task;
pub mod trajectory;
// rank 1
pub mod config;
pub mod run_dir;
pub mod shard;
// rank 2
pub mod prompt;
pub mod sandbox;
// rank 3
pub mod hub;
pub mod inference;
pub mod scaffold;
pub mod verifier;
// rank 4
pub mod balance;
pub mod buffer;
// rank 5
pub mod proxy;
// rank 6
pub mod diagnose;
pub mod rollout;
pub mod train;
// rank 7
pub mod dashboard;
pub mod preflight;
pub mod prepare;
// rank 8
pub mod pipeline;
