//! How long a replica's steps take, and what its cache holds.

/// A model on an accelerator: seconds of a step are `fixed + sequence·n + context·Σ context + prefill·p + position·Σ chunk·position`
/// over `n` sequences in it and `p` tokens of prompts.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Profile {
    /// Its name.
    pub name: &'static str,
    /// Tokens that the cache holds.
    pub capacity: u64,
    /// Seconds of any step.
    pub fixed: f64,
    /// Seconds a sequence.
    pub sequence: f64,
    /// Seconds a token of context of a sequence that samples.
    pub context: f64,
    /// Seconds a token of a prompt.
    pub prefill: f64,
    /// Seconds a token of a prompt and a token before it.
    pub position: f64,
}

/// Those that can be named.
pub const PROFILES: [Profile; 2] = [
    Profile {
        name: "moe30b",
        capacity: 2_240_000,
        fixed: 0.005,
        sequence: 1e-4,
        context: 1.5e-8,
        prefill: 8e-6,
        position: 2e-10,
    },
    Profile {
        name: "dense32b",
        capacity: 320_000,
        fixed: 0.012,
        sequence: 1e-4,
        context: 5.6e-8,
        prefill: 64e-6,
        position: 1.3e-9,
    },
];

impl Profile {
    /// The one of this name.
    pub fn by_name(name: &str) -> Option<Self> {
        PROFILES.into_iter().find(|profile| profile.name == name)
    }
}
