//! `lego train --plan` over the library's planner.

use std::path::Path;

use lego::buffer::plan::{Durations, Forecast, LONGEST, forecast};
use lego::config::Loaded;
use lego::pipeline::{measured, run_directory, setting_of};

use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer, table};

/// Staleness and trigger of the settings that are compared, beside the run's own.
const SETTINGS: [(f64, u32); 6] = [(0.25, 1), (0.5, 1), (1.0, 1), (2.0, 1), (0.5, 4), (1.0, 4)];

/// Prints what settings would come to.
pub(crate) fn plan(
    printer: &Printer,
    loaded: &Loaded,
    durations: Option<&str>,
    format: FormatArg,
) -> Result<Exit, Failure> {
    let own = run_directory(&loaded.config);
    let durations = match durations {
        Some(list) if list.contains('=') => given(list)?,
        Some(run) if !Path::new(run).is_dir() => return Err(given_wrong(run)),
        Some(run) => of_run(Path::new(run))?,
        None if own.is_dir() => of_run(&own)?,
        None => {
            return Err(Failure::usage(format!(
                "{} does not exist, and --durations is not given",
                own.display()
            ))
            .hint("name a run that has trained, or write `--durations trial=90,update=60,publish=5` in seconds"));
        }
    };
    let setting = setting_of(&loaded.config);
    let mut settings = SETTINGS.to_vec();
    let run = (setting.staleness, setting.trigger);
    if !settings.contains(&run) {
        settings.push(run);
    }
    let rows = forecast(&durations, setting, &settings);
    let count = durations.trials.len() as f64;
    printer.note(format_args!(
        "a trial {:.1} s, an update {:.1} s, a publication {:.1} s; {} groups of {} an update, {} trials at a time. Lags are \
         publications between a group's beginning and its update; what a run bounds is how many groups it is ahead, so one whose \
         trials take longer than these is older when it trains",
        durations.trials.iter().sum::<f64>() / count,
        durations.update,
        durations.publish,
        setting.required,
        setting.group_size,
        setting.concurrency
    ));
    printer.rows(format.format, &rows, |rows| {
        let header = [
            "SETTING",
            "STALENESS",
            "TRIGGER",
            "EPISODES/H",
            "SPEEDUP",
            "TRAINER IDLE",
            "ROLLOUTER IDLE",
            "LAG",
            "MAX LAG",
        ];
        let numbers: Vec<usize> = (1..header.len()).collect();
        let of = |(at, row): (usize, &Forecast)| {
            let name = match at {
                0 => "in turns",
                _ if (row.staleness, row.trigger_sync_step) == run => "this run",
                _ => "",
            };
            vec![
                name.to_owned(),
                format!("{}", row.staleness),
                row.trigger_sync_step.to_string(),
                format!("{:.0}", row.episodes_per_hour),
                format!("{:.2}", row.speedup),
                format!("{:.2}", row.trainer_idle),
                format!("{:.2}", row.rollouter_idle),
                format!("{:.2}", row.lag_mean),
                row.lag_max.to_string(),
            ]
        };
        table(&header, &numbers, rows.iter().enumerate().map(of))
    })?;
    Ok(Exit::Ok)
}

/// Durations of a run.
fn of_run(run: &Path) -> Result<Durations, Failure> {
    Ok(tokio::runtime::Runtime::new()?.block_on(measured(run))?)
}

/// Durations as they were written.
fn given(list: &str) -> Result<Durations, Failure> {
    let wrong = given_wrong;
    let (mut trial, mut update, mut publish) = (None, None, None);
    for part in list.split(',') {
        let (name, value) = part.split_once('=').ok_or_else(|| wrong(part))?;
        let value: f64 = value.trim().trim_end_matches('s').parse().map_err(|_| wrong(part))?;
        if !(0.0..=LONGEST).contains(&value) {
            return Err(wrong(part));
        }
        let known = match name.trim() {
            "trial" => trial.replace(value),
            "update" => update.replace(value),
            "publish" => publish.replace(value),
            _ => return Err(wrong(part)),
        };
        if known.is_some() {
            return Err(wrong(list));
        }
    }
    match (trial.filter(|seconds| *seconds > 0.0), update) {
        (Some(trial), Some(update)) => Ok(Durations {
            trials: vec![trial],
            update,
            publish: publish.unwrap_or(0.0),
        }),
        _ => Err(wrong(list)),
    }
}

fn given_wrong(found: &str) -> Failure {
    Failure::usage(format!(
        "--durations: expected a run directory, or `trial`, `update` and `publish` once each, in seconds up to {LONGEST:.0}, found \
         `{found}`"
    ))
    .hint("write `--durations trial=90,update=60,publish=5`")
}
