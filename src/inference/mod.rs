//! Engines: tokens in, tokens out.
//!
//! The trait `Engine` and its implementations. An engine never sees text or messages; whoever speaks to
//! it has rendered the prompt, and records what comes back bit for bit. `hosted` is none: it takes messages, and what
//! it answers never trains.

pub mod embedded;
pub mod hosted;
pub mod replay;
pub mod sglang;
pub mod vllm;

mod error;
mod fitness;
mod prometheus;
mod remote;
mod request;
#[cfg(test)]
pub(crate) mod testing;

pub use embedded::{EmbeddedEngine, EmbeddedOptions};
pub use error::EngineError;
pub use fitness::check_logprobs;
pub use hosted::{HostedAnswer, HostedApi, HostedError, HostedRequest};
pub use remote::{RemoteOptions, endpoint_problem};
pub use replay::{RecordedTurn, Recording, ReplayEngine};
pub use request::{
    Balanced, EngineLoad, EngineUsage, EventSource, Finish, GenerateRequest, Generation, GenerationEvent, PauseMode,
    ReplicaLoad, RequestOrigin, Sampling, TokenDelta,
};
pub use sglang::SglangEngine;
pub use vllm::VllmEngine;

use std::path::Path;
use std::time::Duration;

use async_trait::async_trait;

use crate::trajectory::{PolicyVersion, SessionKey, TokenId};

/// The load that a server's page of metrics tells of, whatever server it is; zeros where it tells nothing.
pub(crate) fn load_of_page(page: &str) -> EngineLoad {
    let metrics = prometheus::Metrics(page);
    if page.contains("sglang:") {
        sglang::load_of(&metrics)
    } else {
        vllm::load_of(&metrics)
    }
}

/// A server of the policy.
#[async_trait]
pub trait Engine: Send + Sync {
    /// Starts one generation. Its events arrive on a bounded channel; dropping it aborts the generation.
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError>;

    /// Ends a generation; what was sampled so far arrives with `FinishReason::Abort`. Unknown ids are ignored.
    async fn abort(&self, request_id: &str);

    /// Stops sampling until `resume`.
    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError>;

    /// Serves the weights in this Hugging Face folder from now on, under this version. Sessions stay; caches
    /// that older weights filled are invalidated.
    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError>;

    /// Goes on after `pause`; also after a failure in between.
    async fn resume(&self) -> Result<(), EngineError>;

    /// The version that samples now.
    fn version(&self) -> PolicyVersion;

    /// Asks the server itself whether it is well, and which weights it serves.
    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        Ok(self.version())
    }

    /// False where every server is known to be lost.
    fn is_up(&self) -> bool {
        true
    }

    /// A session has ended: nothing needs to be remembered of it.
    fn end_session(&self, _session: &SessionKey) {}

    /// How busy it is.
    fn load(&self) -> EngineLoad;

    /// The engines that it is made of, in their order; none where it is one itself.
    fn replicas(&self) -> Vec<ReplicaLoad> {
        Vec::new()
    }

    /// How many tokens of this prompt its cache holds now; `None`: it does not say.
    async fn cached(&self, _prompt: &[TokenId]) -> Option<u64> {
        None
    }

    /// What balances it has done; `None`: nothing does.
    fn balanced(&self) -> Option<Balanced> {
        None
    }

    /// How long a request may be held before an engine is given it.
    fn longest_hold(&self) -> Duration {
        Duration::ZERO
    }

    /// Whether generations carry the log-prob of each sampled token.
    fn gives_logprobs(&self) -> bool {
        true
    }

    /// Whether it wants `RequestOrigin::text`: only what plays recordings does.
    fn reads_text(&self) -> bool {
        false
    }
}
