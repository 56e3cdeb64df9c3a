//! The command line as its users meet it: each test reads like a terminal session.
#![expect(clippy::unwrap_used, reason = "a test may panic")]

mod bad_config;
mod help;
mod preflight;
mod prepare;
mod streams;
mod watching;
mod workspace;
mod wrong_files;
