//! `token-budget`: rows fit the model's window and the micro-batch.

use super::{Check, Context, Finding, model};
use crate::config::EngineKind;

pub(super) struct TokenBudget;

impl Check for TokenBudget {
    fn id(&self) -> &'static str {
        "token-budget"
    }

    fn title(&self) -> &'static str {
        "rows fit the window and the micro-batch"
    }

    fn look(&self, context: Context<'_>) -> Vec<Finding> {
        let run = context.run;
        let config = &run.config;
        let window = u64::from(config.data.max_prompt_tokens) + u64::from(config.data.max_response_tokens);
        let positions = model::max_positions(run);
        let mut found = Vec::new();
        if let (Some(length), Some(positions)) = (config.policy.max_model_len, positions)
            && u64::from(length) > positions
        {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!("policy.max_model_len = {length}, and the model was made for {positions} positions"),
                )
                .at(run, "policy.max_model_len")
                .help(format!("write at most `max_model_len = {positions}`")),
            );
        }
        let limit = config.policy.max_model_len.map(u64::from).or(positions);
        if let Some(limit) = limit.filter(|limit| window > *limit) {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!(
                        "data.max_prompt_tokens + data.max_response_tokens = {window}, and the window is {limit} tokens"
                    ),
                )
                .at(run, "data.max_response_tokens")
                .help(format!("let the two add up to at most {limit}")),
            );
        }
        if context.purpose.trains() && u64::from(config.train.max_tokens_per_micro_batch) < window {
            found.push(
                Finding::fatal(
                    self.id(),
                    format!(
                        "train.max_tokens_per_micro_batch = {}, and one row may have {window} tokens (data.max_prompt_tokens + data.max_response_tokens)",
                        config.train.max_tokens_per_micro_batch
                    ),
                )
                .at(run, "train.max_tokens_per_micro_batch")
                .help(format!("write `max_tokens_per_micro_batch = {window}`, or shorter rows")),
            );
        }
        if found.is_empty() && limit.is_none() && config.engine.kind == EngineKind::Embedded {
            found.push(Finding::skip(
                self.id(),
                "neither policy.max_model_len nor the model's config.json gives a window",
            ));
        }
        found
    }
}
