//! What tokens of an engine cannot be, told before they are recorded: nothing of it is repaired.

use crate::inference::{EngineError, TokenDelta};
use crate::prompt::Tokenizer;
use crate::trajectory::{TokenId, is_logprob};

/// Checks newly sampled tokens against what was asked for. `before`: the token before them; `left`: how many may come.
pub(super) fn check(
    delta: &TokenDelta,
    tokenizer: &Tokenizer,
    before: Option<TokenId>,
    left: usize,
) -> Result<(), EngineError> {
    let rejected = |reason: String| Err(EngineError::Rejected(reason));
    let ids = &delta.ids;
    if let Some(logprobs) = &delta.logprobs {
        if logprobs.len() != ids.len() {
            return rejected(format!("{} log-probs for {} tokens", logprobs.len(), ids.len()));
        }
        if let Some(odd) = logprobs.iter().find(|&&logprob| !is_logprob(logprob)) {
            return rejected(format!("a log-prob of {odd}"));
        }
    }
    if ids.len() > left {
        return rejected(format!("{} tokens where at most {left} could come", ids.len()));
    }
    if let Some(id) = ids.iter().find(|&&id| id as usize >= tokenizer.id_limit()) {
        return rejected(format!("token {id}, where the policy has {}", tokenizer.id_limit()));
    }
    let inner = ids.split_last().map_or(&[][..], |(_, inner)| inner);
    let ended = before
        .filter(|_| !ids.is_empty())
        .into_iter()
        .chain(inner.iter().copied());
    match ended.into_iter().find(|&id| tokenizer.is_stop(id)) {
        Some(id) => rejected(format!("tokens behind token {id}, which ends an answer")),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prompt::testing::quickstart;
    use crate::trajectory::PolicyVersion;

    #[test]
    fn what_no_policy_samples_is_refused_by_its_reason() {
        let prompt = quickstart();
        let tokenizer = prompt.tokenizer();
        let end = tokenizer.stops()[0].id;
        let told = |ids: &[TokenId], logprobs: Option<&[f32]>, before: Option<TokenId>| {
            let delta = TokenDelta {
                ids: ids.to_vec(),
                logprobs: logprobs.map(<[f32]>::to_vec),
                version: PolicyVersion::default(),
            };
            check(&delta, tokenizer, before, 3).err().map(|error| error.to_string())
        };
        for (ids, logprobs, before) in [
            (&[84, end][..], Some(&[-0.5, 0.0][..]), Some(85)),
            (&[84, 85, 86], None, None),
            (&[], Some(&[]), Some(end)),
            (&[84], Some(&[1e-6]), None),
        ] {
            assert_eq!(told(ids, logprobs, before), None, "{ids:?}");
        }
        for (ids, logprobs, before, why) in [
            (&[84][..], Some(&[0.5][..]), None, "a log-prob of 0.5"),
            (&[84], Some(&[f32::NEG_INFINITY]), None, "a log-prob of -inf"),
            (&[84], Some(&[]), None, "0 log-probs for 1 tokens"),
            (&[84; 4], None, None, "4 tokens where at most 3 could come"),
            (&[84, 100_000], None, None, "token 100000, where the policy has 512"),
            (&[84, end, 85], None, None, "tokens behind token 2"),
            (&[end], None, Some(end), "tokens behind token 2"),
        ] {
            let told = told(ids, logprobs, before).unwrap();
            assert!(told.contains(why), "{why}: {told}");
        }
    }
}
