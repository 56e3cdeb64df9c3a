//! `builtin`: a small agent loop in this process, with one tool, `bash`.
//!
//! It calls the model over HTTP like any other agent; only its commands enter the sandbox. A policy may be
//! trained on these very strings, so that none of them changes without a new warm start.

mod bash;
mod chat;
#[cfg(test)]
mod tests;
mod transcript;

use std::collections::BTreeMap;
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use tokio::time::Instant;

use self::bash::BashTool;
use self::chat::{ChatClient, ChatFailure};
use self::transcript::Transcript;
use super::{AgentEnd, AgentJob, AgentReport, Scaffold, ScaffoldError};

/// The system message.
pub const SYSTEM_PROMPT: &str = "Fix the program.";

/// What the policy is told after an answer without a command, while `max_consecutive_no_tool` allows another.
const NUDGE: &str = "Run a command, or answer once more without one if you are done.";

/// The tool, as the request names it.
pub fn bash_tool() -> Value {
    json!({"type": "function", "function": {
        "name": "bash",
        "description": "Run a command in the project folder.",
        "parameters": {
            "type": "object",
            "properties": {"command": {"type": "string", "description": "The command."}},
            "required": ["command"],
        },
    }})
}

/// What bounds one command and one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinLimits {
    /// A command is killed after this time, or at the end of the agent's own.
    pub command: Duration,
    /// Tries of one model call, the first included.
    pub model_attempts: u32,
    /// Pause before the second try; doubles with each further one.
    pub model_backoff: Duration,
}

impl Default for BuiltinLimits {
    fn default() -> Self {
        Self {
            command: Duration::from_mins(1),
            model_attempts: 5,
            model_backoff: Duration::from_millis(250),
        }
    }
}

/// The agent that is part of the binary.
#[derive(Debug, Clone)]
pub struct Builtin {
    env: BTreeMap<String, String>,
    limits: BuiltinLimits,
}

impl Builtin {
    /// Its commands see `env` beside the sandbox's own.
    pub fn new(env: BTreeMap<String, String>) -> Self {
        Self::with_limits(env, BuiltinLimits::default())
    }

    /// With other bounds than the usual ones.
    pub fn with_limits(env: BTreeMap<String, String>, limits: BuiltinLimits) -> Self {
        Self { env, limits }
    }
}

#[async_trait]
impl Scaffold for Builtin {
    fn name(&self) -> &'static str {
        "builtin"
    }

    fn version(&self) -> &'static str {
        env!("CARGO_PKG_VERSION")
    }

    async fn run(&self, job: AgentJob) -> Result<AgentReport, ScaffoldError> {
        let mut episode = Episode::begin(self, &job)?;
        let report = tokio::select! {
            biased;
            () = job.cancel.cancelled() => Err(ScaffoldError::Cancelled),
            report = episode.drive() => report,
        };
        match &report {
            Ok(report) => episode.transcript.end(report)?,
            Err(error) => episode.transcript.failure(error)?,
        }
        report
    }
}

/// One run of the loop.
struct Episode<'a> {
    job: &'a AgentJob,
    chat: ChatClient,
    bash: BashTool<'a>,
    transcript: Transcript,
    messages: Vec<Value>,
    /// Answers without a tool call since the last one with.
    without_tool: u32,
    deadline: Instant,
}

impl<'a> Episode<'a> {
    fn begin(builtin: &'a Builtin, job: &'a AgentJob) -> Result<Self, ScaffoldError> {
        let deadline = Instant::now() + job.timeout;
        let bash = BashTool {
            sandbox: job.sandbox.as_ref(),
            env: &builtin.env,
            user: &job.user,
            timeout: builtin.limits.command,
            deadline,
        };
        let chat = ChatClient::new(&job.session_url, &job.session_token, builtin.limits)?;
        let transcript = Transcript::create(&job.logs().join("trajectory.jsonl"))?;
        Ok(Self {
            job,
            chat,
            bash,
            transcript,
            messages: Vec::new(),
            without_tool: 0,
            deadline,
        })
    }

    fn push(&mut self, message: Value) -> Result<(), ScaffoldError> {
        self.transcript.message(&message)?;
        self.messages.push(message);
        Ok(())
    }

    async fn drive(&mut self) -> Result<AgentReport, ScaffoldError> {
        self.push(json!({"role": "system", "content": SYSTEM_PROMPT}))?;
        self.push(json!({"role": "user", "content": self.job.instruction.trim()}))?;
        let mut report = AgentReport::uncounted(AgentEnd::MaxTurns);
        while report.turns < self.job.max_turns {
            if let Some(end) = self.turn(&mut report).await? {
                report.end = end;
                break;
            }
        }
        Ok(report)
    }

    /// One answer and its tool calls; `Some` ends the episode.
    async fn turn(&mut self, report: &mut AgentReport) -> Result<Option<AgentEnd>, ScaffoldError> {
        let asked = Instant::now();
        let request = json!({"model": self.job.model, "messages": self.messages, "tools": [bash_tool()]});
        let answer = tokio::time::timeout_at(self.deadline, self.chat.complete(&request)).await;
        report.model_s += asked.elapsed().as_secs_f32();
        let answer = match answer {
            Err(_elapsed) => return Ok(Some(AgentEnd::Timeout)),
            Ok(Err(ChatFailure::Overlong)) => return Ok(Some(AgentEnd::Overlong)),
            Ok(Err(ChatFailure::TurnCap)) => return Ok(Some(AgentEnd::MaxTurns)),
            Ok(Err(ChatFailure::Endpoint(reason))) => return Err(ScaffoldError::Model(reason)),
            Ok(Ok(answer)) => answer,
        };
        report.turns += 1;
        self.push(answer.message)?;
        if answer.cut {
            return Ok(Some(AgentEnd::Overlong));
        }
        if answer.tool_calls.is_empty() {
            self.without_tool += 1;
            if self.without_tool >= self.job.max_consecutive_no_tool {
                return Ok(Some(AgentEnd::Completed));
            }
            self.push(json!({"role": "user", "content": NUDGE}))?;
            return Ok(None);
        }
        self.without_tool = 0;
        for call in answer.tool_calls {
            if Instant::now() >= self.deadline {
                return Ok(Some(AgentEnd::Timeout));
            }
            let began = Instant::now();
            let content = self.bash.answer(&call).await;
            report.tool_s += began.elapsed().as_secs_f32();
            report.tool_calls += 1;
            self.push(json!({"role": "tool", "tool_call_id": call.id, "content": content?}))?;
        }
        Ok((Instant::now() >= self.deadline).then_some(AgentEnd::Timeout))
    }
}
