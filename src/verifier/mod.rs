//! verifier
