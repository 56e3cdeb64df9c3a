//! The policy as clients meet it: template, engine, address, and the settings of the proxy in front.
//!
//! Whoever serves it, in a run or alone, opens it here; sandboxes and shards are theirs.

use std::net::SocketAddr;
use std::sync::Arc;

use lego_policy::ModelConfig;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::PipelineError;
use super::engines::{self, Serving, Started};
use super::first::First;
use super::remote_engines;
use super::run::tokenizer_dir;
use crate::config::{EngineKind, ReasoningParser, RunConfig};
use crate::inference::HostedApi;
use crate::prompt::{PromptBuilder, Thinking, ToolFormat};
use crate::proxy::{PolicySource, Proxy, ProxyOptions, Source};
use crate::shard::ShardMeta;

/// Window that agents are told of in front of a hosted model, where `policy.max_model_len` says nothing: its own is not
/// known here, and a prompt that is too long is refused by its API.
const HOSTED_WINDOW: usize = 128 << 10;

/// A policy, or a hosted model, that is ready to be served.
pub(super) struct Front {
    /// Of the proxy, but for what its user adds.
    pub options: ProxyOptions,
    pub listener: TcpListener,
    pub address: SocketAddr,
    /// Name of the tool-call format; empty where the policy knows none.
    pub tool_parser: String,
    /// Where new weights go.
    pub serving: Serving,
    vocab_size: usize,
}

/// What answers, ready.
struct Answering {
    source: Source,
    serving: Serving,
    window: usize,
    /// 0 where no token ids are given.
    vocab_size: usize,
    /// Name of the model.
    model: String,
}

impl Front {
    /// Starts the engine, or connects to it, and takes the address. A stop ends the wait for an engine at once.
    pub(super) async fn open(
        config: &RunConfig,
        first: First,
        stop: &CancellationToken,
    ) -> Result<Self, PipelineError> {
        let answering = async {
            match (config.engine.kind, &first) {
                (_, First::Nobody) => Ok(answering(config, HostedApi::nobody()?)),
                (EngineKind::Openai, First::Model) => Ok(answering(config, remote_engines::hosted(config).await?)),
                _ => policy(config, first).await,
            }
        };
        let answering = stop
            .run_until_cancelled(answering)
            .await
            .ok_or(PipelineError::Stopped)??;
        let listen_error = |source| PipelineError::Listen {
            address: config.proxy.listen.clone(),
            source,
        };
        let listener = TcpListener::bind(&config.proxy.listen).await.map_err(listen_error)?;
        let address = listener.local_addr()?;
        let here = || format!("http://{address}");
        let base_url = config.proxy.public_url.clone().unwrap_or_else(here);
        let tool_parser = match &answering.source {
            Source::Policy(policy) => policy.tool_format.map(ToolFormat::name).unwrap_or_default(),
            Source::Hosted(_) => "",
        };
        let tool_parser = tool_parser.to_owned();
        let options = ProxyOptions {
            window: answering.window,
            max_tokens: config.rollout.max_tokens,
            sampling: config.rollout.sampling(),
            retry_grace: config.proxy.retry_grace.0,
            capture: config.capture.train,
            builder: config.capture.builder,
            ..ProxyOptions::over(answering.source, &answering.model, &base_url)
        };
        Ok(Self {
            options,
            listener,
            address,
            tool_parser,
            serving: answering.serving,
            vocab_size: answering.vocab_size,
        })
    }

    /// What shards of its episodes say of themselves.
    pub(super) fn shard_meta(&self, run_id: &str) -> ShardMeta {
        let (tokenizer, template) = match self.options.policy() {
            Some(policy) => (policy.prompt.tokenizer().sha256(), policy.prompt.template().sha256()),
            None => ("", ""),
        };
        ShardMeta {
            run_id: run_id.to_owned(),
            producer: concat!("lego ", env!("CARGO_PKG_VERSION")).to_owned(),
            tokenizer_sha256: tokenizer.to_owned(),
            template_sha256: template.to_owned(),
            vocab_size: self.vocab_size as u32,
        }
    }
}

/// The policy behind its engine.
async fn policy(config: &RunConfig, first: First) -> Result<Answering, PipelineError> {
    let prompt = Arc::new(load_prompt(config)?);
    let shape = shape(config)?;
    let model_window = shape.max_position_embeddings;
    let Started {
        engine,
        serving,
        window,
    } = engines::start(config, first, model_window, &prompt).await?;
    let window = config
        .policy
        .max_model_len
        .map_or(window.min(model_window), |own| window.min(own as usize));
    let model = match config.engine.served_model.as_str() {
        "" => "policy".to_owned(),
        name => name.to_owned(),
    };
    Ok(Answering {
        source: Source::Policy(PolicySource {
            engine,
            tool_format: tool_format(config, &prompt)?,
            prompt,
            routing: config.records_routing(),
        }),
        serving,
        window,
        vocab_size: shape.vocab_size,
        model,
    })
}

/// A hosted model behind its API; or nobody, for agents that ask none.
fn answering(config: &RunConfig, api: HostedApi) -> Answering {
    Answering {
        model: api.model().to_owned(),
        source: Source::Hosted(Arc::new(api)),
        serving: Serving::Fixed,
        window: config.policy.max_model_len.map_or(HOSTED_WINDOW, |own| own as usize),
        vocab_size: 0,
    }
}

/// Answers clients until `stop`.
pub(super) fn serve(proxy: &Proxy, listener: TcpListener, stop: &CancellationToken) -> JoinHandle<std::io::Result<()>> {
    let (proxy, stopped) = (proxy.clone(), stop.clone());
    tokio::spawn(async move { proxy.serve(listener, stopped.cancelled_owned()).await })
}

/// The policy's tokenizer and template.
pub(super) fn load_prompt(config: &RunConfig) -> Result<PromptBuilder, PipelineError> {
    let template = config.policy.chat_template.as_deref();
    let prompt = PromptBuilder::load(&tokenizer_dir(config), template)?;
    Ok(match config.engine.reasoning_parser {
        ReasoningParser::Auto => prompt,
        ReasoningParser::None => prompt.with_thinking(Thinking::None),
        ReasoningParser::Think => prompt.with_thinking(Thinking::Tagged),
        ReasoningParser::ThinkOpened => prompt.with_thinking(Thinking::Opened),
    })
}

/// The policy's shape, without its weights.
fn shape(config: &RunConfig) -> Result<ModelConfig, PipelineError> {
    let path = config.policy.model.join("config.json");
    let wrong = |reason: String| PipelineError::Config(format!("policy.model: {reason}"));
    let text = fs_err::read_to_string(&path).map_err(|error| wrong(error.to_string()))?;
    ModelConfig::from_json(&text).map_err(|error| wrong(format!("{}: {error}", path.display())))
}

pub(super) fn tool_format(config: &RunConfig, prompt: &PromptBuilder) -> Result<Option<ToolFormat>, PipelineError> {
    match config.engine.tool_parser.as_str() {
        "auto" => Ok(prompt.detected_tool_format()),
        name => ToolFormat::from_name(name).map(Some).ok_or_else(|| {
            PipelineError::Config(format!(
                "engine.tool_parser: expected `auto` or {}, found `{name}`",
                ToolFormat::all()
                    .map(|format| format!("`{}`", format.name()))
                    .collect::<Vec<_>>()
                    .join(", ")
            ))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::testing::quickstart_dir;

    #[test]
    fn thinking_is_read_as_the_run_says() {
        let mut config = RunConfig::default();
        config.policy.model = quickstart_dir();
        for (parser, expected) in [
            (ReasoningParser::Auto, Thinking::None),
            (ReasoningParser::None, Thinking::None),
            (ReasoningParser::Think, Thinking::Tagged),
            (ReasoningParser::ThinkOpened, Thinking::Opened),
        ] {
            config.engine.reasoning_parser = parser;
            assert_eq!(load_prompt(&config).unwrap().thinking(), expected);
        }
    }
}
