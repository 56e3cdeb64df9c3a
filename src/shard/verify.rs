//! The invariants of a row, checked when it is written and when it is read.

use super::{Row, ShardError};
use crate::trajectory::{Outcome, is_logprob};

/// Checks a row's invariants (data.md, "Rollout shard"): lengths of ids, mask and log-probs agree; the mask
/// is 0 or 1; log-probs are finite, at most 0, and 0 where the mask is 0; every sampled token has exactly
/// one weight version; a reward is finite and stands only beside an outcome that is graded.
pub fn verify_row(row: &Row) -> Result<(), ShardError> {
    first_fault(row).map_or(Ok(()), |reason| {
        Err(super::episodes::invariant(
            row.episode_id.clone(),
            row.segment_index,
            reason,
        ))
    })
}

fn first_fault(row: &Row) -> Option<String> {
    if row.episode_id.is_empty() || row.group_id.is_empty() {
        return Some("episode_id and group_id must not be empty".to_owned());
    }
    if row.segment_index < 0 || row.segment_index >= row.n_segments.max(1) {
        return Some(format!(
            "segment_index {} is not below n_segments {}",
            row.segment_index, row.n_segments
        ));
    }
    let Some(outcome) = Outcome::from_name(&row.outcome) else {
        return Some(format!("`{}` is not an outcome", row.outcome));
    };
    match row.reward {
        Some(reward) if !reward.is_finite() => return Some(format!("reward is {reward}, expected a finite number")),
        Some(_) if !outcome.is_graded() => {
            return Some(format!("outcome `{outcome}` has no valid reward, yet one is given"));
        }
        _ => {}
    }
    if row.dropped != row.drop_reason.is_some() {
        return Some(format!(
            "dropped is {}, drop_reason is {:?}",
            row.dropped, row.drop_reason
        ));
    }
    tokens(row)
}

fn tokens(row: &Row) -> Option<String> {
    let (Some(_), Some(response), Some(mask)) = (&row.prompt_ids, &row.response_ids, &row.response_mask) else {
        let some = row.prompt_ids.is_some()
            || row.response_ids.is_some()
            || row.response_mask.is_some()
            || row.response_logprobs.is_some()
            || !row.weight_versions.is_empty();
        return some.then(|| "prompt_ids, response_ids and response_mask must be null together".to_owned());
    };
    if row.n_segments == 0 {
        return Some("n_segments is 0, yet there are token ids".to_owned());
    }
    if mask.len() != response.len() {
        return Some(format!(
            "{} response ids, but {} mask values",
            response.len(),
            mask.len()
        ));
    }
    if let Some(at) = mask.iter().position(|&value| value > 1) {
        return Some(format!("mask at {at} is {}, expected 0 or 1", mask[at]));
    }
    if let Some(logprobs) = &row.response_logprobs {
        if logprobs.len() != response.len() {
            return Some(format!(
                "{} response ids, but {} log-probs",
                response.len(),
                logprobs.len()
            ));
        }
        for (at, (&logprob, &sampled)) in logprobs.iter().zip(mask).enumerate() {
            if !is_logprob(logprob) || (sampled == 0 && logprob != 0.0) {
                return Some(format!("log-prob at {at} (mask {sampled}) is {logprob}"));
            }
        }
    }
    versions(row, mask).or_else(|| routing(row, response.len()))
}

/// Runs of whole rows, in order, within prompt and response.
fn routing(row: &Row, response: usize) -> Option<String> {
    let runs = match (&row.routed_experts, &row.routed_shape) {
        (None, None) => return None,
        (Some(runs), Some(shape)) => match shape[..] {
            [layers, top_k, bytes] if layers > 0 && top_k > 0 && (bytes == 1 || bytes == 2) => {
                let bytes = layers as usize * top_k as usize * bytes as usize;
                runs.iter().map(move |run| (run.start as usize, run.rows.len(), bytes))
            }
            _ => return Some(format!("routed_shape is {shape:?}, expected [layers, top_k, 1 or 2]")),
        },
        _ => return Some("routed_experts and routed_shape must be null together".to_owned()),
    };
    let (mut next, total) = (0, row.prompt_ids.as_ref().map_or(0, Vec::len) + response);
    for (start, found, bytes) in runs {
        let end = start + found / bytes;
        if found == 0 || found % bytes != 0 || start < next || end > total {
            return Some(format!(
                "{found} bytes of experts at {start}, {bytes} a position: torn, out of order or beyond {total} tokens"
            ));
        }
        next = end;
    }
    None
}

fn versions(row: &Row, mask: &[u8]) -> Option<String> {
    let mut next = 0;
    for span in &row.weight_versions {
        let (start, end) = (span.start as usize, span.end as usize);
        if start < next || end <= start || end > mask.len() {
            return Some(format!(
                "weight version {} spans {start}..{end}, out of order or range",
                span.version
            ));
        }
        if let Some(at) = mask[next..start].iter().position(|&sampled| sampled == 1) {
            return Some(format!("sampled token at {} has no weight version", next + at));
        }
        next = end;
    }
    let at = mask[next..].iter().position(|&sampled| sampled == 1)?;
    Some(format!("sampled token at {} has no weight version", next + at))
}
