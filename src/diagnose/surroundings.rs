//! What lies beside a run's metrics: its state and process, and the newest trials with what their verifiers said.
//! Everything is read, and little of it.

use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::run_dir::{Phase, RunDir, RunDirError, RunState};

/// Trials that are looked at.
const TRIALS: usize = 64;
/// Bytes of a verifier's output that are read.
const OUTPUT: usize = 64 << 10;

/// A trial, as far as signatures ask.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenTrial {
    pub(super) outcome: String,
    /// What shows that the grader did not run.
    pub(super) ungraded: Option<String>,
    pub(super) exception: Option<String>,
}

/// What lies beside the metrics; empty for a log alone.
#[derive(Debug, Clone, Default)]
pub(super) struct Surroundings {
    pub(super) state: Option<RunState>,
    pub(super) alive: bool,
    /// When the newest attempt began, in seconds since 1970.
    pub(super) began: Option<f64>,
    pub(super) now: f64,
    pub(super) experts: Option<bool>,
    /// Addresses of the engines, in their order.
    pub(super) endpoints: Vec<String>,
    pub(super) trials: Vec<SeenTrial>,
    /// Trials that began and have no result yet.
    pub(super) open_trials: Vec<String>,
}

impl Surroundings {
    pub(super) fn of(run: &RunDir) -> Result<Self, RunDirError> {
        let state = run.state()?;
        let holder = run.holder()?;
        let alive = state.state == Phase::Running && holder.is_some();
        let began = holder
            .as_ref()
            .map(|holder| holder.since.as_millisecond() as f64 / 1000.0);
        let began = began.or_else(|| newest_events(&run.events()));
        let (trials, open_trials) = newest_trials(&run.trials());
        let config = config(&run.config());
        Ok(Self {
            alive,
            // The first start is the whole run.
            began: began.filter(|_| state.starts > 1),
            now: now(),
            experts: config.as_ref().and_then(experts),
            endpoints: config.as_ref().map(endpoints).unwrap_or_default(),
            trials,
            open_trials: if alive { open_trials } else { Vec::new() },
            state: Some(state),
        })
    }
}

pub(super) fn now() -> f64 {
    jiff::Timestamp::now().as_millisecond() as f64 / 1000.0
}

/// When the newest file of TensorBoard events was begun: one is begun at each start.
fn newest_events(folder: &Path) -> Option<f64> {
    let names = std::fs::read_dir(folder)
        .ok()?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned());
    names
        .filter_map(|name| {
            name.strip_prefix("events.out.tfevents.")?
                .split('.')
                .next()?
                .parse::<f64>()
                .ok()
        })
        .reduce(f64::max)
}

fn config(path: &Path) -> Option<toml::Table> {
    std::fs::read_to_string(path).ok()?.parse().ok()
}

fn endpoints(config: &toml::Table) -> Vec<String> {
    let listed = config
        .get("engine")
        .and_then(|engine| engine.get("endpoints")?.as_array());
    let named = listed.into_iter().flatten().filter_map(toml::Value::as_str);
    named.map(str::to_owned).collect()
}

/// Whether the model's own config has experts.
fn experts(config: &toml::Table) -> Option<bool> {
    let model = config.get("policy")?.get("model")?.as_str()?;
    let text = std::fs::read(Path::new(model).join("config.json")).ok()?;
    let model: Value = serde_json::from_slice(&text).ok()?;
    let count = ["num_experts", "n_routed_experts", "num_local_experts"]
        .iter()
        .find_map(|key| model.get(key)?.as_u64());
    Some(count.is_some_and(|count| count > 1))
}

fn sorted(folder: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    found
}

/// Of the newest steps, those with a result; and names of those without.
fn newest_trials(folder: &Path) -> (Vec<SeenTrial>, Vec<String>) {
    let (mut trials, mut open) = (Vec::new(), Vec::new());
    let of_training = |path: &PathBuf| {
        path.file_name()
            .is_some_and(|name| !RunDir::holds_validation(&name.to_string_lossy()))
    };
    let mut steps: Vec<PathBuf> = sorted(folder).into_iter().filter(of_training).collect();
    steps.reverse();
    for (age, step) in steps.iter().take(3).enumerate() {
        for trial in sorted(step) {
            if trials.len() >= TRIALS {
                return (trials, open);
            }
            match self::trial(&trial) {
                Some(seen) => trials.push(seen),
                None if age == 0 && open.len() < TRIALS => {
                    open.extend(trial.file_name().map(|name| name.to_string_lossy().into_owned()));
                }
                None => {}
            }
        }
    }
    (trials, open)
}

/// A trial's folder; `None` without a result.
pub(super) fn trial(folder: &Path) -> Option<SeenTrial> {
    let result: Value = serde_json::from_slice(&std::fs::read(folder.join("result.json")).ok()?).ok()?;
    let text = |key: &str| result.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let exception = result.get("exception_info").filter(|info| !info.is_null()).map(|info| {
        let part = |key: &str| info.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        format!("{}: {}", part("exception_type"), part("exception_message"))
    });
    let reward = result.get("reward").and_then(Value::as_f64);
    let never_ran = result.pointer("/test_report/ran").and_then(Value::as_bool) == Some(false);
    let ungraded = (reward.is_none_or(|reward| reward <= 0.0))
        .then(|| grader_trouble(folder))
        .flatten()
        .or_else(|| never_ran.then(|| "result.json: no test ran".to_owned()));
    Some(SeenTrial {
        outcome: text("outcome"),
        ungraded,
        exception,
    })
}

/// Output that only a grader that did not run writes.
const DID_NOT_RUN: [&str; 16] = [
    ": command not found",
    ": not found",
    "No module named",
    "ModuleNotFoundError",
    "ImportError",
    "cannot import name",
    "Could not resolve host",
    "Temporary failure in name resolution",
    "fatal: unable to access",
    "fatal: repository",
    "No matching distribution found",
    "Could not find a version that satisfies",
    "collected 0 items",
    "no tests ran",
    "error: externally-managed-environment",
    "can't open file",
];

/// The first line of a verifier's output that shows that the grader did not run, with its place.
pub(super) fn grader_trouble(folder: &Path) -> Option<String> {
    for name in ["test-stdout.txt", "test-stderr.txt"] {
        let path = folder.join("verifier").join(name);
        let Ok(bytes) = std::fs::read(&path) else { continue };
        let text = String::from_utf8_lossy(&bytes[..bytes.len().min(OUTPUT)]);
        for (at, line) in text.lines().enumerate() {
            if DID_NOT_RUN.iter().any(|sign| line.contains(sign)) {
                let line: String = line.trim().chars().take(160).collect();
                return Some(format!("{}:{}  {line}", path.display(), at + 1));
            }
        }
    }
    None
}
