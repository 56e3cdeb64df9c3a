//! `lego rollout`.

use std::path::PathBuf;

use lego::config::{BackendName, KubernetesSection, Override};

use crate::config_args::ConfigArgs;
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{FormatArg, Printer};
use crate::{preflight, wiring};

const EXAMPLES: &str = "\
Examples:
  lego rollout run.toml -o shards
  lego rollout run.toml --eval --group-size 4 --tasks ids.txt --format json | jq '.[0].pass_at_1'
  lego rollout run.toml -o shards --print paths | lego train run.toml --shards -
  lego rollout run.toml --follow /mnt/runs/quickstart
  lego rollout run.toml --eval -o eval --predictions predictions.jsonl
  lego rollout run.toml --eval --regrade eval -o regraded
  lego rollout -o eval --purge-infra --confirm";

/// Sample episodes from the policy and write them as Parquet shards
///
/// Each task is tried `group_size` times, each time in a fresh sandbox. Failures of the environment are recorded and
/// left out of the reward. Continues what is in the output folder.
///
/// Ctrl-C (or SIGTERM) lets the trials that run end and writes them; a second one stops at once. The same command then
/// goes on.
#[derive(Debug, clap::Args)]
#[command(after_long_help = EXAMPLES)]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct RolloutArgs {
    #[command(flatten)]
    pub(crate) config: ConfigArgs,
    /// Tasks: an index, a JSONL of inline records, or ids one a line; `-` is ids on stdin (`data.train`)
    #[arg(long, value_name = "FILE|-")]
    pub(crate) tasks: Option<PathBuf>,
    /// Folder for the shards and the trials
    #[arg(short, long, value_name = "DIR", required_unless_present_any = ["eval", "dry_run", "reap", "purge_infra", "follow"])]
    pub(crate) out: Option<PathBuf>,
    /// The agent (`scaffold.name`)
    #[arg(long, value_name = "NAME")]
    scaffold: Option<String>,
    /// What provides the sandboxes (`sandbox.backend`)
    #[arg(long, value_name = "NAME")]
    backend: Option<String>,
    /// Episodes of a task (`rollout.group_size`; with `--eval`, `eval.samples`)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) group_size: Option<u32>,
    /// Trials at a time (`sandbox.concurrency`)
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    jobs: Option<u32>,
    /// Stop and exit with 1 once more trials than this had no valid reward
    #[arg(long, value_name = "N")]
    pub(crate) max_failures: Option<u64>,
    /// Start anew instead of continuing what is in the output folder
    #[arg(long)]
    pub(crate) fresh: bool,
    /// Validate: print pass@k instead of one row a trial; shards and trials only with -o
    #[arg(long)]
    pub(crate) eval: bool,
    /// Sample for the trainer that publishes at this place, a folder or a bucket's URL, until it ends
    #[arg(long, value_name = "PLACE", conflicts_with_all = ["out", "eval", "tasks", "fresh", "max_failures", "print"])]
    pub(crate) follow: Option<String>,
    /// Name among those that follow; one that is started again under its name goes on with its groups at once
    #[arg(long, value_name = "NAME", requires = "follow", value_parser = name)]
    pub(crate) name: Option<String>,
    /// Print what would run, as data, and stop
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Print only this: the paths of finished shards, one a line
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) print: Option<Print>,
    /// Remove sandboxes that earlier runs left behind, and stop; a cluster's where run.toml or `--backend` names it
    #[arg(long)]
    pub(crate) reap: bool,
    /// Name results that failed by infrastructure; with `--confirm` they do not count any more, and the next start runs their
    /// trials again
    #[arg(long)]
    purge_infra: bool,
    /// Do what `--purge-infra` names
    #[arg(long, requires = "purge_infra")]
    confirm: bool,
    /// Write what the agents left as predictions: `instance_id`, `model_name_or_path`, `model_patch`, one JSON object a line; of
    /// several samples of a task the first that left anything
    #[arg(long, value_name = "FILE|-")]
    pub(crate) predictions: Option<PathBuf>,
    /// Judge what the agents of this rollout left again, all its samples, without a model; -o is the folder for the new results
    #[arg(long, value_name = "DIR", requires = "out")]
    pub(crate) regrade: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) format: FormatArg,
}

/// A name that is part of those of files.
fn name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    if text.is_empty() || text.len() > 60 || !text.chars().all(fits) {
        return Err("expected up to 60 ASCII letters, digits, `_` or `-`".to_owned());
    }
    Ok(text.to_owned())
}

/// What alone is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Print {
    /// Paths of finished shards
    Paths,
}

#[expect(clippy::needless_pass_by_value, reason = "every command takes what clap hands over")]
pub(crate) fn run(printer: &Printer, args: RolloutArgs) -> Result<Exit, Failure> {
    if args.reap {
        return wiring::reap(printer, args.cluster()?.as_ref());
    }
    if args.purge_infra {
        let Some(out) = &args.out else {
            return Err(Failure::usage("--purge-infra needs -o, the folder of the rollout"));
        };
        return wiring::purge(printer, out, args.confirm, args.format.format);
    }
    let overrides = [
        args.scaffold
            .as_ref()
            .map(|name| Override::flag("--scaffold", "scaffold.name", name)),
        args.backend
            .as_ref()
            .map(|name| Override::flag("--backend", "sandbox.backend", name)),
        args.group_size.map(|size| {
            let key = if args.eval {
                "eval.samples"
            } else {
                "rollout.group_size"
            };
            Override::flag("--group-size", key, size)
        }),
        args.jobs
            .map(|jobs| Override::flag("--jobs", "sandbox.concurrency", jobs)),
    ];
    let mut loaded = args.config.load(overrides.into_iter().flatten().collect())?;
    if args.dry_run {
        wiring::cached_models(&mut loaded, false)?;
    } else if args.regrade.is_none() && !wiring::fetch_models(printer, &mut loaded, false)? {
        return Ok(Exit::Interrupted);
    }
    let tasks_given = args.tasks.is_some();
    let purpose = if args.eval && !tasks_given {
        preflight::Purpose::Evaluate
    } else {
        preflight::Purpose::Rollout { tasks_given }
    };
    if args.regrade.is_none() && preflight::refuses(printer, &loaded, purpose) {
        return Ok(Exit::Negative);
    }
    if args.dry_run {
        printer.text(&loaded.show_config())?;
        return Ok(Exit::Ok);
    }
    if let Some(place) = &args.follow {
        return wiring::follow(printer, loaded, place, &args);
    }
    wiring::rollout(printer, loaded, &args)
}

impl RolloutArgs {
    /// The cluster that the run's file or `--backend` names, if one does: no other is asked.
    fn cluster(&self) -> Result<Option<KubernetesSection>, Failure> {
        let flag = self.backend.as_ref();
        let flag = flag.map(|name| Override::flag("--backend", "sandbox.backend", name));
        let sandbox = self.config.load_or_default(flag.into_iter().collect())?.config.sandbox;
        Ok((sandbox.backend == BackendName::Kubernetes).then_some(sandbox.kubernetes))
    }
}
