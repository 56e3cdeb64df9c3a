//! `lego serve-proxy`: the proxy alone in front of an engine; finished sessions become shards.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::PipelineError;
use super::first::First;
use super::front::{Front, load_prompt, serve, tool_format};
use crate::config::{RunConfig, UnparsedToolCall};
use crate::proxy::{Admin, FinishedSession, OnFinish, Proxy, ProxyOptions, Replay, SessionTicket, replay};
use crate::shard::{ShardMeta, ShardWriter, WriterOptions};
use crate::trajectory::{Episode, GroupId, Ledger, Outcome, SamplingParams, Timings, TrialId};

/// Why an episode is dropped of which not one call had an answer.
const NO_ANSWER: &str = "no_answer";

/// Time for running calls to end once a stop was asked for.
const DRAIN: Duration = Duration::from_secs(30);

/// A proxy to serve.
pub struct ServeJob {
    /// The configuration.
    pub config: RunConfig,
    /// Folder for shards of finished sessions and, below `calls`, the log of every session.
    pub capture: Option<PathBuf>,
    /// Whether clients that bring no session are given one.
    pub anonymous: bool,
    /// Opens the admin routes.
    pub admin_token: String,
    /// Whether a session is opened at once, for who wants its variables.
    pub open_session: bool,
    /// Fires when it should end.
    pub stop: CancellationToken,
}

/// A proxy that listens.
#[derive(Debug, Clone)]
pub struct Served {
    /// Such as `http://127.0.0.1:41873`.
    pub url: String,
    /// Served model name.
    pub model: String,
    /// Prompt and answer together, in tokens.
    pub window: usize,
    /// Tokens of one answer at most.
    pub max_tokens: u32,
    /// The session that was opened at once.
    pub session: Option<SessionTicket>,
    /// Whether other machines may reach it and are asked for no key.
    pub exposed: bool,
}

/// Serves until the stop; `listening` is called once clients can come. Calls that run at the stop may end.
/// Returns the shards that were written.
pub async fn serve_proxy(
    job: ServeJob,
    listening: impl FnOnce(&Served) -> Result<(), PipelineError>,
) -> Result<Vec<PathBuf>, PipelineError> {
    let config = &job.config;
    let front = Front::open(config, First::Model, &job.stop).await?;
    let model = front.options.model.clone();
    let (window, max_tokens) = (front.options.window, front.options.max_tokens);
    let shards = match &job.capture {
        Some(folder) => Some(Arc::new(Shards::create(
            folder,
            config,
            front.shard_meta(match config.run.name.as_str() {
                "" => "serve-proxy",
                name => name,
            }),
            Labels {
                model: model.clone(),
                tool_parser: front.tool_parser.clone(),
                sampling: front.options.sampling,
            },
        )?)),
        None => None,
    };
    let keep = shards.clone();
    let on_finish: OnFinish = Arc::new(move |finished| match &keep {
        Some(shards) => shards.take(finished).map_err(|error| error.to_string()),
        None => Ok(()),
    });
    let proxy = Proxy::new(ProxyOptions {
        admin: Some(Admin {
            token: job.admin_token.clone(),
            on_finish,
            call_logs: job.capture.as_ref().map(|folder| folder.join("calls")),
            anonymous: job.anonymous,
            turn_cap: config.proxy.turn_cap,
            seed: config.run.seed,
        }),
        ..front.options
    });
    let session = if job.open_session {
        proxy
            .open_by_hand()
            .map_err(|error| PipelineError::Config(error.to_string()))?
    } else {
        None
    };
    let ended = CancellationToken::new();
    let mut server = serve(&proxy, front.listener, &ended);
    listening(&Served {
        url: format!("http://{}", front.address),
        model,
        window,
        max_tokens,
        session,
        exposed: job.anonymous && !front.address.ip().is_loopback(),
    })?;
    tokio::select! {
        () = job.stop.cancelled() => {}
        ended = &mut server => {
            ended.map_err(|error| PipelineError::Worker(error.to_string()))??;
            return Ok(written(shards.as_deref()));
        }
    }
    proxy.drain(DRAIN).await;
    let unfinished = proxy.open_sessions();
    if shards.is_some() && unfinished > 0 {
        tracing::warn!("{unfinished} sessions were never finished: no shard holds them, only their call logs do");
    }
    if let Some((unwritten, reason)) = proxy.write_unwritten(DRAIN).await {
        tracing::warn!(
            "{unwritten} sessions were finished and could not be written: only their call logs hold them ({reason})"
        );
    }
    ended.cancel();
    server
        .await
        .map_err(|error| PipelineError::Worker(error.to_string()))??;
    Ok(written(shards.as_deref()))
}

/// Runs a recorded session through the configured policy's template and parsers, and today's capture.
pub fn replay_session(config: &RunConfig, log: &Path) -> Result<Replay, PipelineError> {
    let prompt = load_prompt(config)?;
    let format = tool_format(config, &prompt)?;
    let (scope, builder) = (config.capture.train, config.capture.builder);
    replay(log, &prompt, format, scope, builder).map_err(|error| PipelineError::Config(error.to_string()))
}

fn written(shards: Option<&Shards>) -> Vec<PathBuf> {
    shards
        .map(|shards| shards.with(|_, written| std::mem::take(written)))
        .unwrap_or_default()
}

/// What every episode of this server says of who produced it.
struct Labels {
    model: String,
    tool_parser: String,
    sampling: SamplingParams,
}

/// Shards that are being written.
struct Shards {
    writer: Mutex<(ShardWriter, Vec<PathBuf>)>,
    labels: Labels,
    run_id: String,
    unparsed_zeroes_reward: bool,
}

impl Shards {
    fn create(folder: &Path, config: &RunConfig, meta: ShardMeta, labels: Labels) -> Result<Self, PipelineError> {
        fs_err::create_dir_all(folder)?;
        let run_id = meta.run_id.clone();
        let name = format!("proxy{}", std::process::id());
        let writer = ShardWriter::new(folder, &name, meta, WriterOptions::default())?;
        Ok(Self {
            writer: Mutex::new((writer, Vec::new())),
            labels,
            run_id,
            unparsed_zeroes_reward: config.capture.unparsed_tool_call == UnparsedToolCall::ZeroReward,
        })
    }

    fn with<T>(&self, work: impl FnOnce(&mut ShardWriter, &mut Vec<PathBuf>) -> T) -> T {
        let mut open = self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        let (writer, written) = &mut *open;
        work(writer, written)
    }

    /// Makes a finished session durable: who is told that it was finished never loses it.
    fn take(&self, finished: &FinishedSession) -> Result<(), PipelineError> {
        let episode = self.episode(finished);
        self.with(|writer, written| {
            written.extend(writer.push_durable(&episode)?);
            Ok(())
        })
    }

    fn episode(&self, finished: &FinishedSession) -> Episode {
        let FinishedSession {
            key,
            options,
            opened_at,
            ended_at,
            reward,
            capture,
        } = finished.clone();
        let total_s = ended_at.duration_since(opened_at).as_secs_f32();
        let outcome = if capture.context_overflow {
            Outcome::Overlong
        } else if capture.turn_cap_reached {
            Outcome::MaxTurnsReached
        } else {
            Outcome::Completed
        };
        let zeroed = self.unparsed_zeroes_reward && capture.audit.num_parse_errors > 0;
        let mut gaps = capture.tool_gaps.clone();
        gaps.sort_by(f32::total_cmp);
        let group = GroupId::training(&options.task_id, 0);
        Episode {
            run_id: self.run_id.clone(),
            step: 0,
            // Who finishes a task twice has two episodes: the session's name keeps them apart.
            episode_id: format!("{}#{key}", group.episode(options.episode_index)).into(),
            group_id: group,
            trial_id: TrialId::fresh(),
            trial_name: format!("{}__{key}", options.task_id),
            data_source: "serve-proxy".to_owned(),
            attempt: 0,
            agent: "external".to_owned(),
            agent_version: String::new(),
            model: self.labels.model.clone(),
            tool_parser: self.labels.tool_parser.clone(),
            endpoint: capture.endpoint.clone(),
            drop_reason: if capture.audit.num_turns == 0 && capture.segments.is_empty() {
                // There is nothing that a reward could be for.
                Some(NO_ANSWER.to_owned())
            } else if capture.without_ids {
                Some(Ledger::NO_TOKEN_IDS.to_owned())
            } else {
                reward.is_none().then(|| "no_reward".to_owned())
            },
            reward: reward.map(|reward| if zeroed { 0.0 } else { reward }),
            rewards: BTreeMap::new(),
            sampling: options.sampling.unwrap_or(self.labels.sampling),
            task_id: options.task_id,
            outcome,
            failure: None,
            segments: capture.segments,
            audit: capture.audit,
            hack_flags: Vec::new(),
            started_at: opened_at,
            timings: Timings {
                agent_s: total_s,
                model_s: capture.model_seconds,
                tool_s: gaps.iter().sum(),
                total_s,
                tool_gap_p90_s: gaps.get(gaps.len() * 9 / 10).copied().unwrap_or_default(),
                queue_wait_s: capture.queue_wait_seconds,
                ..Timings::default()
            },
            messages: capture.messages,
        }
    }
}
