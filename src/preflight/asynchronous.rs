//! `async`: keys of a run whose two sides go on side by side.

use super::{Check, Context, Finding};
use crate::buffer::StalenessGate;

pub(super) struct Asynchronous;

/// Keys without effect where both sides take turns.
const KEYS: [&str; 5] = [
    "async.staleness",
    "async.trigger_sync_step",
    "async.require_batches",
    "async.partial_rollout",
    "async.max_queue",
];

impl Check for Asynchronous {
    fn id(&self) -> &'static str {
        "async"
    }

    fn title(&self) -> &'static str {
        "sampling and updates go together"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        (!context.run.config.r#async.enabled).then_some("sampling and updates take turns (async.enabled is not set)")
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        if !context.purpose.trains() {
            return Vec::new();
        }
        let section = &run.config.r#async;
        if !section.enabled {
            let written = KEYS.iter().filter(|key| run.location(key).is_some());
            return written
                .map(|key| {
                    Finding::fatal(
                        self.id(),
                        format!(
                            "{key} without async.enabled: sampling and updates take turns, and the key has no effect"
                        ),
                    )
                    .at(run, key)
                    .help("write `enabled = true` below `[async]` (or pass --async), or take the key out")
                })
                .collect();
        }
        let mut found = Vec::new();
        let required = run.config.groups_per_update();
        if let Some(most) = section.max_queue.filter(|most| *most < required) {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!("async.max_queue = {most}, and an update takes {required} groups: none could ever begin"),
                )
                .at(run, "async.max_queue")
                .help(format!(
                    "write `max_queue = {}`, or take it out",
                    StalenessGate::new(required, section.trigger_sync_step, section.staleness).capacity()
                )),
            );
        }
        if run.config.rollout.tail_kill.is_some() {
            found.push(
                Finding::fatal(
                    self.id(),
                    "rollout.tail_kill with async.enabled: no step waits for its last trials, so that none are late",
                )
                .at(run, "rollout.tail_kill")
                .help("take `tail_kill` out"),
            );
        }
        let written = ["rollout.groups_per_step", "async.require_batches"].map(|key| run.location(key).is_some());
        if written == [true, true] && run.config.rollout.groups_per_step != required {
            found.push(
                Finding::warn(
                    self.id(),
                    format!(
                        "rollout.groups_per_step = {} has no effect beside async.require_batches: an update takes train.mini_batch × \
                         async.require_batches = {required} groups",
                        run.config.rollout.groups_per_step
                    ),
                )
                .at(run, "rollout.groups_per_step")
                .help("take one of the two out"),
            );
        }
        found
    }
}
