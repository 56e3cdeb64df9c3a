//! `lego rollout` over the pipeline.

use lego::config::{KubernetesSection, Loaded, ScaffoldSection};
use lego::pipeline::{Check, CollectEnd, CollectJob, collect, predictions, sampled_as};
use lego::run_dir::RunDir;
use lego::sandbox::Backend;
use lego::sandbox::docker::{DockerBackend, DockerOptions};
use lego::sandbox::kubernetes::{KubernetesBackend, KubernetesOptions};
use lego::sandbox::local::{LocalBackend, LocalOptions};
use serde::Serialize;

use super::predictions::{can_be_written, held, write_predictions};
use super::{stack_options, until_stopped, watch};
use crate::exit::Exit;
use crate::failure::Failure;
use crate::output::{Format, Printer, table};
use crate::rollout::{Print, RolloutArgs};

/// One trial, as a row of data.
#[derive(Serialize)]
struct TrialRow<'a> {
    trial: &'a str,
    task: &'a str,
    outcome: &'a str,
    reward: Option<f32>,
    dropped: Option<&'a str>,
    hack_flags: &'a [String],
    tokens: u64,
    turns: u32,
    seconds: f32,
}

/// One series of an evaluation, as a row of data.
#[derive(Serialize)]
struct ScoreRow<'a> {
    #[serde(flatten)]
    score: &'a lego::rollout::SeriesScore,
    greedy: Option<f64>,
}

/// Rollouts alone.
pub(crate) fn rollout(printer: &Printer, mut loaded: Loaded, args: &RolloutArgs) -> Result<Exit, Failure> {
    let tasks = task_ids(&mut loaded, args)?;
    if let Some(path) = args.predictions.as_ref().filter(|path| path.as_os_str() != "-") {
        can_be_written(path)?;
    }
    let kept = args.out.clone();
    let temporary = match &kept {
        Some(_) => None,
        None => Some(tempfile::tempdir().map_err(|error| Failure::unavailable("no temporary folder").source(error))?),
    };
    let out = kept
        .or_else(|| temporary.as_ref().map(|folder| folder.path().join("eval")))
        .unwrap_or_default();
    let place = out.clone();
    if args.fresh && out.is_dir() {
        return Err(Failure::usage(format!("{} holds a rollout already", out.display()))
            .hint("name another folder with -o, or leave out --fresh to go on with it"));
    }
    let (mut check, mut patches) = (None, None);
    if let Some(from) = &args.regrade {
        let same = |path: &std::path::Path| fs_err::canonicalize(path).ok();
        if same(from).is_some_and(|from| same(&out) == Some(from)) {
            return Err(Failure::usage(format!(
                "--regrade {0} -o {0}: the results are there already",
                from.display()
            ))
            .hint("-o names a folder of its own for the new ones"));
        }
        let folder = from.join("trials").join(RunDir::trials_of(0, args.eval));
        if !folder.is_dir() {
            return Err(
                Failure::usage(format!("{} holds no trials of such a rollout", folder.display()))
                    .hint("--eval is to be said of the new one as it was of the first"),
            );
        }
        if args.group_size.is_none() {
            sampled_as(from, &mut loaded.config)?;
        }
        let scaffold = &mut loaded.config.scaffold;
        *scaffold = ScaffoldSection {
            name: "patch".to_owned(),
            args: vec![folder.display().to_string()],
            env: std::mem::take(&mut scaffold.env),
            ..ScaffoldSection::default()
        };
        check = Some(Check {
            asks_model: false,
            network: None,
        });
        patches = Some(folder);
    }
    let job = CollectJob {
        loaded,
        out,
        tasks,
        patches,
        evaluate: args.eval,
        check,
        max_failures: args.max_failures,
        stack: stack_options()?,
        stop: tokio_util::sync::CancellationToken::new(),
        observer: watch::watch(printer, args.format.format, false, 1),
    };
    let ended = until_stopped(printer, "trials that run", |stop| {
        collect(CollectJob {
            stop: stop.finish,
            ..job
        })
    })?;
    let Some(result) = ended else {
        printer.note(format_args!(
            "stopped at once; the same command goes on with what is durable"
        ));
        return Ok(Exit::Interrupted);
    };
    let end = result?;
    // Predictions on stdout stand alone.
    if args.predictions.as_ref().is_none_or(|path| path.as_os_str() != "-") {
        print(printer, args, &end)?;
    }
    summary(printer, &end);
    if let Some(path) = &args.predictions {
        let (found, missing) = match &args.regrade {
            // What was judged again is what the agents of that rollout left.
            Some(from) => predictions(from, args.eval, &held(from, &end)?),
            None => predictions(&place, args.eval, &end.episodes),
        };
        write_predictions(printer, path, &found, &missing)?;
    }
    Ok(if end.interrupted {
        Exit::Interrupted
    } else if end.too_many_failures {
        Exit::Negative
    } else {
        Exit::Ok
    })
}

/// `--tasks`: another index or JSONL stands for the run's own; a list of ids selects from it.
fn task_ids(loaded: &mut Loaded, args: &RolloutArgs) -> Result<Option<Vec<String>>, Failure> {
    let Some(path) = &args.tasks else { return Ok(None) };
    let is_set = path
        .extension()
        .is_some_and(|extension| extension == "parquet" || extension == "jsonl");
    if is_set {
        let path = std::path::absolute(path).map_err(|error| Failure::usage("no such path").source(error))?;
        if args.eval {
            loaded.config.data.val = vec![path];
        } else {
            loaded.config.data.train = Some(path);
        }
        return Ok(None);
    }
    let text = if path.as_os_str() == "-" {
        std::io::read_to_string(std::io::stdin())
    } else {
        fs_err::read_to_string(path)
    }
    .map_err(|error| Failure::usage("cannot read the list of tasks").source(error))?;
    let ids: Vec<String> = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .map(str::to_owned)
        .collect();
    if ids.is_empty() {
        return Err(Failure::nothing_selected(format!("{} names no task", path.display())));
    }
    Ok(Some(ids))
}

fn print(printer: &Printer, args: &RolloutArgs, end: &CollectEnd) -> Result<(), Failure> {
    if args.print == Some(Print::Paths) {
        let paths: Vec<String> = end
            .shards
            .iter()
            .map(|path| path.display().to_string() + "\n")
            .collect();
        return printer.text(&paths.concat());
    }
    if let Some(evaluation) = &end.evaluation {
        let greedy_of = |name: &str| {
            let report = evaluation.greedy.as_ref()?;
            report
                .series
                .iter()
                .find(|greedy| greedy.series == name)
                .map(|greedy| greedy.pass_at_1)
        };
        let rows: Vec<ScoreRow<'_>> = evaluation
            .sampled
            .series
            .iter()
            .map(|score| ScoreRow {
                score,
                greedy: greedy_of(&score.series),
            })
            .collect();
        return printer.rows(args.format.format, &rows, |rows| {
            let header = [
                "SERIES", "PASS@1", "95 %", "PASS@K", "K", "GREEDY", "TASKS", "SCORED", "LANDED", "INFRA",
            ];
            table(
                &header,
                &[1, 2, 3, 4, 5, 6, 7, 8, 9],
                rows.iter().map(|row| {
                    vec![
                        row.score.series.clone(),
                        format!("{:.3} ± {:.3}", row.score.pass_at_1, row.score.pass_at_1_se),
                        format!(
                            "{:.3}–{:.3}",
                            row.score.pass_at_1_interval.0, row.score.pass_at_1_interval.1
                        ),
                        format!("{:.3} ± {:.3}", row.score.pass_at_k, row.score.pass_at_k_se),
                        row.score.k.to_string(),
                        row.greedy
                            .map_or_else(|| "-".to_owned(), |greedy| format!("{greedy:.3}")),
                        row.score.tasks.to_string(),
                        row.score.trials.to_string(),
                        row.score.landed.to_string(),
                        row.score.infra.to_string(),
                    ]
                }),
            )
        });
    }
    let rows: Vec<TrialRow<'_>> = end
        .episodes
        .iter()
        .map(|episode| TrialRow {
            trial: &episode.trial_name,
            task: &episode.task_id,
            outcome: episode.outcome.name(),
            reward: episode.reward,
            dropped: episode.drop_reason.as_deref(),
            hack_flags: &episode.hack_flags,
            tokens: episode.audit.sampled_tokens,
            turns: episode.audit.num_turns,
            seconds: episode.timings.total_s,
        })
        .collect();
    printer.rows(args.format.format, &rows, |rows| {
        let header = ["TRIAL", "OUTCOME", "REWARD", "TURNS", "TOKENS", "SECONDS"];
        table(
            &header,
            &[2, 3, 4, 5],
            rows.iter().map(|row| {
                vec![
                    row.trial.to_owned(),
                    row.outcome.to_owned(),
                    row.reward
                        .map_or_else(|| "-".to_owned(), |reward| format!("{reward:.2}")),
                    row.turns.to_string(),
                    row.tokens.to_string(),
                    format!("{:.2}", row.seconds),
                ]
            }),
        )
    })
}

fn summary(printer: &Printer, end: &CollectEnd) {
    if end.kept > 0 {
        let (kept, all) = (end.kept, end.summary.trials);
        printer.note(format_args!(
            "{kept} of the {all} trials were there already and were not run again"
        ));
    }
    if end.interrupted {
        printer.note(format_args!("interrupted; the same command goes on"));
    }
    let flagged = end
        .episodes
        .iter()
        .filter(|episode| !episode.hack_flags.is_empty())
        .count();
    if flagged > 0 {
        printer.note(format_args!(
            "warning: {flagged} trials show signs of tampering with their tests; see hack_flags"
        ));
    }
    let rows = end.summary.outcomes.iter().map(|row| {
        vec![
            row.outcome.clone(),
            row.trials.to_string(),
            row.reward_mean
                .map_or_else(|| "-".to_owned(), |reward| format!("{reward:.3}")),
            row.tokens.to_string(),
            format!("{:.2}", row.p50_s),
            format!("{:.2}", row.p95_s),
        ]
    });
    let text = table(
        &["OUTCOME", "TRIALS", "REWARD", "TOKENS", "P50 S", "P95 S"],
        &[1, 2, 3, 4, 5],
        rows,
    );
    printer.note(format_args!("{}", text.trim_end()));
    let reward = match (end.summary.reward_mean, end.summary.reward_se) {
        (Some(mean), Some(se)) => format!(" · reward {mean:.3} ± {se:.3}"),
        (Some(mean), None) => format!(" · reward {mean:.3}"),
        _ => String::new(),
    };
    let dropped: usize = end.summary.dropped.values().sum();
    printer.note(format_args!(
        "{} trials · {dropped} dropped · {} retried{reward}",
        end.summary.trials, end.summary.retries
    ));
}

/// Takes back results that failed by infrastructure.
pub(crate) fn purge(
    printer: &Printer,
    out: &std::path::Path,
    confirmed: bool,
    format: Format,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Runtime::new()?;
    let found = runtime.block_on(lego::pipeline::purge(out, confirmed))?;
    printer.rows(format, &found, |rows| {
        table(
            &["TRIAL", "OUTCOME"],
            &[],
            rows.iter().map(|row| vec![row.trial.clone(), row.outcome.clone()]),
        )
    })?;
    printer.note(format_args!(
        "{} results failed by infrastructure{}",
        found.len(),
        match (found.is_empty(), confirmed) {
            (true, _) => "",
            (_, true) => "; they are in purged.jsonl, and the same rollout runs their trials again",
            (_, false) => "; nothing was changed: --confirm takes them back",
        }
    ));
    Ok(Exit::Ok)
}

/// Removes what earlier runs left behind.
pub(crate) fn reap(printer: &Printer, cluster: Option<&KubernetesSection>) -> Result<Exit, Failure> {
    let options = stack_options()?;
    let local = Backend::Local(LocalBackend::new(LocalOptions::new(
        &options.init_exe,
        &options.scratch,
    )));
    let docker = DockerOptions::new(&options.init_exe, &options.scratch);
    let engine = lego::sandbox::docker::address(None);
    // A machine without an engine has no containers to remove.
    let has_engine = match engine.strip_prefix("unix://") {
        Some(socket) => std::path::Path::new(socket).exists(),
        None => true,
    };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let failed = |error: lego::sandbox::SandboxError| Failure::unavailable(error.to_string());
    let mut removed = runtime.block_on(local.reap()).map_err(failed)?;
    if has_engine {
        let docker = Backend::Docker(Box::new(DockerBackend::new(docker)));
        removed.extend(runtime.block_on(docker.reap()).map_err(failed)?);
    }
    if let Some(section) = cluster {
        let options = KubernetesOptions::new(&options.init_exe, section);
        let cluster = Backend::Kubernetes(Box::new(KubernetesBackend::new(options)));
        removed.extend(runtime.block_on(cluster.reap()).map_err(failed)?);
    }
    for path in &removed {
        printer.text(&format!("{}\n", path.display()))?;
    }
    printer.note(format_args!(
        "{} sandboxes of processes that are gone removed",
        removed.len()
    ));
    Ok(Exit::Ok)
}
