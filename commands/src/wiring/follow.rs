//! `lego rollout --follow` over the pipeline.

use lego::config::Loaded;
use lego::pipeline::{FollowJob, follow as run};

use super::{stack_options, until_stopped, watch};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::Printer;
use crate::rollout::RolloutArgs;

/// Samples for a trainer elsewhere.
pub(crate) fn follow(printer: &Printer, loaded: Loaded, place: &str, args: &RolloutArgs) -> Result<Exit, Failure> {
    let job = FollowJob {
        loaded,
        place: place.to_owned(),
        name: args.name.clone().unwrap_or_else(FollowJob::own_name),
        stack: stack_options()?,
        stop: tokio_util::sync::CancellationToken::new(),
        observer: watch::watch(printer, args.format.format, false, 1),
    };
    let ended = until_stopped(printer, "trials that run", |stop| {
        run(FollowJob {
            stop: stop.finish,
            ..job
        })
    })?;
    let Some(result) = ended else {
        printer.note(format_args!("stopped at once; another rollouter takes its groups over"));
        return Ok(Exit::Interrupted);
    };
    let end = result?;
    printer.note(format_args!("{} groups sampled", end.groups));
    Ok(if end.finished { Exit::Ok } else { Exit::Interrupted })
}
