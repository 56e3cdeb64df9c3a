//! Runs the task's own tests in the sandbox that the agent left, and reads the reward they wrote.
//!
//! The tests enter only now; what the agent left running is ended first; rewards count only when they
//! were written after that. A reward that is missing or unreadable is an error, never a zero.

mod changes;
mod evidence;
mod owned;
mod report;
mod reward;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sandbox::{ExecRequest, Sandbox, SandboxError};

pub use changes::Changes;
pub use evidence::{HackFlag, Kind, Scene, Watch, examine, sought};
pub use owned::{Owned, owned_paths};
pub use report::{Report, Tally, TestSpec, grade_awk, log_formats, log_rules};
pub use reward::{Rewards, named as named_rewards};

const VERIFIER_LOGS: &str = "/logs/verifier";
const TESTS: &str = "/tests";
/// The tests' output, in the host's folder of verifier logs.
const OUTPUT: &str = "test-stdout.txt";
/// What it says of single tests, beside it.
const REPORT: &str = "report.json";
/// Bytes of tests that are compared with what they were.
const TESTS_LIMIT: u64 = 64 << 20;
/// Tests that print this much more than is kept drown what they say.
const FLOOD: u64 = 64 << 20;

/// How to verify.
#[derive(Debug, Clone)]
pub struct VerifyOptions {
    /// The tests' time-out; their processes are killed when it has passed.
    pub timeout: Duration,
    /// `[verifier] env` of the task, resolved.
    pub env: BTreeMap<String, String>,
    /// Who they run as; `None` is the image's user.
    pub user: Option<String>,
    /// Whether the sandbox's image holds them: nothing is uploaded.
    pub bundled: bool,
    /// Host folder for what the verifier wrote (reward, reports) and its output; made where it is missing.
    pub logs: PathBuf,
    /// Bytes kept of the tests' output: head and tail.
    pub output_limit: usize,
}

impl VerifyOptions {
    /// With 8 MiB of output and nothing in the environment.
    pub fn new(timeout: Duration, logs: impl Into<PathBuf>) -> Self {
        Self {
            timeout,
            env: BTreeMap::new(),
            user: None,
            bundled: false,
            logs: logs.into(),
            output_limit: 8 << 20,
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
    /// Evidence that the reward was tampered with while the tests ran.
    pub flags: Vec<HackFlag>,
    /// What the output says of single tests, where the task lists them.
    pub report: Option<Report>,
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
    /// The task lists its tests, and the output shows none that ran.
    #[error("no test ran: the output (exit code {exit_code}) holds no result of any runner")]
    NotRun {
        /// Of the tests.
        exit_code: i32,
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
            Self::Timeout(_)
            | Self::Missing { .. }
            | Self::Killed { .. }
            | Self::NotRun { .. }
            | Self::Invalid { .. } => true,
            Self::Sandbox(error) => matches!(
                error,
                SandboxError::Exec { .. } | SandboxError::Transfer { .. } | SandboxError::NotFound { .. }
            ),
            Self::NoTests(_) | Self::Logs { .. } => false,
        }
    }
}

/// Files of the tests that are no longer what was uploaded: what they judged wrote to them.
async fn rewritten(sandbox: &dyn Sandbox, tests: &[PathBuf], to: &Path) -> Result<Vec<HackFlag>, VerifierError> {
    match sandbox.download_within(TESTS, to, TESTS_LIMIT).await {
        Ok(()) => {}
        Err(error) if error.is_too_large() => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    }
    let mut names: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for folder in tests {
        files(folder, Path::new(""), &mut names);
    }
    let changed: Vec<String> = names
        .iter()
        .filter(|(name, original)| fs_err::read(to.join(name)).ok() != fs_err::read(original).ok())
        .map(|(name, _)| format!("{TESTS}/{}", name.display()))
        .collect();
    let (script, others): (Vec<String>, Vec<String>) = changed.into_iter().partition(|path| path == "/tests/test.sh");
    Ok([
        HackFlag::of(Kind::TestsRewritten, &script),
        HackFlag::of(Kind::TestFilesRewritten, &others),
    ]
    .into_iter()
    .flatten()
    .collect())
}

/// Files below a folder, by their path in it.
fn files(folder: &Path, below: &Path, found: &mut BTreeMap<PathBuf, PathBuf>) {
    let Ok(entries) = fs_err::read_dir(folder.join(below)) else {
        return;
    };
    for entry in entries.filter_map(Result::ok) {
        let name = below.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files(folder, &name, found),
            Ok(kind) if kind.is_file() => {
                found.insert(name, entry.path());
            }
            _ => {}
        }
    }
}

/// How the tests are run: by what the first line of their script asks for, where it lies on the host.
fn command(sandbox: &dyn Sandbox, tests: &[PathBuf], bundled: bool) -> Result<Vec<String>, VerifierError> {
    let inside = sandbox.path("/tests/test.sh");
    if bundled {
        return Ok(["sh", "-c", "exec \"$0\"", &inside].map(str::to_owned).into());
    }
    let scripts = tests.iter().map(|folder| folder.join("test.sh"));
    let script = scripts.rev().find(|script| script.exists()).unwrap_or_else(|| {
        let folder = tests.last().map(PathBuf::as_path);
        folder.unwrap_or(Path::new("tests")).join("test.sh")
    });
    let shell = reward::shell(&script).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => VerifierError::NoTests(script.clone()),
        _ => VerifierError::Logs {
            path: script.clone(),
            source: error,
        },
    })?;
    Ok(vec![shell, inside])
}

/// Scores the sandbox by the task's tests in `tests`: host folders, laid over each other, of which one has `test.sh`; or
/// by those that its image holds.
///
/// What the agent left running is ended first; evidence of it is gathered by [`examine`] before this.
///
/// # Errors
/// Whenever there is no valid reward; see [`VerifierError`].
pub async fn verify(
    sandbox: &dyn Sandbox,
    tests: &[PathBuf],
    options: &VerifyOptions,
) -> Result<Verdict, VerifierError> {
    let argv = command(sandbox, tests, options.bundled)?;
    let keep = |path: &Path| {
        let path = path.to_owned();
        move |source| VerifierError::Logs { path, source }
    };
    fs_err::tokio::create_dir_all(&options.logs)
        .await
        .map_err(keep(&options.logs))?;

    sandbox.end_processes().await?;
    sandbox.reset_dir(VERIFIER_LOGS).await?;
    if options.bundled {
        // Without the script they say nothing; that is seen below.
        sandbox.exec(ExecRequest::as_root("chmod +x /tests/test.sh")).await?;
    } else {
        sandbox.reset_dir(TESTS).await?;
        for folder in tests {
            sandbox.upload(folder, TESTS).await?;
        }
    }

    let run = ExecRequest {
        argv,
        env: options.env.clone(),
        cwd: None,
        user: options.user.clone(),
        stdin: None,
        timeout: options.timeout,
        output_limit: options.output_limit,
    };
    let ran = sandbox.exec(run).await?;
    // What the tests started must not write any more while the reward is read.
    let outlived = sandbox.end_processes().await?;

    let taken = tempfile::tempdir_in(&options.logs).map_err(keep(&options.logs))?;
    let rewritten = if options.bundled {
        Vec::new()
    } else {
        rewritten(sandbox, tests, &taken.path().join("tests")).await?
    };
    let folder = taken.path().join("verifier");
    sandbox.download(VERIFIER_LOGS, &folder).await?;
    let output = folder.join(OUTPUT);
    fs_err::tokio::write(&output, &ran.output)
        .await
        .map_err(keep(&output))?;
    let read = reward::read(&folder);
    let disagree = reward::disagree(&folder);
    let report = TestSpec::of(tests).map(|spec| spec.report(&ran.output));
    if let Some(report) = &report {
        let path = folder.join(REPORT);
        let text = serde_json::to_vec_pretty(report).unwrap_or_default();
        fs_err::tokio::write(&path, text).await.map_err(keep(&path))?;
    }
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
    if report.as_ref().is_some_and(|report| !report.ran) {
        return Err(VerifierError::NotRun { exit_code });
    }
    let mut flags = Vec::new();
    if disagree {
        let evidence = "reward.json and reward.txt hold different rewards";
        flags.push(HackFlag::new(Kind::RewardsDisagree, evidence));
    }
    flags.extend(rewritten);
    if outlived > 0 {
        let evidence = format!("{outlived} processes ran on when the tests had ended");
        flags.push(HackFlag::new(Kind::ProcessesOutlivedTests, evidence));
    }
    if ran.truncated > FLOOD {
        let evidence = format!("{} bytes of the tests' output were left out", ran.truncated);
        flags.push(HackFlag::new(Kind::OutputFlood, evidence));
    }
    if let Some(report) = report
        .as_ref()
        .filter(|report| !report.resolved && reward >= 1.0 && ran.truncated == 0)
    {
        let (failed, missing) = (&report.fail_to_pass.failed, &report.fail_to_pass.missing);
        let evidence = format!(
            "reward {reward}, but of the tests to make pass {} failed and {} are missing",
            failed.len(),
            missing.len()
        );
        flags.push(HackFlag::new(Kind::ReportDisagrees, evidence));
    }
    Ok(Verdict {
        reward: reward as f32,
        rewards,
        output: ran.output,
        exit_code,
        duration,
        flags,
        report,
    })
}
