//! `lego train` over the pipeline.

use lego::config::Loaded;
use lego::pipeline::{Evaluation, OfflineJob, OnlineJob, RunEnd, train_from_shards, train_online};
use lego::rollout::EvalReport;

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
    if let Some(text) = validations(&end.evaluations) {
        printer.note(format_args!("{}", text.trim_end()));
    }
    if end.interrupted {
        printer.note(format_args!(
            "interrupted after step {} of {}; the same command goes on",
            end.step, end.steps
        ));
    } else {
        printer.note(format_args!("done: {} of {} steps", end.step, end.steps.max(end.step)));
    }
    if let Some(checkpoint) = &end.checkpoint {
        printer.note(format_args!("newest checkpoint {}", checkpoint.display()));
    }
}

/// One row a series: its score at the first validation and at the last.
fn validations(evaluations: &[(u32, Evaluation)]) -> Option<String> {
    let (first, last) = (evaluations.first()?, evaluations.last()?);
    let shown = if first.0 == last.0 {
        vec![first]
    } else {
        vec![first, last]
    };
    let mut header = vec!["VALIDATION".to_owned(), "TASKS".to_owned()];
    header.extend(shown.iter().map(|(step, _)| format!("PASS@1, STEP {step}")));
    header.extend(shown.iter().map(|(step, _)| format!("GREEDY, STEP {step}")));
    let rows = last.1.sampled.series.iter().map(|series| {
        let find = |report: Option<&EvalReport>| {
            let mut all = report.into_iter().flat_map(|report| &report.series);
            all.find(|other| other.series == series.series).cloned()
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let mut row = vec![series.series.clone(), series.tasks.to_string()];
        row.extend(shown.iter().map(|(_, evaluation)| {
            or_dash(find(Some(&evaluation.sampled)).map(|at| format!("{:.3} ± {:.3}", at.pass_at_1, at.pass_at_1_se)))
        }));
        row.extend(
            shown.iter().map(|(_, evaluation)| {
                or_dash(find(evaluation.greedy.as_ref()).map(|at| format!("{:.3}", at.pass_at_1)))
            }),
        );
        row
    });
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let numbers: Vec<usize> = (1..header.len()).collect();
    Some(table(&header, &numbers, rows))
}
