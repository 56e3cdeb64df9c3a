//! The policy.
