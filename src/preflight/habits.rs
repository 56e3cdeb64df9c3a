//! Three checks of what is allowed and seldom meant: `rollout-correction`, `routing-replay`, `validation`. What only looks
//! unwise is told when a whole run.toml is looked at, and not again by each command.

use super::{Check, Context, Finding, Purpose, model};
use crate::config::{EngineKind, RolloutIs, RoutingReplay};

/// Responses of so many tokens are long.
const LONG: u32 = 4096;

pub(super) struct RolloutCorrection;

impl Check for RolloutCorrection {
    fn id(&self) -> &'static str {
        "rollout-correction"
    }

    fn title(&self) -> &'static str {
        "importance weights stay small products"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        let off = context.run.config.train.rollout_correction.rollout_is == RolloutIs::None;
        off.then_some("no importance weights are used (train.rollout_correction.rollout_is is `none`)")
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let config = &context.run.config;
        let sequences = config.train.rollout_correction.rollout_is == RolloutIs::Sequence;
        if context.purpose != Purpose::Whole || !sequences || config.data.max_response_tokens <= LONG {
            return Vec::new();
        }
        let text = format!(
            "train.rollout_correction.rollout_is = \"sequence\" with responses of up to {} tokens: a product over so many is \
             dominated by a few rows",
            config.data.max_response_tokens
        );
        let key = "train.rollout_correction.rollout_is";
        vec![
            Finding::warn(self.id(), text)
                .at(context.run, key)
                .help("write `rollout_is = \"token\"`"),
        ]
    }
}

pub(super) struct Routing;

impl Check for Routing {
    fn id(&self) -> &'static str {
        "routing-replay"
    }

    fn title(&self) -> &'static str {
        "experts are those that the engine chose"
    }

    fn idle(&self, context: Context<'_>) -> Option<&'static str> {
        let shape = model::shape(&context.run.config.policy)?;
        shape.moe.is_none().then_some("the model is no mixture of experts")
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let (run, config) = (context.run, &context.run.config);
        if !context.purpose.trains() {
            return Vec::new();
        }
        let replay = config.train.routing_replay;
        if replay == RoutingReplay::R3 && config.engine.kind == EngineKind::Replay && context.purpose.samples() {
            let text = "train.routing_replay = \"r3\": recorded answers hold no routing";
            let finding = Finding::fatal(self.id(), text).at(run, "train.routing_replay");
            return vec![finding.help("write `routing_replay = \"r2\"`, or sample from an engine")];
        }
        let experts = model::shape(&config.policy).is_some_and(|shape| shape.moe.is_some());
        if context.purpose == Purpose::Whole && experts && replay != RoutingReplay::R3 {
            let text = "a mixture of experts without train.routing_replay = \"r3\": engine and trainer may send tokens to other experts";
            let finding = Finding::warn(self.id(), text).at(run, "train.routing_replay");
            return vec![finding.help("write `routing_replay = \"r3\"` below `[train]`")];
        }
        Vec::new()
    }
}

pub(super) struct Validation;

impl Check for Validation {
    fn id(&self) -> &'static str {
        "validation"
    }

    fn title(&self) -> &'static str {
        "the run is validated"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let (run, config) = (context.run, &context.run.config);
        if context.purpose != Purpose::Whole {
            return Vec::new();
        }
        let warn = |text: &str, key: &str, help: &str| vec![Finding::warn(self.id(), text).at(run, key).help(help)];
        if let Some(train) = config
            .data
            .train
            .as_ref()
            .filter(|train| config.data.val.contains(train))
        {
            let text = format!(
                "data.val names the tasks that are trained on ({}): the score will not tell learning from remembering",
                train.display()
            );
            return warn(
                &text,
                "data.val",
                "hold tasks back: `lego prepare index TASKS_DIR --split val=0.1`",
            );
        }
        match (config.data.val.is_empty(), config.eval.every) {
            (true, _) => warn(
                "data.val is not set: training reward alone does not tell learning from overfitting",
                "data.val",
                "write `val = [\"val.parquet\"]` below `[data]`",
            ),
            (false, 0) if !config.eval.before_train => warn(
                "eval.every = 0 and eval.before_train = false: the tasks of data.val are never looked at",
                "eval.every",
                "write `every = 10` below `[eval]`",
            ),
            (false, every) if every > config.train.steps => warn(
                "eval.every is more than train.steps: nothing is validated on the way",
                "eval.every",
                "write a number of steps that the run has",
            ),
            _ => Vec::new(),
        }
    }
}
