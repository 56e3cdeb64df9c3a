//! Is it the same run? The settings that a directory was written with, against those of this start.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use fs_err as fs;

use super::PipelineError;
use crate::config::RunConfig;
use crate::run_dir::RunDir;

/// Settings that this start changes, as `key: before -> now`; the first few of them.
pub(super) fn changed_settings(dir: &RunDir, resolved: &str) -> Option<String> {
    const SHOWN: usize = 8;
    // What does not change what is learnt, or is meant to grow.
    const FREE: [&str; 3] = ["log.", "train.steps", "run."];
    let before = fs::read_to_string(dir.config()).ok()?;
    let (before, now) = (settings(&before), settings(resolved));
    let keys: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed: Vec<String> = keys
        .into_iter()
        .filter(|key| before.get(*key) != now.get(*key) && !FREE.iter().any(|free| key.starts_with(free)))
        .map(|key| {
            let value =
                |settings: &BTreeMap<String, String>| settings.get(key).map_or("unset", String::as_str).to_owned();
            format!("{key}: {} -> {}", value(&before), value(&now))
        })
        .collect();
    let more = match changed.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    (!changed.is_empty()).then(|| changed[..changed.len().min(SHOWN)].join(", ") + &more)
}

/// Every value of a TOML text by its dotted key.
fn settings(text: &str) -> BTreeMap<String, String> {
    fn flatten(prefix: &str, table: &toml::Table, into: &mut BTreeMap<String, String>) {
        for (key, value) in table {
            let path = if prefix.is_empty() {
                key.clone()
            } else {
                format!("{prefix}.{key}")
            };
            match value {
                toml::Value::Table(table) => flatten(&path, table, into),
                value => {
                    into.insert(path, value.to_string());
                }
            }
        }
    }
    let mut all = BTreeMap::new();
    flatten("", &text.parse().unwrap_or_default(), &mut all);
    all
}

/// Takes over from a rollout's folder how many samples of each task it holds.
pub fn sampled_as(rollout: &Path, config: &mut RunConfig) -> Result<(), PipelineError> {
    let path = RunDir::open(rollout)?.config();
    let written = settings(&fs::read_to_string(&path)?);
    let wrong =
        |key: &str| PipelineError::Config(format!("{}: `{key}` is not what this program writes", path.display()));
    let number = |key: &str| match written.get(key) {
        Some(value) => value.parse::<u32>().map(Some).map_err(|_| wrong(key)),
        None => Ok(None),
    };
    if let Some(samples) = number("eval.samples")? {
        config.eval.samples = samples;
    }
    if let Some(size) = number("rollout.group_size")? {
        config.rollout.group_size = size;
    }
    if let Some(greedy) = written.get("eval.greedy") {
        config.eval.greedy = greedy.parse().map_err(|_| wrong("eval.greedy"))?;
    }
    Ok(())
}

/// Refuses a directory whose run differs in what makes it that run.
pub(super) fn refuse_other_run(dir: &RunDir, resolved: &str, keys: &[&'static str]) -> Result<(), PipelineError> {
    let Ok(before) = fs::read_to_string(dir.config()) else {
        return Ok(());
    };
    let (before, now) = (settings(&before), settings(resolved));
    let value = |settings: &BTreeMap<String, String>, key: &str| {
        settings
            .get(key)
            .map_or_else(|| "unset".to_owned(), ToString::to_string)
    };
    for &key in keys {
        let (found, expected) = (value(&before, key), value(&now, key));
        if found != expected {
            return Err(PipelineError::OtherRun {
                dir: dir.path().to_owned(),
                key,
                expected,
                found,
            });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_settings_are_told_and_other_runs_refused() {
        let folder = tempfile::tempdir().unwrap();
        let dir = RunDir::create(folder.path()).unwrap();
        let first = "[run]\nseed = 1\n[train]\nlr = 0.1\nsteps = 3\n[log]\nconsole_every = 1\n";
        assert_eq!(changed_settings(&dir, first), None);
        dir.write_config(first).unwrap();
        let second = "[run]\nseed = 1\n[train]\nlr = 0.2\nsteps = 9\n[eval]\ngreedy = true\n";
        assert_eq!(
            changed_settings(&dir, second).as_deref(),
            Some("eval.greedy: unset -> true, train.lr: 0.1 -> 0.2")
        );
        refuse_other_run(&dir, second, &["run.seed"]).unwrap();
        let refused = refuse_other_run(&dir, second, &["run.seed", "train.lr"]).unwrap_err();
        assert!(
            refused.to_string().contains("another `train.lr` (0.1, now 0.2)"),
            "{refused}"
        );
    }
}
