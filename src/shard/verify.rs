//! The invariants of a row, checked when it is written and when it is read.

use super::{Row, ShardError};
use crate::trajectory::Outcome;

/// Checks a row's invariants (data.md, "Rollout shard"): lengths of ids, mask and log-probs agree; the mask
/// is 0 or 1; log-probs are finite, at most 0, and 0 where the mask is 0; every sampled token has exactly
/// one weight version; a reward is finite and stands only beside an outcome that is graded.
pub fn verify_row(row: &Row) -> Result<(), ShardError> {
    first_fault(row).map_or(Ok(()), |reason| {
        Err(ShardError::Invariant {
            episode: row.episode_id.clone(),
            segment: row.segment_index,
            reason,
        })
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
            // A log-softmax in f32 may round to a few ulp above 0.
            if !logprob.is_finite() || logprob > 1e-3 || (sampled == 0 && logprob != 0.0) {
                return Some(format!("log-prob at {at} (mask {sampled}) is {logprob}"));
            }
        }
    }
    versions(row, mask)
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
