//! `--predictions`: where they go, and whose they are.

use std::collections::HashSet;

use lego::pipeline::{CollectEnd, Prediction};
use lego::run_dir::RunDir;
use lego::shard::{ShardError, ShardReader};
use lego::trajectory::Episode;

use crate::failure::Failure;
use crate::output::Printer;

/// Refuses a file that cannot be written, before anything has run for it.
pub(super) fn can_be_written(path: &std::path::Path) -> Result<(), Failure> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    let wrong = if path.is_dir() {
        Some(format!("{} is a folder", path.display()))
    } else {
        folder
            .filter(|folder| !folder.is_dir())
            .map(|folder| format!("there is no folder {}", folder.display()))
    };
    wrong.map_or(Ok(()), |wrong| {
        Err(Failure::usage(format!("--predictions: {wrong}")).hint("name a file in a folder that is there"))
    })
}

/// The episodes of a rollout that were judged again.
pub(super) fn held(from: &std::path::Path, end: &CollectEnd) -> Result<Vec<Episode>, Failure> {
    let shards = RunDir::open(from)
        .map_err(|error| Failure::usage(error.to_string()))?
        .rollouts();
    let read = async { ShardReader::open(&[shards])?.episodes(None).await };
    let mut episodes = tokio::runtime::Runtime::new()?
        .block_on(read)
        .map_err(|error: ShardError| Failure::usage(error.to_string()))?;
    let again: HashSet<&str> = end.episodes.iter().map(|episode| episode.trial_name.as_str()).collect();
    episodes.retain(|episode| again.contains(episode.trial_name.as_str()));
    Ok(episodes)
}

/// What the agents left, for graders of others.
pub(super) fn write_predictions(
    printer: &Printer,
    path: &std::path::Path,
    found: &[Prediction],
    missing: &[String],
) -> Result<(), Failure> {
    const NAMED: usize = 5;
    let mut text = String::new();
    for prediction in found {
        text += &serde_json::to_string(prediction).map_err(std::io::Error::from)?;
        text.push('\n');
    }
    if path.as_os_str() == "-" {
        printer.text(&text)?;
    } else {
        lego::task::write_atomically(path, |file| std::io::Write::write_all(file, text.as_bytes()))
            .map_err(|error| Failure::unavailable("the predictions cannot be written").source(error))?;
        printer.note(format_args!("{} predictions -> {}", found.len(), path.display()));
    }
    if !missing.is_empty() {
        let more = match missing.len().saturating_sub(NAMED) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        printer.note(format_args!(
            "warning: no patch of {}{more}: their trials ended before, or their folders hold neither a repository nor its files",
            missing[..missing.len().min(NAMED)].join(", ")
        ));
    }
    Ok(())
}
