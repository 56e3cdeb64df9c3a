//! How an agent's run ended and what it cost.

/// How the agent ended. All of these are the policy's doing, and are graded.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum AgentEnd {
    /// By itself.
    Completed,
    /// At its turn cap.
    MaxTurns,
    /// The window or the output budget was exhausted.
    Overlong,
    /// Out of time.
    Timeout,
    /// It crashed or exited non-zero.
    Failed {
        /// Exit code, where there is one.
        exit_code: Option<i32>,
        /// What it said last.
        detail: String,
    },
}

/// One run of an agent, ended.
///
/// The counts are what the scaffold itself saw; an agent that runs as a process of its own reports zeros,
/// and the proxy's record stands for it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct AgentReport {
    /// How it ended.
    pub end: AgentEnd,
    /// Answers of the model.
    pub turns: u32,
    /// Tool calls in them, refused ones included.
    pub tool_calls: u32,
    /// Seconds spent waiting for the model.
    pub model_s: f32,
    /// Seconds spent in tools.
    pub tool_s: f32,
    /// What its logs lack.
    pub cut: CutLogs,
}

/// What the logs of an agent lack because it wrote more than is kept.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct CutLogs {
    /// Bytes of what it printed, out of the middle.
    pub printed: u64,
    /// Whether there were more of its own log files.
    pub files: bool,
}

impl AgentReport {
    /// A run whose cost the scaffold did not see.
    pub fn uncounted(end: AgentEnd) -> Self {
        Self {
            end,
            turns: 0,
            tool_calls: 0,
            model_s: 0.0,
            tool_s: 0.0,
            cut: CutLogs::default(),
        }
    }
}
