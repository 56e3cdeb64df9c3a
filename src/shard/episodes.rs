//! Episodes to rows, and the rows of one back to it.

use super::row::RoutedRun;
use super::{Row, ShardError};
use crate::trajectory::{
    CaptureAudit, Episode, EpisodeId, Experts, FinishReason, GroupId, Outcome, RoutedRows, SamplingParams, Segment,
    Timings, TrialId,
};

const FINISH_REASONS: [(FinishReason, &str); 4] = [
    (FinishReason::Stop, "stop"),
    (FinishReason::Length, "length"),
    (FinishReason::Abort, "abort"),
    (FinishReason::Error, "error"),
];

/// The rows of an episode: one a segment; a single one with null ids where nothing was captured.
pub fn episode_rows(episode: &Episode) -> Vec<Row> {
    let shared = shared(episode);
    if episode.segments.is_empty() {
        return vec![shared];
    }
    let segments = episode.segments.iter().enumerate();
    segments
        .map(|(index, segment)| {
            // An engine that gives no ids leaves an empty segment.
            let has_ids = segment.total_tokens() > 0;
            Row {
                segment_index: index as i32,
                is_main_agent: segment.is_main_agent,
                prompt_ids: has_ids.then(|| segment.prompt_ids.clone()),
                response_ids: has_ids.then(|| segment.response_ids.clone()),
                response_mask: has_ids.then(|| segment.response_mask.clone()),
                response_logprobs: segment.response_logprobs.clone().filter(|_| has_ids),
                weight_versions: segment.weight_versions.clone(),
                routed_experts: runs(&segment.routing),
                routed_shape: segment.routing.first().map(|run| shape(run.experts)),
                ..shared.clone()
            }
        })
        .collect()
}

/// Runs of positions; those that follow each other are one.
fn runs(routing: &[RoutedRows]) -> Option<Vec<RoutedRun>> {
    let mut runs: Vec<(usize, RoutedRun)> = Vec::new();
    for run in routing {
        match runs.last_mut() {
            Some((end, last)) if *end == run.start as usize => {
                last.rows.extend_from_slice(&run.rows);
                *end = run.end();
            }
            _ => runs.push((
                run.end(),
                RoutedRun {
                    start: run.start,
                    rows: run.rows.clone(),
                },
            )),
        }
    }
    (!runs.is_empty()).then(|| runs.into_iter().map(|(_, run)| run).collect())
}

fn shape(experts: Experts) -> Vec<i32> {
    let bytes = experts.index_bytes() as i32;
    vec![experts.layers.into(), experts.top_k.into(), bytes]
}

/// The runs of a row that was verified.
fn routing(row: &mut Row) -> Vec<RoutedRows> {
    let Some(&[layers, top_k, bytes]) = row.routed_shape.as_deref() else {
        return Vec::new();
    };
    let experts = Experts {
        layers: layers as u16,
        top_k: top_k as u16,
        // How many there are is not kept, only how wide an index is.
        count: if bytes == 1 { 256 } else { u16::MAX },
    };
    let runs = row.routed_experts.take().unwrap_or_default().into_iter();
    runs.map(|run| RoutedRows {
        start: run.start,
        experts,
        rows: run.rows,
    })
    .collect()
}

fn shared(episode: &Episode) -> Row {
    let (audit, timings) = (&episode.audit, &episode.timings);
    let finish = audit
        .finish_reason
        .and_then(|reason| FINISH_REASONS.iter().find(|(value, _)| *value == reason));
    Row {
        run_id: episode.run_id.clone(),
        step: episode.step,
        task_id: episode.task_id.clone(),
        data_source: episode.data_source.clone(),
        group_id: episode.group_id.0.clone(),
        episode_id: episode.episode_id.0.clone(),
        trial_name: episode.trial_name.clone(),
        attempt: episode.attempt,
        n_segments: episode.segments.len() as i32,
        agent: episode.agent.clone(),
        agent_version: episode.agent_version.clone(),
        model: episode.model.clone(),
        tool_parser: episode.tool_parser.clone(),
        endpoint: episode.endpoint.clone(),
        reward: episode.reward,
        rewards: episode.rewards.clone(),
        temperature: episode.sampling.temperature,
        top_p: episode.sampling.top_p,
        top_k: episode.sampling.top_k,
        outcome: episode.outcome.name().to_owned(),
        dropped: episode.drop_reason.is_some(),
        drop_reason: episode.drop_reason.clone(),
        finish_reason: finish.map(|(_, name)| (*name).to_owned()),
        num_turns: audit.num_turns as i32,
        num_tool_calls: audit.num_tool_calls as i32,
        num_calls: audit.num_calls as i32,
        num_preempted: audit.num_preempted as i32,
        num_aborts: audit.num_aborts as i32,
        delivered_fraction: audit.delivered_fraction,
        n_rewrites: audit.n_rewrites as i32,
        n_discarded: audit.n_discarded as i32,
        n_unresolved_retries: audit.n_unresolved_retries as i32,
        hack_flags: episode.hack_flags.clone(),
        started_at: episode.started_at,
        env_setup_s: timings.env_setup_s,
        agent_setup_s: timings.agent_setup_s,
        agent_s: timings.agent_s,
        model_s: timings.model_s,
        tool_s: timings.tool_s,
        verify_s: timings.verify_s,
        total_s: timings.total_s,
        tool_gap_p90_s: timings.tool_gap_p90_s,
        queue_wait_s: timings.queue_wait_s,
        messages: episode.messages.clone(),
        ..Row::default()
    }
}

/// The rows of one try at an episode, which must be whole.
pub(super) fn episode(mut rows: Vec<Row>) -> Result<Episode, ShardError> {
    rows.sort_by_key(|row| row.segment_index);
    let expected = rows.first().map_or(1, |row| row.n_segments.max(1));
    let (found, complete) = (
        rows.len(),
        rows.iter().zip(0..).all(|(row, at)| row.segment_index == at),
    );
    let mut rows = rows.into_iter();
    let Some(mut first) = rows.next() else {
        return Err(invariant(String::new(), 0, "no rows".to_owned()));
    };
    if !complete || found != expected as usize {
        let reason = format!("{found} rows for {expected} segments; a shard is missing, or is given twice");
        return Err(invariant(first.episode_id, first.segment_index, reason));
    }
    let captured = first.n_segments > 0;
    let mut segments: Vec<Segment> = Vec::with_capacity(found);
    if captured {
        segments.push(segment(&mut first));
        segments.extend(rows.map(|mut row| segment(&mut row)));
    }
    let trained: usize = segments.iter().map(Segment::trained_tokens).sum();
    Ok(assemble(first, segments, trained))
}

pub(super) fn invariant(episode: String, segment: i32, reason: String) -> ShardError {
    ShardError::Invariant {
        episode,
        segment,
        reason,
    }
}

fn segment(row: &mut Row) -> Segment {
    Segment {
        prompt_ids: row.prompt_ids.take().unwrap_or_default(),
        response_ids: row.response_ids.take().unwrap_or_default(),
        response_mask: row.response_mask.take().unwrap_or_default(),
        response_logprobs: row.response_logprobs.take(),
        weight_versions: std::mem::take(&mut row.weight_versions),
        routing: routing(row),
        is_main_agent: row.is_main_agent,
    }
}

fn assemble(row: Row, segments: Vec<Segment>, trained: usize) -> Episode {
    let delivered = row.delivered_fraction;
    let sampled = if delivered > 0.0 {
        (trained as f64 / f64::from(delivered)).round() as u64
    } else {
        0
    };
    let finish = row
        .finish_reason
        .and_then(|name| FINISH_REASONS.iter().find(|(_, known)| *known == name));
    Episode {
        run_id: row.run_id,
        step: row.step,
        task_id: row.task_id,
        data_source: row.data_source,
        group_id: GroupId(row.group_id),
        trial_id: TrialId(row.episode_id.clone()),
        episode_id: EpisodeId(row.episode_id),
        trial_name: row.trial_name,
        attempt: row.attempt,
        agent: row.agent,
        agent_version: row.agent_version,
        model: row.model,
        tool_parser: row.tool_parser,
        endpoint: row.endpoint,
        segments,
        reward: row.reward,
        rewards: row.rewards,
        sampling: SamplingParams {
            temperature: row.temperature,
            top_p: row.top_p,
            top_k: row.top_k,
        },
        // `verify_row` has refused every other text.
        outcome: Outcome::from_name(&row.outcome).unwrap_or(Outcome::InfraError),
        failure: None,
        drop_reason: row.drop_reason,
        audit: CaptureAudit {
            sampled_tokens: sampled,
            delivered_fraction: delivered,
            n_rewrites: row.n_rewrites.cast_unsigned(),
            n_discarded: row.n_discarded.cast_unsigned(),
            n_unresolved_retries: row.n_unresolved_retries.cast_unsigned(),
            num_calls: row.num_calls.cast_unsigned(),
            num_turns: row.num_turns.cast_unsigned(),
            num_tool_calls: row.num_tool_calls.cast_unsigned(),
            num_preempted: row.num_preempted.cast_unsigned(),
            num_aborts: row.num_aborts.cast_unsigned(),
            num_parse_errors: 0,
            finish_reason: finish.map(|(value, _)| *value),
        },
        hack_flags: row.hack_flags,
        started_at: row.started_at,
        timings: Timings {
            env_setup_s: row.env_setup_s,
            agent_setup_s: row.agent_setup_s,
            agent_s: row.agent_s,
            model_s: row.model_s,
            tool_s: row.tool_s,
            verify_s: row.verify_s,
            total_s: row.total_s,
            tool_gap_p90_s: row.tool_gap_p90_s,
            queue_wait_s: row.queue_wait_s,
        },
        messages: row.messages,
    }
}
