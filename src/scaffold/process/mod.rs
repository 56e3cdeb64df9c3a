//! Agents that are programs of their own: run unmodified inside the sandbox, pointed at the proxy.
//!
//! An adapter says how its agent is started without a person and how its exit is read; what all of them share is
//! here. Nothing here adds a prompt of ours or sees tokens.

mod adapter;
mod claude_code;
mod codex;
mod custom;
mod mini_swe_agent;
mod opencode;
mod openhands;
mod probe;
mod terminus_2;
#[cfg(test)]
mod tests;

pub(super) use adapter::{Adapter, Endpoint, Launch};
pub(super) use claude_code::ClaudeCode;
pub(super) use codex::Codex;
pub(super) use custom::Custom;
pub(super) use mini_swe_agent::MiniSweAgent;
pub(super) use opencode::OpenCode;
pub(super) use openhands::OpenHands;
pub(super) use terminus_2::Terminus2;

use std::time::Duration;

use async_trait::async_trait;
use tokio::sync::OnceCell;

use super::{AgentEnd, AgentJob, AgentReport, CutLogs, Scaffold, ScaffoldError};
use crate::config::ScaffoldSection;
use crate::sandbox::{ExecOutput, ExecRequest, Isolation, Sandbox};

/// Kept of what an agent prints, its beginning and its end.
const OUTPUT_LIMIT: usize = 8 << 20;
/// Kept of an agent's own log files.
const LOGS_LIMIT: u64 = 64 << 20;
/// Beside those, where there were more.
const CUT_MARK: &str = "own.cut";
/// Time for an agent to end by itself once the proxy takes no more calls of it.
const AFTER_LAST_CALL: Duration = Duration::from_secs(10);
/// Time for small commands around the agent.
const SMALL: Duration = Duration::from_secs(30);
/// Where agents keep their logs inside.
const LOGS: &str = "/logs/agent";
const HOME: &str = "/root";
const ANY_HOME: &str = "/tmp/.lego-agent";

/// An agent behind its adapter.
pub(super) struct ProcessAgent {
    adapter: Box<dyn Adapter>,
    section: ScaffoldSection,
    version: OnceCell<String>,
}

impl ProcessAgent {
    pub(super) fn new(adapter: impl Adapter + 'static, section: &ScaffoldSection) -> Self {
        Self {
            adapter: Box::new(adapter),
            section: section.clone(),
            version: OnceCell::new(),
        }
    }

    /// Starts the agent and waits for its end; one that runs on after its last call is ended.
    async fn drive(&self, job: &AgentJob, request: ExecRequest) -> Result<ExecOutput, ScaffoldError> {
        let ended = job.sandbox.exec(request);
        tokio::pin!(ended);
        let out_of_calls = async {
            job.no_more_calls.cancelled().await;
            tokio::time::sleep(AFTER_LAST_CALL).await;
        };
        tokio::select! {
            biased;
            () = job.cancel.cancelled() => return Err(ScaffoldError::Cancelled),
            output = &mut ended => return Ok(output?),
            () = out_of_calls => {}
        }
        job.sandbox.end_processes().await?;
        Ok(ended.await?)
    }

    fn request(&self, launch: Launch, timeout: Duration) -> ExecRequest {
        let mut env = launch.env;
        env.insert("PATH".to_owned(), probe::path(&self.section));
        // What the user wrote stands above what the adapter sets.
        env.extend(self.section.env.clone());
        let mut argv = launch.argv;
        argv.extend(self.section.args.iter().cloned());
        ExecRequest {
            argv,
            env,
            stdin: launch.stdin,
            timeout,
            output_limit: OUTPUT_LIMIT,
            ..ExecRequest::shell("")
        }
    }
}

#[async_trait]
impl Scaffold for ProcessAgent {
    fn name(&self) -> &str {
        self.adapter.name()
    }

    fn version(&self) -> &str {
        self.version.get().map_or("", String::as_str)
    }

    fn runs_inside(&self) -> bool {
        true
    }

    fn missing_here(&self) -> Option<String> {
        probe::missing_here(self.adapter.as_ref(), &self.section)
    }

    async fn probe(&self, sandbox: &dyn Sandbox) -> Result<(), ScaffoldError> {
        let probed = probe::version(self.adapter.as_ref(), &self.section, sandbox);
        self.version.get_or_try_init(|| probed).await.map(|_| ())
    }

    async fn run(&self, job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        let endpoint = Endpoint {
            url: &job.session_url,
            token: &job.session_token,
            model: &job.model,
            window: job.window,
            max_tokens: job.max_tokens,
            max_turns: job.max_turns,
            instruction: &job.instruction,
            workdir: job.sandbox.path(job.sandbox.workdir()),
            // The user inside may be any, with a home folder that is not there.
            home: match job.sandbox.isolation() {
                Isolation::Container => ANY_HOME.to_owned(),
                _ => job.sandbox.path(HOME),
            },
            logs: job.sandbox.path(LOGS),
        };
        let launch = self.adapter.launch(&endpoint);
        for (path, text) in &launch.files {
            put(&job, path, text).await.map_err(|reason| self.setup(reason))?;
        }
        let mut request = self.request(launch, job.timeout);
        request.user.clone_from(&job.user);
        let ended = self.drive(&job, request).await;
        if let Ok(output) = &ended {
            let log = job.logs().join(format!("{}.log", self.adapter.name()));
            fs_err::write(log, &output.output).map_err(|error| self.setup(error.to_string()))?;
        }
        let files_cut = self.collect_logs(&job).await;
        let output = ended?;
        let end = if output.timed_out {
            AgentEnd::Timeout
        } else {
            self.adapter.end(&output)
        };
        Ok(AgentReport {
            cut: CutLogs {
                printed: output.truncated,
                files: files_cut,
            },
            ..AgentReport::uncounted(end)
        })
    }
}

impl ProcessAgent {
    fn setup(&self, reason: String) -> ScaffoldError {
        ScaffoldError::Setup {
            agent: self.adapter.name().to_owned(),
            reason,
        }
    }

    /// The agent's own logs, and whether they had to be cut. They are for people: a trial does not fail for them.
    async fn collect_logs(&self, job: &AgentJob) -> bool {
        let to = job.logs().join("own");
        match tokio::time::timeout(SMALL, job.sandbox.download_within(LOGS, &to, LOGS_LIMIT)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) if error.is_too_large() => {
                let mark = format!("{LOGS} held more than {LOGS_LIMIT} bytes: `own` is what came first of it\n");
                if let Err(error) = fs_err::write(job.logs().join(CUT_MARK), mark) {
                    tracing::warn!(%error, "the agent's logs are cut");
                }
                return true;
            }
            Ok(Err(error)) => tracing::debug!(%error, "no logs of the agent"),
            Err(_) => tracing::warn!("the agent's logs were not copied within {SMALL:?}"),
        }
        false
    }
}

/// Writes a file of the agent's inside.
async fn put(job: &AgentJob, path: &str, text: &str) -> Result<(), String> {
    let mut request = ExecRequest::shell("mkdir -p \"$(dirname \"$0\")\" && cat >\"$0\"");
    request.argv.push(path.to_owned());
    request.stdin = Some(text.to_owned());
    request.user.clone_from(&job.user);
    request.timeout = SMALL;
    let output = job.sandbox.exec(request).await.map_err(|error| error.to_string())?;
    if output.exit_code == 0 {
        Ok(())
    } else {
        Err(format!("{path} cannot be written inside: {}", output.output.trim()))
    }
}
