//! What a proxy and its sessions are given, and what a closed session hands back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::Admin;
use crate::config::{BuilderName, CaptureScope};
use crate::inference::{Engine, HostedApi};
use crate::prompt::{PromptBuilder, Tokenizer, ToolFormat};
use crate::trajectory::{CaptureAudit, Ledger, SamplingParams, Segment, SessionKey};

/// What makes answers.
#[derive(Clone)]
pub enum Source {
    /// The policy, in tokens: what it samples is recorded and can train.
    Policy(PolicySource),
    /// A hosted API, in messages: it gives no token ids, so that nothing of it can train.
    Hosted(Arc<HostedApi>),
}

/// A policy that is served by an engine.
#[derive(Clone)]
pub struct PolicySource {
    /// Who samples.
    pub engine: Arc<dyn Engine>,
    /// Tokenizer and chat template.
    pub prompt: Arc<PromptBuilder>,
    /// How it writes tool calls; `None`: it has no tools, its text is passed on as it is.
    pub tool_format: Option<ToolFormat>,
    /// Whether the engine is asked which experts each position went through.
    pub routing: bool,
}

/// Everything a proxy needs. `ProxyOptions::new` and `over` fill in what has a default.
#[derive(Clone)]
pub struct ProxyOptions {
    /// What makes answers.
    pub source: Source,
    /// Served model name, as `/v1/models` gives it. Requests may name any model.
    pub model: String,
    /// Prompt and answer together, in tokens.
    pub window: usize,
    /// Tokens of one answer at most.
    pub max_tokens: u32,
    /// The run's sampling settings.
    pub sampling: SamplingParams,
    /// Whose sampling settings count.
    pub sampling_policy: SamplingPolicy,
    /// Start of every session's URL, such as `http://127.0.0.1:41873`.
    pub base_url: String,
    /// How long a generation runs on after its client dropped, waiting for the identical request; and how
    /// long a finished answer is given again to the identical request.
    pub retry_grace: Duration,
    /// Longest wait for the engine to admit a request, or for its next token.
    pub engine_timeout: Duration,
    /// Time between keep-alive comments of a waiting stream.
    pub keep_alive: Duration,
    /// Which conversations of a session train.
    pub capture: CaptureScope,
    /// How calls become segments.
    pub builder: BuilderName,
    /// Bytes of all bodies of requests that are being read or made prompts of; who comes beyond is told to come again.
    pub body_room: usize,
    /// Longest wait for more of a request that a client has begun, or for its next on the same connection.
    pub client_patience: Duration,
    /// Set where people run the proxy themselves: its admin routes, and sessions for who brings none.
    pub admin: Option<Admin>,
}

impl ProxyOptions {
    /// Options with the defaults of run.toml, in front of a policy whose tool format is the template's own.
    pub fn new(engine: Arc<dyn Engine>, prompt: Arc<PromptBuilder>, model: &str, base_url: &str) -> Self {
        let source = Source::Policy(PolicySource {
            engine,
            tool_format: prompt.detected_tool_format(),
            prompt,
            routing: false,
        });
        Self::over(source, model, base_url)
    }

    /// Options with the defaults of run.toml.
    pub fn over(source: Source, model: &str, base_url: &str) -> Self {
        Self {
            source,
            model: model.to_owned(),
            window: 32_768,
            max_tokens: 4096,
            sampling: SamplingParams {
                temperature: 1.0,
                top_p: 1.0,
                top_k: -1,
            },
            sampling_policy: SamplingPolicy::Run,
            base_url: base_url.to_owned(),
            retry_grace: Duration::from_mins(1),
            engine_timeout: Duration::from_mins(10),
            keep_alive: Duration::from_secs(5),
            capture: CaptureScope::Main,
            builder: BuilderName::Segments,
            body_room: 256 << 20,
            client_patience: Duration::from_mins(2),
            admin: None,
        }
    }

    /// The policy, where it is what answers.
    pub fn policy(&self) -> Option<&PolicySource> {
        match &self.source {
            Source::Policy(policy) => Some(policy),
            Source::Hosted(_) => None,
        }
    }

    /// The policy's tokenizer.
    pub(super) fn tokenizer(&self) -> Option<&Tokenizer> {
        self.policy().map(|policy| policy.prompt.tokenizer())
    }
}

/// Whose sampling settings count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingPolicy {
    /// The run's; a request that asks for others is overridden and counted.
    Run,
    /// The agent's where it gives any (evaluation, batch inference).
    Agent,
}

/// One session: one trial's calls.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// The task worked on.
    pub task_id: String,
    /// Which episode of its group.
    pub episode_index: u32,
    /// Sampling of this session, where it differs from the run's (a greedy evaluation).
    pub sampling: Option<SamplingParams>,
    /// Model calls at most.
    pub turn_cap: Option<u32>,
    /// Answers without a tool call, in sequence, after which a conversation that offers tools is refused.
    pub max_consecutive_no_tool: Option<u32>,
    /// Where its calls are logged (`calls.jsonl`).
    pub call_log: Option<PathBuf>,
    /// Makes its sampling repeatable, as far as the engine is.
    pub seed: u64,
}

/// How an agent reaches its session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionTicket {
    /// Names the session.
    pub key: SessionKey,
    /// Its secret: `Authorization: Bearer <token>` or `x-api-key`.
    pub token: String,
    /// Base URL without `/v1`.
    pub url: String,
}

/// Everything a closed session leaves.
#[derive(Debug, Clone, PartialEq, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is something of its own that may have been seen"
)]
pub struct SessionCapture {
    /// What trains.
    pub segments: Vec<Segment>,
    /// What became of its tokens.
    pub audit: CaptureAudit,
    /// The account of every sampled token.
    pub ledger: Ledger,
    /// Dialect of the main conversation, as shards name it; empty where nothing was called.
    pub endpoint: String,
    /// Transcript of the main conversation: a JSON array of messages.
    pub messages: String,
    /// Time between requests and ends of answers, summed over all calls, in seconds.
    pub model_seconds: f32,
    /// Of which waiting for admission, in seconds.
    pub queue_wait_seconds: f32,
    /// Times between the end of an answer and the next request of its conversation, in seconds.
    pub tool_gaps: Vec<f32>,
    /// Requests whose sampling settings were overridden.
    pub n_sampling_overrides: u32,
    /// Answers to requests that offered tools.
    pub answers_with_tools: u32,
    /// Whether answers came from an API that gives no token ids: nothing of the session can train.
    pub without_ids: bool,
    /// Calls that ended because of the engine, not the policy.
    pub n_engine_errors: u32,
    /// Whether a call was refused because the window was full.
    pub context_overflow: bool,
    /// Whether a call was refused because the agent had stopped calling tools.
    pub no_tool_calls: bool,
    /// Whether a call was refused because the turn cap was reached.
    pub turn_cap_reached: bool,
}
