//! `[proxy]` and `[capture]`

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::HumanDuration;

/// The API in front of the policy.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct ProxySection {
    /// Address to listen on; port 0 picks a free one.
    pub listen: String,
    /// Base URL by which agents elsewhere reach it, such as `http://10.0.0.5:8000`; absent: where it listens. For
    /// backend `harbor` and `lego serve-proxy`.
    #[schemars(length(min = 1))]
    pub public_url: Option<String>,
    /// How long a generation runs on after its client dropped, waiting for the same request again; and how long the
    /// byte-identical request of a session is given the same answer, so that no retry trains twice.
    pub retry_grace: HumanDuration,
    /// Model calls of a session at most, whatever the scaffold allows.
    #[schemars(range(min = 1))]
    pub turn_cap: Option<u32>,
}

impl Default for ProxySection {
    fn default() -> Self {
        Self {
            listen: "127.0.0.1:0".to_owned(),
            public_url: None,
            retry_grace: HumanDuration::from_secs(60),
            turn_cap: None,
        }
    }
}

/// What becomes of recorded tokens.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct CaptureSection {
    /// Which conversations of a session train.
    pub train: CaptureScope,
    /// How calls become rows.
    pub builder: BuilderName,
    /// Whether the engine is asked which experts of a mixture each token went through; rows hold them as `routed_experts`.
    /// `train.routing_replay = "r3"` asks for it by itself.
    pub routing: bool,
    /// What a malformed tool call does to the reward.
    pub unparsed_tool_call: UnparsedToolCall,
}

/// Which conversations of a session train.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CaptureScope {
    /// The agent's main conversation.
    #[default]
    Main,
    /// Side conversations too.
    All,
}

/// How calls become rows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum BuilderName {
    /// One row for each unforked stretch.
    #[default]
    Segments,
    /// One row a call.
    PerCall,
}

/// What a malformed tool call does to the reward.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum UnparsedToolCall {
    /// Nothing; it is counted.
    #[default]
    Keep,
    /// The reward is 0.
    ZeroReward,
}
