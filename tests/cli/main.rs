//! The command line as its users meet it: each test reads like a terminal session.

mod bad_config;
mod help;
mod not_built;
mod preflight;
mod streams;
mod workspace;
