//! Runs the task's own tests in the sandbox that the agent left, and reads the reward they wrote.
//!
//! The tests enter only now; what the agent left running is ended first; rewards count only when they
//! were written after that. A reward that is missing or unreadable is an error, never a zero.

mod evidence;
mod reward;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sandbox::{ExecRequest, Sandbox, SandboxError};

pub use evidence::HackFlag;

const VERIFIER_LOGS: &str = "/logs/verifier";
const TESTS: &str = "/tests";
/// The tests' output, in the host's folder of verifier logs.
const OUTPUT: &str = "test-stdout.txt";

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The tests' time-out; their processes are killed when it has passed.
    pub timeout: Duration,
    /// `[verifier] env` of the task, resolved.
    pub env: BTreeMap<String, String>,
    /// Host folder for what the verifier wrote (reward, reports) and its output; made where it is missing.
    pub logs: PathBuf,
    /// Bytes kept of the tests' output: head and tail.
    pub output_limit: usize,
    /// Paths below the workdir that belong to the verifier: a change there is flagged.
    pub protected: Vec<String>,
}

impl VerifyOptions {
    /// With 1 MiB of output, nothing in the environment, nothing protected.
    pub fn new(timeout: Duration, logs: impl Into<PathBuf>) -> Self {
        Self {
            timeout,
            env: BTreeMap::new(),
            logs: logs.into(),
            output_limit: 1 << 20,
            protected: Vec::new(),
        }
    }
}

/// What the tests said.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The scalar reward.
    pub reward: f32,
    /// Every named reward, `reward` among them.
    pub rewards: BTreeMap<String, f64>,
    /// The tests' output, bounded.
    pub output: String,
    /// Exit code of the tests. It does not make the reward; the reward file does.
    pub exit_code: i32,
    /// From the start of the tests to their end.
    pub duration: Duration,
    /// Evidence that the reward was tampered with.
    pub flags: Vec<HackFlag>,
}

/// Why there is no reward. None of these is a reward of zero.
#[derive(Debug, thiserror::Error)]
pub enum VerifierError {
    /// The task has no tests.
    #[error("`{0}` is missing: a task's tests are run by `tests/test.sh`")]
    NoTests(PathBuf),
    /// They did not end.
    #[error("the tests did not end within {0:?} and were killed")]
    Timeout(Duration),
    /// They ended without a reward.
    #[error(
        "the tests ended with exit code {exit_code} and wrote neither reward.json nor reward.txt in {VERIFIER_LOGS}"
    )]
    Missing {
        /// Of the tests.
        exit_code: i32,
    },
    /// They were killed: by themselves, the program under test, or the memory limit. A reward that stands there then is
    /// not theirs for certain.
    #[error("the tests were killed by signal {signal} before they had ended")]
    Killed {
        /// That killed them.
        signal: i32,
    },
    /// They wrote something that is no reward.
    #[error("{VERIFIER_LOGS}/{file} holds no reward: {reason}")]
    Invalid {
        /// Its name.
        file: &'static str,
        /// What was expected and what was found.
        reason: String,
    },
    /// The sandbox failed.
    #[error("the tests could not be run")]
    Sandbox(#[from] SandboxError),
    /// The host's folder of logs cannot be written or read.
    #[error("the verifier's logs in `{path}` cannot be kept")]
    Logs {
        /// The folder or file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl VerifierError {
    /// Whether what the agent left could have brought this about: a poisoned test runner, a filled disk. Such an end,
    /// repeated, must not let an agent out of a bad grade: the caller decides that it is graded 0 and flagged rather
    /// than dropped. A sandbox that is gone is never the agent's doing: nothing inside can end its first process.
    pub fn may_be_the_agents_doing(&self) -> bool {
        match self {
            Self::Timeout(_) | Self::Missing { .. } | Self::Killed { .. } | Self::Invalid { .. } => true,
            Self::Sandbox(error) => matches!(
                error,
                SandboxError::Exec { .. } | SandboxError::Transfer { .. } | SandboxError::NotFound { .. }
            ),
            Self::NoTests(_) | Self::Logs { .. } => false,
        }
    }
}

/// Scores the sandbox by the task's tests in `tests` (a host folder with `test.sh`).
///
/// # Errors
/// Whenever there is no valid reward; see [`VerifierError`].
pub async fn verify(sandbox: &dyn Sandbox, tests: &Path, options: &VerifyOptions) -> Result<Verdict, VerifierError> {
    let script = tests.join("test.sh");
    let shell = reward::shell(&script).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => VerifierError::NoTests(script.clone()),
        _ => VerifierError::Logs {
            path: script.clone(),
            source: error,
        },
    })?;
    let keep = |path: &Path| {
        let path = path.to_owned();
        move |source| VerifierError::Logs { path, source }
    };
    fs_err::tokio::create_dir_all(&options.logs)
        .await
        .map_err(keep(&options.logs))?;

    let left_running = sandbox.end_processes().await?;
    let flags = evidence::gather(sandbox, left_running, &options.protected).await?;
    sandbox.reset_dir(VERIFIER_LOGS).await?;
    sandbox.reset_dir(TESTS).await?;
    sandbox.upload(tests, TESTS).await?;

    let run = ExecRequest {
        argv: vec![shell, sandbox.path("/tests/test.sh")],
        env: options.env.clone(),
        cwd: None,
        user: None,
        stdin: None,
        timeout: options.timeout,
        output_limit: options.output_limit,
    };
    let ran = sandbox.exec(run).await?;
    // What the tests started must not write any more while the reward is read.
    sandbox.end_processes().await?;

    let taken = tempfile::tempdir_in(&options.logs).map_err(keep(&options.logs))?;
    let folder = taken.path().join("verifier");
    sandbox.download(VERIFIER_LOGS, &folder).await?;
    let output = folder.join(OUTPUT);
    fs_err::tokio::write(&output, &ran.output)
        .await
        .map_err(keep(&output))?;
    let read = reward::read(&folder);
    reward::keep(&folder, &options.logs).map_err(keep(&options.logs))?;

    if ran.timed_out {
        return Err(VerifierError::Timeout(options.timeout));
    }
    let rewards = match read {
        // Also where a reward stands there: whoever killed the tests may have written it.
        Ok(_) | Err(VerifierError::Missing { .. }) if ran.exit_code > 128 => {
            return Err(VerifierError::Killed {
                signal: ran.exit_code - 128,
            });
        }
        Err(VerifierError::Missing { .. }) => {
            return Err(VerifierError::Missing {
                exit_code: ran.exit_code,
            });
        }
        read => read?,
    };
    let (reward, rewards) = rewards;
    let (exit_code, duration) = (ran.exit_code, ran.duration);
    Ok(Verdict {
        reward: reward as f32,
        rewards,
        output: ran.output,
        exit_code,
        duration,
        flags,
    })
}
