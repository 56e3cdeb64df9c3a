//! Turns the pipeline's events into bars, rows and notes.

use std::sync::{Arc, Mutex, PoisonError};

use lego::metrics::StepMetrics;
use lego::pipeline::{Phase, PipelineEvent, PipelineObserver};
use lego::rollout::RolloutEvent;
use lego::trajectory::Outcome;

use crate::failure::{Failure, Kind};
use crate::output::{Format, Printer, Progress};

/// Retries of a step that are told one by one.
const RETRIES_TOLD: u64 = 3;

/// What is being watched.
#[derive(Default)]
struct Seen {
    bar: Option<Progress>,
    phase: Option<(u32, Phase)>,
    steps: u32,
    planned: u64,
    finished: u64,
    running: u64,
    failed: u64,
    /// Tries that failed and were made again.
    retried: u64,
    reward_sum: f64,
    graded: u64,
    /// Outcomes of which one failure has been shown.
    shown: Vec<Outcome>,
    /// Whether it was said that stdout takes no more rows.
    mute: bool,
}

/// An observer that draws for a person and, with `rows`, writes one JSON object a step to stdout.
pub(super) fn watch(printer: &Printer, format: Format, rows: bool, every: u32) -> PipelineObserver {
    let printer = printer.clone();
    let seen = Mutex::new(Seen::default());
    Arc::new(move |event| {
        let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
        match event {
            PipelineEvent::Opened { run_dir, step, steps } => {
                seen.steps = steps;
                let run = run_dir.display();
                if step >= steps {
                    printer.note(format_args!(
                        "{run} has {step} steps already; `--steps` above that goes on, `--fresh` starts anew"
                    ));
                } else if step > 0 {
                    printer.note(format_args!("{run} goes on after step {step} of {steps}"));
                }
            }
            PipelineEvent::Phase { step, phase } => seen.phase = Some((step, phase)),
            PipelineEvent::Rollout(event) => seen.rollout(&printer, event),
            PipelineEvent::Validating { step, ended, trials } => {
                printer.note(format_args!("validation after step {step}: {ended} of {trials} trials"));
            }
            PipelineEvent::Evaluated { step, evaluation } => {
                seen.clear();
                for series in evaluation
                    .sampled
                    .series
                    .iter()
                    .filter(|series| !series.series.contains('/'))
                {
                    let greedy = evaluation
                        .greedy
                        .iter()
                        .flat_map(|report| &report.series)
                        .find(|greedy| greedy.series == series.series)
                        .map_or_else(String::new, |greedy| format!(" · greedy {:.3}", greedy.pass_at_1));
                    printer.note(format_args!(
                        "validation after step {step}: {} pass@1 {:.3} ± {:.3}{greedy} ({} tasks)",
                        series.series, series.pass_at_1, series.pass_at_1_se, series.tasks
                    ));
                }
            }
            PipelineEvent::Step { step, metrics } => {
                seen.clear();
                let due = step % every.max(1) == 0 || step == seen.steps;
                match format.chosen() {
                    Format::Table if rows && step > 0 && due => {
                        let written = printer.text(&(row(step, seen.steps, &metrics) + "\n"));
                        seen.told(&printer, written);
                    }
                    Format::Json | Format::Jsonl if rows => {
                        let written = printer.text(&(metrics.to_json_line() + "\n"));
                        seen.told(&printer, written);
                        if step > 0 && due {
                            printer.note(format_args!("{}", row(step, seen.steps, &metrics)));
                        }
                    }
                    _ => {}
                }
            }
            PipelineEvent::Checkpoint(path) => tracing::info!(path = %path.display(), "checkpoint"),
            PipelineEvent::Warning(text) => printer.note(format_args!("warning: {text}")),
        }
    })
}

impl Seen {
    fn rollout(&mut self, printer: &Printer, event: RolloutEvent) {
        match event {
            RolloutEvent::Planned { trials } => {
                self.clear();
                *self = Self {
                    phase: self.phase,
                    steps: self.steps,
                    mute: self.mute,
                    planned: trials as u64,
                    running: self.running,
                    ..Self::default()
                };
                let what = match self.phase {
                    Some((step, Phase::Evaluate)) => format!("validation {step}"),
                    Some((step, _)) => format!("step {step}/{} rollout", self.steps),
                    None => "rollout".to_owned(),
                };
                self.bar = Some(printer.progress(&what, Some(self.planned)));
                self.draw();
            }
            RolloutEvent::Started { .. } => {
                self.running += 1;
                self.draw();
            }
            RolloutEvent::Retried { name, attempt, reason } => {
                self.running = self.running.saturating_sub(1);
                self.retried += 1;
                // An engine that is gone fails every trial alike: some tell of it, the bar counts them all.
                if self.retried <= RETRIES_TOLD {
                    printer.note(format_args!(
                        "{name}: try {} failed, trying again: {reason}",
                        attempt + 1
                    ));
                } else if self.retried == RETRIES_TOLD + 1 {
                    printer.note(format_args!(
                        "warning: more tries fail; they are only counted from here on, and in rollout/retries"
                    ));
                }
                self.draw();
            }
            RolloutEvent::Finished {
                name,
                outcome,
                reward,
                reason,
                ..
            } => {
                self.running = self.running.saturating_sub(1);
                self.finished += 1;
                self.failed += u64::from(!outcome.is_graded());
                // One of a kind tells what is wrong; all are in the shards and in trials/.
                if let (Some(reason), false) = (reason, self.shown.contains(&outcome)) {
                    self.shown.push(outcome);
                    printer.note(format_args!("warning: {name}: {}: {reason}", outcome.name()));
                }
                if let Some(reward) = reward {
                    self.graded += 1;
                    self.reward_sum += f64::from(reward);
                }
                self.draw();
            }
            RolloutEvent::ShardWritten(path) => tracing::debug!(path = %path.display(), "shard"),
        }
    }

    /// Says once that rows are lost; the run goes on, since metrics.jsonl has them.
    fn told(&mut self, printer: &Printer, written: Result<(), Failure>) {
        let lost = written.is_err_and(|failure| failure.kind != Kind::ClosedPipe);
        if lost && !self.mute {
            self.mute = true;
            printer.note(format_args!(
                "warning: stdout cannot be written; the rows are in metrics.jsonl"
            ));
        }
    }

    fn draw(&self) {
        if let Some(bar) = &self.bar {
            let reward = if self.graded > 0 {
                format!(" · reward {:.2}", self.reward_sum / self.graded as f64)
            } else {
                String::new()
            };
            let retried = if self.retried > 0 {
                format!(" · {} tried again", self.retried)
            } else {
                String::new()
            };
            bar.set(
                self.finished,
                format!("{} running · {} failed{retried}{reward}", self.running, self.failed),
            );
        }
    }

    fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish();
        }
    }
}

/// A step in one line.
fn row(step: u32, steps: u32, metrics: &StepMetrics) -> String {
    let mut line = format!("step {step}/{steps}");
    let mut add = |label: &str, name: &str, decimals: usize| {
        if let Some(value) = metrics.get(name) {
            line += &format!("  {label} {value:.decimals$}");
        }
    };
    add("reward", "critic/score/mean", 3);
    add("loss", "actor/pg_loss", 4);
    add("kl", "actor/ppo_kl", 4);
    add("entropy", "actor/entropy", 3);
    add("grad", "actor/grad_norm", 3);
    if let Some(clipped) = metrics.get("actor/pg_clipfrac") {
        line += &format!("  clip {:.1}%", clipped * 100.0);
    }
    if let Some(dropped) = metrics
        .get("trajectory_filter/invalid_ratio")
        .filter(|ratio| *ratio > 0.0)
    {
        line += &format!("  dropped {:.0}%", dropped * 100.0);
    }
    let seconds = |name| metrics.get(name).unwrap_or(0.0);
    line += &format!("  {:.1} s", seconds("timing_s/step"));
    if metrics.get("timing_s/gen").is_some() {
        line += &format!(
            " (gen {:.1} upd {:.1} sync {:.1}",
            seconds("timing_s/gen"),
            seconds("timing_s/update_actor"),
            seconds("timing_s/sync_weights")
        );
        if let Some(eval) = metrics.get("timing_s/eval") {
            line += &format!(" eval {eval:.1}");
        }
        line.push(')');
    }
    line
}
