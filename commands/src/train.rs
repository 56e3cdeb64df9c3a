//! `lego train`.

use std::path::PathBuf;

use lego::config::{DeviceName, Override};
use lego::train::checkpoint::Wanted;

use crate::config_args::ConfigArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer};
use crate::{preflight, wiring};

const EXAMPLES: &str = "\
Examples:
  lego train run.toml
  lego train run.toml --steps 5 --set rollout.group_size=4
  lego train run.toml --async
  lego train run.toml --plan --durations trial=90,update=60,publish=5
  lego rollout run.toml -o shards --print paths | lego train run.toml --shards -
  lego train run.toml --publish /mnt/runs/quickstart
  lego train run.toml --export policy --checkpoint best";

/// Train the policy: rollouts, update, new weights, step by step
///
/// Continues the run directory where it stands. With `--shards` it trains from files alone. A step is one row on a
/// terminal and one JSON object in a pipe; the last line on stderr is the run directory.
///
/// Ctrl-C (or SIGTERM) lets the trials, or the update, that run end; a second one stops at once. The same command then
/// goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct TrainArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Train from these shards alone: files, folders, or `-` for paths on stdin, one a line; can be repeated
    #[arg(long, value_name = "DIR|-")]
    pub(crate) shards: Vec<PathBuf>,
    /// Steps of the run (`train.steps`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    steps: Option<u32>,
    /// Start anew: the run directory must be empty or is moved aside
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Where to compute (`policy.device`): cpu, cuda or cuda:N
    #[arg(long, value_name = "DEVICE")]
    device: Option<DeviceName>,
    /// Rollouts and updates side by side (`async.enabled`)
    #[arg(long = "async")]
    asynchronous: bool,
    /// Train on what `lego rollout --follow` samples, and publish weights there: a folder, or a bucket's URL
    #[arg(long, value_name = "PLACE")]
    pub(crate) publish: Option<String>,
    /// Print what settings of `[async]` would come to by an earlier run's durations, and stop
    #[arg(long)]
    plan: bool,
    /// With `--plan`: the run directory to measure, or `trial=SECONDS,update=SECONDS,publish=SECONDS` (the run's own directory)
    #[arg(long, value_name = "RUN|LIST", requires = "plan")]
    durations: Option<String>,
    /// Write a checkpoint of the run as a plain Hugging Face folder, print its files, and stop
    #[arg(long, value_name = "DIR", conflicts_with_all = ["shards", "fresh", "publish", "plan", "dry_run"])]
    export: Option<PathBuf>,
    /// With `--export`: `latest`, `best` by the first validation set, or a step
    #[arg(long, value_name = "WHICH", default_value = "latest", requires = "export")]
    checkpoint: Wanted,
    /// Print what would run, as data, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    #[command(flatten)]
    pub(crate) format: FormatArg,
}

#[expect(clippy::needless_pass_by_value, reason = "every command takes what clap hands over")]
pub(crate) fn run(printer: &Printer, args: TrainArgs) -> Result<Exit, Failure> {
    let steps = args.steps.map(|steps| Override::flag("--steps", "train.steps", steps));
    let device = args
        .device
        .map(|device| Override::flag("--device", "policy.device", device));
    let asynchronous =
        (args.asynchronous || args.publish.is_some()).then(|| Override::flag("--async", "async.enabled", true));
    let mut loaded = args
        .config
        .load(steps.into_iter().chain(device).chain(asynchronous).collect())?;
    if let Some(to) = &args.export {
        return wiring::export(printer, &loaded, args.checkpoint, to, args.format);
    }
    if args.plan {
        return wiring::plan(printer, &loaded, args.durations.as_deref(), args.format);
    }
    if args.dry_run {
        wiring::cached_models(&mut loaded, true)?;
    } else if !wiring::fetch_models(printer, &mut loaded, true)? {
        return Ok(Exit::Interrupted);
    }
    if preflight::refuses(
        printer,
        &loaded,
        preflight::Purpose::Train {
            from_shards: !args.shards.is_empty() || args.publish.is_some(),
        },
    ) {
        return Ok(Exit::Negative);
    }
    if args.dry_run {
        printer.text(&loaded.show_config())?;
        return Ok(Exit::Ok);
    }
    wiring::train(printer, loaded, &args)
}
