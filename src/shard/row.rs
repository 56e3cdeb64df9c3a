//! One row of a rollout shard. The struct is the schema: column names, types and order are taken from it.

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_cast::cast;
use arrow_schema::{ArrowError, Field, Schema, SchemaRef};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::column::Column;
use crate::trajectory::{TokenId, VersionSpan};

/// Expert indices of a run of positions (prompt and response counted together).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RoutedRun {
    /// The first position.
    pub start: u32,
    /// `[positions, layers, top_k]` indices, each of as many bytes as `routed_shape` says, little-endian.
    pub rows: Vec<u8>,
}

macro_rules! table {
    ($(#[$table_doc:meta])* pub struct $table:ident { $($(#[$doc:meta])* pub $name:ident: $type:ty,)* }) => {
        $(#[$table_doc])*
        pub struct $table { $($(#[$doc])* pub $name: $type,)* }

        /// The columns of a shard, in order.
        pub const COLUMNS: &[&str] = &[$(stringify!($name)),*];

        /// The Arrow schema of a shard.
        pub fn schema() -> SchemaRef {
            Arc::new(Schema::new(vec![
                $(Field::new(stringify!($name), <$type as Column>::data_type(), <$type as Column>::NULLABLE)),*
            ]))
        }

        /// Rows as a batch.
        pub(super) fn encode(rows: &[$table]) -> Result<RecordBatch, ArrowError> {
            let columns: Vec<ArrayRef> = vec![$(<$type as Column>::encode(rows.iter().map(|row| &row.$name))),*];
            RecordBatch::try_new(schema(), columns)
        }

        /// A batch as rows. A column that is not there is an error, unless `projected` leaves it out: then it
        /// holds its default.
        pub(super) fn decode(batch: &RecordBatch, projected: Option<&[&str]>) -> Result<Vec<$table>, String> {
            let mut rows = vec![$table::default(); batch.num_rows()];
            $(
                if projected.is_none_or(|columns| columns.contains(&stringify!($name))) {
                    for (row, value) in rows.iter_mut().zip(column::<$type>(batch, stringify!($name))?) {
                        row.$name = value;
                    }
                }
            )*
            Ok(rows)
        }
    };
}

fn column<T: Column>(batch: &RecordBatch, name: &str) -> Result<Vec<T>, String> {
    let found = batch
        .column_by_name(name)
        .ok_or_else(|| format!("column `{name}` is missing"))?;
    let wanted = T::data_type();
    // Shards that went through pandas or Polars come back with wider kin of our types.
    let array = if *found.data_type() == wanted {
        Arc::clone(found)
    } else {
        cast(found, &wanted).map_err(|_| format!("column `{name}`: expected {wanted}, found {}", found.data_type()))?
    };
    T::decode(&array).map_err(|reason| format!("column `{name}`: {reason}"))
}

table! {
    /// One row of a rollout shard: one segment of an episode, with what it shares with the others.
    ///
    /// An episode of which nothing was captured has one row with `n_segments` 0 and null ids.
    #[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
    pub struct Row {
        /// The run.
        pub run_id: String,
        /// Trainer step it was sampled for.
        pub step: i32,
        /// The task.
        pub task_id: String,
        /// Where the task came from.
        pub data_source: String,
        /// Task × step.
        pub group_id: String,
        /// Shared by the segments of an episode.
        pub episode_id: String,
        /// Readable name; the trial folder's.
        pub trial_name: String,
        /// Infrastructure retries before this one.
        pub attempt: i32,
        /// Position among the episode's segments.
        pub segment_index: i32,
        /// How many the episode has; 0 where nothing was captured.
        pub n_segments: i32,
        /// Whether it belongs to the agent's main conversation.
        pub is_main_agent: bool,
        /// Scaffold.
        pub agent: String,
        /// Its version.
        pub agent_version: String,
        /// Served model name.
        pub model: String,
        /// Tool-call parser.
        pub tool_parser: String,
        /// API dialect.
        pub endpoint: String,
        /// What the engine saw before the first sampled token; null where the engine gives no ids.
        pub prompt_ids: Option<Vec<TokenId>>,
        /// Sampled tokens and the context between them.
        pub response_ids: Option<Vec<TokenId>>,
        /// 1 where the policy sampled the token.
        pub response_mask: Option<Vec<u8>>,
        /// At sampling temperature, 0.0 where the mask is 0; null if the engine gave none.
        pub response_logprobs: Option<Vec<f32>>,
        /// Run-length over response positions.
        #[schemars(with = "Vec<VersionSpanRow>")]
        pub weight_versions: Vec<VersionSpan>,
        /// Expert indices; a position without a row is routed natively.
        pub routed_experts: Option<Vec<RoutedRun>>,
        /// `[layers, top_k, bytes per index]`.
        pub routed_shape: Option<Vec<i32>>,
        /// Null where the outcome has no valid reward.
        pub reward: Option<f32>,
        /// The verifier's named rewards.
        pub rewards: BTreeMap<String, f64>,
        /// Softmax temperature; 0 is greedy.
        pub temperature: f32,
        /// Nucleus; 1.0 is off.
        pub top_p: f32,
        /// Kept candidates; -1 is off.
        pub top_k: i32,
        /// How the trial ended.
        pub outcome: String,
        /// Whether it is left out of training.
        pub dropped: bool,
        /// Why.
        pub drop_reason: Option<String>,
        /// How the last generation ended.
        pub finish_reason: Option<String>,
        /// Assistant turns of the main conversation.
        pub num_turns: i32,
        /// Tool calls in them.
        pub num_tool_calls: i32,
        /// Model calls.
        pub num_calls: i32,
        /// Attempts preempted by a newer one.
        pub num_preempted: i32,
        /// Generations aborted.
        pub num_aborts: i32,
        /// Trained sampled tokens / sampled tokens.
        pub delivered_fraction: f32,
        /// Calls whose history was rewritten.
        pub n_rewrites: i32,
        /// Generations rolled back.
        pub n_discarded: i32,
        /// Identical prompts of which none was continued, beyond the first.
        pub n_unresolved_retries: i32,
        /// Evidence of reward hacking.
        pub hack_flags: Vec<String>,
        /// When the trial began, UTC.
        #[schemars(with = "String")]
        pub started_at: Timestamp,
        /// Starting the sandbox, in seconds.
        pub env_setup_s: f32,
        /// Preparing the agent.
        pub agent_setup_s: f32,
        /// The agent's run.
        pub agent_s: f32,
        /// Waiting for the policy.
        pub model_s: f32,
        /// Tools.
        pub tool_s: f32,
        /// The verifier.
        pub verify_s: f32,
        /// From start to end.
        pub total_s: f32,
        /// 90th percentile of the time between two model calls.
        pub tool_gap_p90_s: f32,
        /// Waiting for a free worker.
        pub queue_wait_s: f32,
        /// Transcript for people, JSON.
        pub messages: String,
    }
}

/// How `VersionSpan` looks in a row.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only its schema is used")]
struct VersionSpanRow {
    /// First response position.
    start: i32,
    /// One past the last.
    end: i32,
    /// `<lineage>.<update>`.
    version: String,
}
