//! `schedule`: the learning rate is above zero while the run learns.

use super::{Check, Context, Finding, Purpose};
use crate::config::{SMALLEST_RATE, SchedulerName};

/// A larger rate forgets what the model knew within a step.
const LARGE_RATE: f64 = 0.1;

pub(super) struct Schedule;

impl Check for Schedule {
    fn id(&self) -> &'static str {
        "schedule"
    }

    fn title(&self) -> &'static str {
        "the learning rate is above zero"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let train = &run.config.train;
        let mut found = Vec::new();
        if !context.purpose.trains() {
            return found;
        }
        if train.lr < SMALLEST_RATE {
            let rate = if train.lr == 0.0 {
                "0".to_owned()
            } else {
                format!("{:e}", train.lr)
            };
            let text = format!("train.lr = {rate}: no step would change the policy");
            found.push(
                Finding::fatal(self.id(), text)
                    .at(run, "train.lr")
                    .help("write `lr = 1e-6`"),
            );
        }
        if context.purpose == Purpose::Whole && train.lr > LARGE_RATE {
            let text = format!(
                "train.lr = {}: AdamW moves each weight by about that much a step, and most weights of a model are smaller than {LARGE_RATE}",
                train.lr
            );
            found.push(
                Finding::warn(self.id(), text)
                    .at(run, "train.lr")
                    .help("write `lr = 1e-6`, or up to 1e-3 for adapters and small models"),
            );
        }
        if train.warmup >= train.steps && train.warmup > 0 {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!(
                        "train.warmup = {} with train.steps = {}: the learning rate is never reached",
                        train.warmup, train.steps
                    ),
                )
                .at(run, "train.warmup")
                .help(format!("write `warmup = {}`", train.steps / 20)),
            );
        }
        let decays = train.scheduler != SchedulerName::Constant;
        if decays && run.location("train.steps").is_none() {
            found.push(
                Finding::fatal(
                    self.id(),
                    "train.scheduler falls to zero after the last step, and train.steps is not written",
                )
                .at(run, "train.scheduler")
                .help("write `steps` below `[train]`"),
            );
        }
        if decays && train.steps == 1 {
            found.push(
                Finding::fatal(
                    self.id(),
                    "train.scheduler with train.steps = 1: the only step would have a learning rate of zero",
                )
                .at(run, "train.scheduler")
                .help("write `scheduler = \"constant\"`"),
            );
        }
        found
    }
}
