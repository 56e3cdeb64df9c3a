//! The commented run.toml that `lego preflight --init` writes.

/// A starter: the keys that a first run decides, each with its meaning. It loads as it stands.
pub fn starter() -> &'static str {
    include_str!("starter.toml")
}
