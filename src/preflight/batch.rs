//! `batch`: groups, mini-batches and presets go together.

use super::{Check, Context, Finding};
use crate::config::{AdvantageName, AlgorithmName};
use crate::train::Recipe;

pub(super) struct Batch;

/// Groups smaller than this often hold equal rewards, and teach nothing then.
const SMALL_GROUP: u32 = 4;

impl Check for Batch {
    fn id(&self) -> &'static str {
        "batch"
    }

    fn title(&self) -> &'static str {
        "groups and mini-batches go together"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let (rollout, train) = (&run.config.rollout, &run.config.train);
        let mut found = Vec::new();
        if !context.purpose.trains() {
            return found;
        }
        let resolved = match train.resolve(rollout.groups_per_step) {
            Ok(resolved) => resolved,
            Err(error) => {
                found.push(
                    Finding::fatal(self.id(), error.to_string())
                        .at(run, error.key())
                        .help(format!("take `{}` out: the preset sets it", error.key())),
                );
                return found;
            }
        };
        if let Err(error) = Recipe::from_section(train, rollout.groups_per_step)
            && let Some(key) = error.key()
        {
            found.push(
                Finding::fatal(self.id(), error.to_string())
                    .at(run, &format!("train.{key}"))
                    .help(format!("change `{key}` below `[train]`, or take it out")),
            );
        }
        if train.algorithm == AlgorithmName::Sft {
            return found;
        }
        let compares = match resolved.advantage {
            AdvantageName::Grpo => Some("grpo"),
            AdvantageName::Rloo => Some("rloo"),
            AdvantageName::Opo => Some("opo"),
            AdvantageName::ReinforcePlusPlusBaseline => Some("reinforce_plus_plus_baseline"),
            AdvantageName::Remax | AdvantageName::ReinforcePlusPlus | AdvantageName::Gae => None,
        };
        let size = rollout.group_size;
        if let (Some(name), 1) = (compares, size) {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!("rollout.group_size = 1 with advantage `{name}`: an episode is compared with its group, and here it is alone"),
                )
                .at(run, "rollout.group_size")
                .help("write `group_size = 8`"),
            );
        } else if compares.is_some() && size < SMALL_GROUP {
            found.push(
                Finding::warn(
                    self.id(),
                    format!(
                        "rollout.group_size = {size}: groups this small often hold equal rewards and teach nothing then"
                    ),
                )
                .at(run, "rollout.group_size")
                .help("write `group_size = 8`"),
            );
        }
        let (groups, mini) = (rollout.groups_per_step, resolved.mini_batch);
        if mini == 0 || mini > groups || !groups.is_multiple_of(mini) {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!("train.mini_batch = {mini} does not divide rollout.groups_per_step = {groups}: both count groups"),
                )
                .at(run, "train.mini_batch")
                .help(format!("write one of {}", divisors(groups))),
            );
        }
        if rollout.dynamic_sampling && rollout.max_extra_groups == 0 {
            found.push(
                Finding::fatal(
                    self.id(),
                    "rollout.dynamic_sampling without rollout.max_extra_groups: no group can be replaced",
                )
                .at(run, "rollout.dynamic_sampling")
                .help(format!("write `max_extra_groups = {groups}`")),
            );
        }
        if rollout.temperature <= 0.0 {
            found.push(
                Finding::fatal(
                    self.id(),
                    "rollout.temperature = 0: all episodes of a group are the same, and none is better",
                )
                .at(run, "rollout.temperature")
                .help("write `temperature = 1.0`"),
            );
        }
        if rollout.top_p < 1.0 || rollout.top_k > 0 {
            let key = if rollout.top_p < 1.0 {
                "rollout.top_p"
            } else {
                "rollout.top_k"
            };
            found.push(
                Finding::fatal(
                    self.id(),
                    format!("{key}: log-probs of a cut distribution are not those that the update computes"),
                )
                .at(run, key)
                .help("write `top_p = 1.0` and `top_k = -1` for training; `[eval]` may differ"),
            );
        }
        found
    }
}

/// The largest divisors, in words.
fn divisors(number: u32) -> String {
    let all: Vec<_> = (1..=number)
        .rev()
        .filter(|candidate| number.is_multiple_of(*candidate))
        .take(4)
        .collect();
    all.iter()
        .map(|divisor| format!("`{divisor}`"))
        .collect::<Vec<_>>()
        .join(", ")
}
