//! `lego train` over the pipeline.

use lego::config::Loaded;
use lego::pipeline::{
    OfflineJob, OnlineJob, PublishingJob, RunEnd, Validation, train_from_shards, train_online, train_publishing,
};

use super::{stack_options, until_stopped, watch};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Printer, table};
use crate::train::TrainArgs;

/// The full loop, or training from shards.
pub(crate) fn train(printer: &Printer, loaded: Loaded, args: &TrainArgs) -> Result<Exit, Failure> {
    let observer = watch::watch(printer, args.format.format, true, loaded.config.log.console_every);
    let run_dir = lego::pipeline::run_directory(&loaded.config);
    let ended = if let Some(place) = &args.publish {
        only_of(place, &args.shards)?;
        let place = place.clone();
        until_stopped(printer, "the update that runs, and writes a checkpoint", |stop| {
            train_publishing(PublishingJob {
                loaded,
                place,
                fresh: args.fresh,
                stop: stop.finish,
                observer,
            })
        })?
    } else if args.shards.is_empty() {
        let stack = stack_options()?;
        until_stopped(printer, "the trials, or the update, that run", |stop| {
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
        until_stopped(printer, "the update that runs, and writes a checkpoint", |stop| {
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

/// With `--publish`, shards are those of the place where rollouters are told of the weights.
fn only_of(place: &str, shards: &[std::path::PathBuf]) -> Result<(), Failure> {
    let place = place.trim_end_matches('/');
    let rollouts = format!("{place}/rollouts");
    match shards.iter().find(|given| {
        let given = given.to_string_lossy();
        let given = given.trim_end_matches('/');
        given != place && given != rollouts
    }) {
        None => Ok(()),
        Some(other) => Err(Failure::usage(format!(
            "--publish {place} trains on what is sampled there, and --shards names {}",
            other.display()
        ))
        .hint(format!("leave --shards out, or write `--shards {rollouts}`"))),
    }
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
    if let Some(text) = table_of(&end.validations) {
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
fn table_of(validations: &[Validation]) -> Option<String> {
    let (first, last) = (validations.first()?, validations.last()?);
    let shown = if first.step == last.step {
        vec![first]
    } else {
        vec![first, last]
    };
    let mut header = vec!["VALIDATION".to_owned(), "TASKS".to_owned()];
    header.extend(shown.iter().map(|at| format!("PASS@1, STEP {}", at.step)));
    header.extend(shown.iter().map(|at| format!("GREEDY, STEP {}", at.step)));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    let rows = last.scores.iter().map(|series| {
        let each = || {
            shown
                .iter()
                .map(|at| at.scores.iter().find(|other| other.series == series.series))
        };
        let mut row = vec![
            series.series.clone(),
            or_dash(series.tasks.map(|tasks| format!("{tasks:.0}"))),
        ];
        row.extend(each().map(|score| {
            or_dash(score.map(|score| match score.pass_at_1_se {
                Some(error) => format!("{:.3} ± {error:.3}", score.pass_at_1),
                None => format!("{:.3}", score.pass_at_1),
            }))
        }));
        row.extend(each().map(|score| or_dash(score.and_then(|score| Some(format!("{:.3}", score.greedy?))))));
        row
    });
    let header: Vec<&str> = header.iter().map(String::as_str).collect();
    let numbers: Vec<usize> = (1..header.len()).collect();
    Some(table(&header, &numbers, rows))
}
