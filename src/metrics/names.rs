//! The table of metrics. A part in angle brackets stands for any text without a slash.

/// Where a metric should go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// More is better.
    Higher,
    /// Less is better.
    Lower,
    /// Neither; it is watched for change.
    Neutral,
}

/// What is known of a metric.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Metric {
    /// Name, or a pattern of names.
    pub name: &'static str,
    /// Unit; empty for plain numbers.
    pub unit: &'static str,
    /// Where it should go.
    pub direction: Direction,
    /// One line of help.
    pub help: &'static str,
}

macro_rules! metrics {
    (@direction up) => { Direction::Higher };
    (@direction down) => { Direction::Lower };
    (@direction watch) => { Direction::Neutral };
    ($($direction:ident $name:literal [$unit:literal] $help:literal;)*) => {
        /// Every metric.
        pub const METRICS: &[Metric] = &[
            $(Metric { name: $name, unit: $unit, direction: metrics!(@direction $direction), help: $help }),*
        ];
    };
}

metrics! {
    up "critic/score/mean" ["reward"] "Mean verifier reward of the step's graded episodes";
    up "critic/score/max" ["reward"] "Largest verifier reward";
    up "critic/score/min" ["reward"] "Smallest verifier reward";
    watch "critic/score/std" ["reward"] "Sample standard deviation of the verifier reward";
    watch "critic/score/stderr" ["reward"] "Standard error of the mean verifier reward";
    up "critic/rewards/mean" ["reward"] "Mean reward after shaping and KL";
    up "critic/rewards/max" ["reward"] "Largest reward after shaping and KL";
    up "critic/rewards/min" ["reward"] "Smallest reward after shaping and KL";
    watch "critic/advantages/mean" [""] "Mean advantage over trained tokens";
    watch "critic/advantages/max" [""] "Largest advantage";
    watch "critic/advantages/min" [""] "Smallest advantage";
    watch "critic/returns/mean" ["reward"] "Mean return over trained tokens";
    watch "critic/returns/max" ["reward"] "Largest return";
    watch "critic/returns/min" ["reward"] "Smallest return";
    up "critic/vf_explained_var" [""] "Variance of the returns that the value function explains";
    down "critic/vf_loss" [""] "Loss of the value function";
    watch "critic/vf_clipfrac" ["share"] "Trained tokens whose value was clipped";
    watch "critic/vpred_mean" ["reward"] "Mean value over trained tokens, while it is fitted";
    watch "critic/values/<statistic>" ["reward"] "Values at the start of the update";
    watch "critic/grad_norm" [""] "Norm of the critic's gradient before clipping";
    watch "critic/lr" [""] "Learning rate of the critic";
    watch "response_length/mean" ["tokens"] "Mean response length of an episode's rows";
    watch "response_length/max" ["tokens"] "Longest response";
    watch "response_length/min" ["tokens"] "Shortest response";
    down "response_length/clip_ratio" ["share"] "Rows whose response reached the limit";
    watch "prompt_length/mean" ["tokens"] "Mean prompt length";
    watch "prompt_length/max" ["tokens"] "Longest prompt";
    watch "prompt_length/min" ["tokens"] "Shortest prompt";
    down "prompt_length/clip_ratio" ["share"] "Rows whose prompt moved into the response at the limit";
    watch "num_turns/mean" ["turns"] "Mean assistant turns of an episode";
    watch "num_turns/max" ["turns"] "Most assistant turns";
    watch "num_turns/min" ["turns"] "Fewest assistant turns";
    watch "num_tool_calls/mean" ["calls"] "Mean tool calls of an episode";
    watch "num_tool_calls/max" ["calls"] "Most tool calls";
    watch "num_tool_calls/min" ["calls"] "Fewest tool calls";
    watch "actor/entropy" ["nats"] "Mean entropy of the policy over trained tokens";
    watch "actor/loss" [""] "Loss that was differentiated";
    watch "actor/pg_loss" [""] "Policy-gradient loss";
    watch "actor/kl_loss" ["nats"] "KL divergence to the reference policy";
    watch "actor/kl_coef" [""] "Weight of the KL divergence";
    watch "actor/reward_kl_penalty" ["nats"] "KL divergence to the reference policy that is taken off the rewards";
    watch "actor/reward_kl_penalty_coeff" [""] "Weight of that KL divergence";
    watch "actor/grad_norm" [""] "Norm of the gradient before clipping";
    watch "actor/lr" [""] "Learning rate";
    watch "actor/ppo_kl" ["nats"] "Mean of old minus new log-prob over trained tokens";
    watch "actor/pg_clipfrac" ["share"] "Trained tokens whose ratio was clipped";
    watch "actor/pg_clipfrac_lower" ["share"] "Trained tokens at the dual clip";
    watch "actor/ratio/mean" [""] "Mean ratio of new to old probability, before clipping";
    watch "actor/ratio/max" [""] "Largest ratio, before clipping";
    watch "actor/ratio/min" [""] "Smallest ratio, before clipping";
    down "actor/nan_count" [""] "Values that were not finite in the update";
    down "actor/skipped_updates" ["updates"] "Mini-batches without a token to learn from";
    watch "actor/micro_batches" [""] "Micro-batches of the step";
    down "timing_s/gen" ["s"] "Time to sample the step's episodes";
    down "timing_s/reward" ["s"] "Time of verification, summed over the step's trials";
    down "timing_s/old_log_prob" ["s"] "Time to recompute log-probs at the start of the update";
    down "timing_s/ref" ["s"] "Time for the reference policy's log-probs";
    down "timing_s/adv" ["s"] "Time for advantages";
    down "timing_s/update_actor" ["s"] "Time of forward, backward and optimizer";
    down "timing_s/values" ["s"] "Time of the critic's values at the start of the update";
    down "timing_s/update_critic" ["s"] "Time of the critic's forward, backward and optimizer";
    down "timing_s/save" ["s"] "Time to write the checkpoint";
    down "timing_s/sync_weights" ["s"] "Time to publish weights to the engine";
    down "timing_s/testing" ["s"] "Time of validation";
    down "timing_s/eval" ["s"] "Time of validation within the step";
    down "timing_s/step" ["s"] "Time of the whole step";
    watch "perf/total_num_tokens" ["tokens"] "Prompt and response tokens of the step";
    down "perf/time_per_step" ["s"] "Time of the whole step";
    up "perf/throughput" ["tokens/s"] "Tokens of the step over its time";
    up "perf/mfu" ["share"] "Use of the device's peak arithmetic in the update";
    up "perf/gen_throughput" ["tokens/s"] "Sampled tokens over the time to sample";
    watch "training/global_step" ["steps"] "Optimizer step of the trainer";
    watch "training/epoch" ["epochs"] "Times through the training tasks";
    watch "training/trained_tokens" ["tokens"] "Tokens with mask 1 in the update";
    watch "training/episodes" ["episodes"] "Episodes in the update";
    down "training/skipped_steps" ["steps"] "1 where the step had nothing to learn from";
    up "training/rollout_actor_probs_pearson_corr" [""] "Correlation of engine and trainer probabilities; healthy from 0.999";
    down "training/rollout_probs_diff_mean" [""] "Mean difference of engine and trainer probabilities";
    down "training/rollout_probs_diff_max" [""] "Largest difference of engine and trainer probabilities";
    watch "rollout_corr/is_mean" [""] "Mean importance weight";
    watch "rollout_corr/is_max" [""] "Largest importance weight";
    watch "rollout_corr/is_min" [""] "Smallest importance weight";
    watch "rollout_corr/is_std" [""] "Standard deviation of the importance weights";
    up "rollout_corr/eff_sample_size" ["share"] "Effective sample size of the importance weights";
    down "rollout_corr/kl" ["nats"] "Mean of engine minus trainer log-prob";
    down "rollout_corr/k3_kl" ["nats"] "KL of engine to trainer, low-variance estimate";
    watch "rollout_corr/rollout_ppl" [""] "Perplexity under the engine";
    watch "rollout_corr/training_ppl" [""] "Perplexity under the trainer";
    watch "rollout_corr/rollout_log_ppl" [""] "Log perplexity under the engine";
    watch "rollout_corr/training_log_ppl" [""] "Log perplexity under the trainer";
    watch "rollout_corr/log_ppl_diff" [""] "By how much a row's mean log-prob under the engine exceeds the trainer's";
    down "rollout_corr/log_ppl_abs_diff" [""] "Mean size of that difference";
    watch "rollout_corr/log_ppl_diff_max" [""] "Largest such difference";
    watch "rollout_corr/log_ppl_diff_min" [""] "Smallest such difference";
    watch "rollout_corr/ppl_ratio" [""] "Perplexity under the trainer over that under the engine, mean over rows";
    down "rollout_corr/chi2_token" [""] "Chi-squared divergence of the token weights";
    down "rollout_corr/chi2_seq" [""] "Chi-squared divergence of the rows' weights";
    watch "rollout_corr/rollout_is_<statistic>" [""] "Weights that the policy loss was multiplied by";
    watch "rollout_corr/rollout_rs_<statistic>" [""] "Tokens and rows that rejection took out of the loss";
    down "trajectory_filter/invalid_ratio" ["share"] "Episodes that left loss and baseline";
    down "trajectory_filter/reason/<reason>" ["episodes"] "Episodes that left loss and baseline for this reason";
    watch "rollout/episodes" ["episodes"] "Episodes of the step, dropped ones included";
    watch "rollout/groups" ["groups"] "Task groups of the step";
    down "rollout/no_signal_groups" ["groups"] "Groups whose members all have the same reward";
    watch "rollout/extra_groups" ["groups"] "Groups sampled in place of those without signal";
    up "rollout/solve_rate" ["share"] "Graded episodes with full reward";
    watch "rollout/outcome/<outcome>" ["episodes"] "Episodes that ended so";
    down "rollout/retries" ["trials"] "Trials run again after an infrastructure failure";
    down "rollout/hack_flags" ["episodes"] "Episodes with evidence of reward hacking";
    down "rollout/hack_flag/<flag>" ["episodes"] "Episodes with this evidence of reward hacking";
    watch "rollout/duration_s/<part>" ["s"] "Mean time of this part of a trial";
    watch "rollout/env_setup_s/mean" ["s"] "Mean time to start a trial's sandbox";
    watch "rollout/model_s/mean" ["s"] "Mean time of a trial in model calls";
    watch "rollout/tool_s/mean" ["s"] "Mean time of a trial in tools";
    watch "rollout/verify_s/mean" ["s"] "Mean time of a trial's verifier";
    watch "rollout/sampled_tokens" ["tokens"] "Tokens sampled in the step";
    up "rollout/tokens_per_s" ["tokens/s"] "Sampled tokens over the time to sample the step's episodes";
    up "rollout/delivered_fraction/min" ["share"] "Sampled tokens that train, of the episode with the fewest";
    down "rollout/parse_errors" ["calls"] "Malformed tool calls in the step";
    up "rollout/moe/coverage" ["share"] "Trained tokens whose experts the engine recorded";
    down "rollout/moe/disjoint" ["share"] "Trained tokens with a layer whose recorded experts the trainer would not have chosen";
    watch "rollout/moe/load_max" [""] "Load of a layer's busiest expert over an even one's";
    watch "rollout/moe/load_deviation" [""] "Standard deviation of the experts' loads over their mean";
    watch "rollout/moe/idle_experts" ["share"] "Experts without a token";
    watch "rollout/moe/<name>" [""] "Other figures of expert routing";
    up "capture/delivered_fraction" ["share"] "Sampled tokens that train";
    down "capture/rewrites" ["calls"] "Calls whose history was rewritten by the agent";
    down "capture/discarded" ["calls"] "Generations rolled back by the agent";
    down "capture/unresolved_retries" ["calls"] "Repeated prompts of which none was continued";
    watch "capture/segments" ["segments"] "Rows of the step's episodes";
    down "capture/parse_errors" ["calls"] "Malformed tool calls";
    up "val/<data source>/pass@<k>" ["share"] "Validation tasks solved in k samples";
    watch "val/<data source>/standard_error" ["share"] "Standard error of pass@1 over tasks";
    watch "val/<set>/<data source>/standard_error" ["share"] "That of this source";
    watch "val/<data source>/tasks" ["tasks"] "Validation tasks with a valid reward";
    watch "val/<set>/<data source>/tasks" ["tasks"] "Those of this source";
    up "val/<data source>/greedy" ["share"] "Validation tasks solved greedily";
    up "val/<data source>/reward" ["reward"] "Mean validation reward";
    up "val/<set>/<data source>/pass@<k>" ["share"] "Validation tasks of this source solved in k samples";
    up "val/<set>/<data source>/greedy" ["share"] "Validation tasks of this source solved greedily";
    down "val/<data source>/tasks_without_reward" ["tasks"] "Validation tasks of which no trial had a valid reward";
    down "val/<set>/<data source>/tasks_without_reward" ["tasks"] "Those of this source";
    down "val/<data source>/invalid" ["trials"] "Validation trials without a valid reward";
    down "fully_async/trainer/idle_ratio" ["share"] "Time that the trainer waited for episodes";
    down "fully_async/rollouter/idle_ratio" ["share"] "Time that sampling was paused";
    watch "fully_async/partial/partial_ratio" ["share"] "Episodes sampled under more than one version";
    watch "fully_async/partial/max_span" ["versions"] "Most versions in one episode";
    watch "fully_async/count/generated_samples" ["groups"] "Groups that became complete during the step";
    watch "fully_async/count/staleness_samples" ["groups"] "Groups begun ahead of the trainer, as its bound counts them";
    watch "fully_async/count/staleness_bound" ["groups"] "The most that may be begun ahead";
    watch "fully_async/count/queued_samples" ["groups"] "Complete groups that wait for the trainer";
    watch "fully_async/count/active_samples" ["groups"] "Groups that are being sampled";
    watch "fully_async/count/stale_samples" ["groups"] "Trained groups with a token older than the weights last served";
    down "fully_async/count/dropped_stale_samples" ["groups"] "Groups dropped because the queue was full";
    watch "fully_async/count/cut_validations" ["validations"] "Validations given up since another was due";
    watch "fully_async/staleness/mean" ["publications"] "Publications since a trained token was sampled";
    watch "fully_async/staleness/max" ["publications"] "Most of them";
    watch "fully_async/staleness/lag_<n>" ["share"] "Trained tokens that are so many publications old";
    watch "val/of_step" ["step"] "Step whose weights a validation scored, where it ended during a later one";
    watch "val/version_span" ["updates"] "Updates between the oldest and the newest token of a validation";
    down "buffer/voided" ["entries"] "Ledger entries voided at resume";
    watch "buffer/available" ["episodes"] "Durable episodes not consumed yet";
    watch "inference/running" ["requests"] "Requests in generation, mean over the step";
    down "inference/waiting" ["requests"] "Requests that wait at an engine, mean over the step";
    down "inference/preemptions" ["requests"] "Requests preempted during the step";
    watch "inference/kv_usage" ["share"] "Key-value cache in use";
    up "inference/prefix_hit" ["share"] "Prompt tokens found in a cache";
    watch "inference/replica_<n>/running" ["requests"] "Requests that this replica was given and that had not ended, mean over the step";
    down "inference/replica_<n>/waiting" ["requests"] "Of this replica's, those that wait, as it says";
    watch "inference/replica_<n>/kv_usage" ["share"] "Of this replica's key-value cache, what is in use";
    up "inference/replica_<n>/prefix_hit" ["share"] "Prompt tokens that this replica found in its cache";
    down "inference/replica_<n>/preemptions" ["requests"] "Requests that this replica preempted";
    up "inference/replica_<n>/up" ["share"] "Time of sampling during which this replica was given requests";
}

/// What is known of the metric of this name; `None` for a name that no entry fits.
pub fn describe(name: &str) -> Option<&'static Metric> {
    METRICS.iter().find(|metric| fits(metric.name, name))
}

/// Whether a name fits a pattern; `<…>` takes one character or more, none of them a slash.
fn fits(pattern: &str, name: &str) -> bool {
    let Some((before, rest)) = pattern.split_once('<') else {
        return pattern == name;
    };
    let after = rest.split_once('>').map_or("", |(_, after)| after);
    let Some(tail) = name.strip_prefix(before) else {
        return false;
    };
    let reach = tail.find('/').unwrap_or(tail.len());
    (1..=reach)
        .filter(|&end| tail.is_char_boundary(end))
        .any(|end| fits(after, &tail[end..]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_patterns_are_found() {
        let unit = |name| describe(name).map(|metric| metric.unit);
        assert_eq!(unit("critic/score/mean"), Some("reward"));
        assert_eq!(
            describe("val/quick start/pass@4").map(|metric| metric.name),
            Some("val/<data source>/pass@<k>")
        );
        assert_eq!(unit("trajectory_filter/reason/infra_error"), Some("episodes"));
        assert_eq!(unit("trajectory_filter/reason/"), None);
        assert_eq!(unit("val/a/b/pass@1"), Some("share"));
        assert_eq!(unit("val/a/b/c/pass@1"), None);
        assert_eq!(unit("critic/score"), None);
    }

    #[test]
    fn every_name_is_there_once_and_explained() {
        for (at, metric) in METRICS.iter().enumerate() {
            assert!(
                !metric.help.is_empty() && !metric.help.ends_with('.'),
                "{}",
                metric.name
            );
            assert!(
                METRICS[..at].iter().all(|other| other.name != metric.name),
                "{} twice",
                metric.name
            );
        }
    }
}
