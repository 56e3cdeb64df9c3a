//! `[verifier]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How the tests are run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct VerifierSection {
    /// Times that the tests of a trial run; where they disagree, the trial is marked as flaky and the first counts.
    #[schemars(range(min = 1))]
    pub repeats: u32,
}

impl Default for VerifierSection {
    fn default() -> Self {
        Self { repeats: 1 }
    }
}
