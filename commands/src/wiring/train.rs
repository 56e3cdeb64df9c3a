//! `lego train` over the pipeline.

use lego::config::Loaded;
use lego::pipeline::{OfflineJob, OnlineJob, RunEnd, train_from_shards, train_online};

use super::{stack_options, until_stopped, watch};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::train::TrainArgs;

/// The full loop, or training from shards.
pub(crate) fn train(printer: &Printer, loaded: Loaded, args: &TrainArgs) -> Result<Exit, Failure> {
    let observer = watch::watch(printer, args.format.format, true, loaded.config.log.console_every);
    let run_dir = lego::pipeline::run_directory(&loaded.config);
    let ended = if args.shards.is_empty() {
        let stack = stack_options()?;
        until_stopped(|stop| {
            train_online(OnlineJob {
                loaded,
                fresh: args.fresh,
                stack,
                stop: stop.finish,
                observer,
            })
        })?
    } else {
        let shards = shards(args)?;
        until_stopped(|stop| {
            train_from_shards(OfflineJob {
                loaded,
                shards,
                fresh: args.fresh,
                stop: stop.finish,
                observer,
            })
        })?
    };
    let exit = match ended {
        None => {
            printer.note(format_args!(
                "stopped at once; the same command goes on from the last checkpoint"
            ));
            Exit::Interrupted
        }
        Some(result) => {
            let end = result?;
            summary(printer, &end);
            if end.interrupted { Exit::Interrupted } else { Exit::Ok }
        }
    };
    printer.say(&run_dir.display().to_string());
    Ok(exit)
}

/// Files, folders and URLs; `-` is a list on stdin.
fn shards(args: &TrainArgs) -> Result<Vec<String>, Failure> {
    let mut shards = Vec::new();
    for place in &args.shards {
        if place.as_os_str() == "-" {
            for line in std::io::stdin().lines() {
                let line =
                    line.map_err(|error| Failure::usage("cannot read the list of shards from stdin").source(error))?;
                if !line.trim().is_empty() {
                    shards.push(line.trim().to_owned());
                }
            }
        } else {
            shards.push(place.to_string_lossy().into_owned());
        }
    }
    if shards.is_empty() {
        return Err(Failure::nothing_selected("the list of shards on stdin is empty"));
    }
    Ok(shards)
}

/// What the run came to, for a person.
fn summary(printer: &Printer, end: &RunEnd) {
    if !end.evaluations.is_empty() {
        let mut rows = Vec::new();
        for (step, evaluation) in &end.evaluations {
            for series in &evaluation.sampled.series {
                let greedy = evaluation
                    .greedy
                    .iter()
                    .flat_map(|report| &report.series)
                    .find(|greedy| greedy.series == series.series)
                    .map_or_else(|| "-".to_owned(), |greedy| format!("{:.3}", greedy.pass_at_1));
                rows.push((
                    series.series.clone(),
                    *step,
                    vec![
                        series.series.clone(),
                        step.to_string(),
                        format!("{:.3} ± {:.3}", series.pass_at_1, series.pass_at_1_se),
                        format!("{:.3}", series.pass_at_k),
                        greedy,
                        series.tasks.to_string(),
                    ],
                ));
            }
        }
        rows.sort_by(|a, b| (&a.0, a.1).cmp(&(&b.0, b.1)));
        let header = ["VALIDATION", "STEP", "PASS@1", "PASS@K", "GREEDY", "TASKS"];
        let text = table(&header, &[1, 2, 3, 4, 5], rows.into_iter().map(|(_, _, row)| row));
        printer.note(format_args!("{}", text.trim_end()));
    }
    if end.interrupted {
        printer.note(format_args!(
            "interrupted after step {} of {}; the same command goes on",
            end.step, end.steps
        ));
    } else {
        printer.note(format_args!("done: {} of {} steps", end.step, end.steps));
    }
    if let Some(checkpoint) = &end.checkpoint {
        printer.note(format_args!("newest checkpoint {}", checkpoint.display()));
    }
}
