//! What a trainer is given: token rows with per-position numbers, and the checks that guard them.

use crate::NO_EXPERT;
use crate::config::ModelConfig;
use crate::objective::{Objective, PolicyLoss};
use crate::trainer::TrainerError;

/// A training row. Position p of the per-response slices is token `tokens[loss_start + p]`; each of them has
/// `tokens.len() − loss_start` elements.
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    /// Prompt and response.
    pub tokens: &'a [u32],
    /// Index of the first response token; at least 1, since the first token has no log-prob.
    pub loss_start: usize,
    /// 1 where the policy sampled the token, else 0.
    pub mask: &'a [u8],
    /// Log-probs at the start of the update; may be empty for [`PolicyLoss::Sft`] and [`PolicyLoss::Reinforce`].
    pub old_logprobs: &'a [f32],
    /// May be empty for [`PolicyLoss::Sft`].
    pub advantages: &'a [f32],
    /// Weight of each position in the loss, all of its terms: aggregation denominators.
    pub coefficients: &'a [f32],
    /// Weight of each position's policy loss, without gradient of its own: rollout correction. Empty: 1 everywhere.
    pub importance: &'a [f32],
    /// Log-probs under the reference; needed when the objective has a KL term.
    pub ref_logprobs: Option<&'a [f32]>,
    /// Experts of each token, as in [`Sequence`].
    pub experts: &'a [u16],
}

/// A row that a critic learns from; slices as in [`Row`].
#[derive(Clone, Copy, Debug)]
pub struct ValueRow<'a> {
    /// Prompt and response.
    pub tokens: &'a [u32],
    /// Index of the first response token; at least 1.
    pub loss_start: usize,
    /// 1 where the policy sampled the token, else 0.
    pub mask: &'a [u8],
    /// Values at the start of the update.
    pub old_values: &'a [f32],
    /// What the values are fitted to.
    pub returns: &'a [f32],
    /// Weight of each position in the loss.
    pub coefficients: &'a [f32],
}

/// A row to score: log-probs are wanted for `tokens[loss_start..]`.
#[derive(Clone, Copy, Debug)]
pub struct Sequence<'a> {
    pub tokens: &'a [u32],
    /// At least 1.
    pub loss_start: usize,
    /// Experts that each token is to go through, `[tokens, layers, per_token]`; empty, or [`crate::NO_EXPERT`] for a
    /// token: it is routed as usual.
    pub experts: &'a [u16],
}

/// Log-prob and entropy of each response position, and the experts that the routers chose for each token of the row, also
/// where others were prescribed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogProbs {
    pub logprobs: Vec<f32>,
    pub entropy: Vec<f32>,
    /// `[tokens, layers, per_token]`; empty of a dense model.
    pub experts: Vec<u16>,
}

impl<'a> Row<'a> {
    pub(crate) fn sequence(&self) -> Sequence<'a> {
        Sequence {
            tokens: self.tokens,
            loss_start: self.loss_start,
            experts: self.experts,
        }
    }

    /// Response positions with the mask set.
    pub(crate) fn masked(&self) -> Vec<usize> {
        masked(self.mask)
    }

    fn check(&self, objective: &Objective) -> Result<(), String> {
        let expected = self.tokens.len() - self.loss_start;
        let length = |name, found, optional| length(name, found, expected, optional);
        let (old_optional, advantages_optional) = match objective.loss {
            PolicyLoss::Sft => (true, true),
            PolicyLoss::Reinforce => (true, false),
            _ => (false, false),
        };
        length("mask", self.mask.len(), false)?;
        length("old_logprobs", self.old_logprobs.len(), old_optional)?;
        length("advantages", self.advantages.len(), advantages_optional)?;
        length("coefficients", self.coefficients.len(), false)?;
        length("importance", self.importance.len(), true)?;
        if objective.kl.is_some() {
            let reference = self
                .ref_logprobs
                .ok_or("`ref_logprobs` is absent, and the objective has a KL term")?;
            length("ref_logprobs", reference.len(), false)?;
        }
        Ok(())
    }
}

impl<'a> ValueRow<'a> {
    pub(crate) fn sequence(&self) -> Sequence<'a> {
        Sequence {
            tokens: self.tokens,
            loss_start: self.loss_start,
            experts: &[],
        }
    }

    /// Response positions with the mask set.
    pub(crate) fn masked(&self) -> Vec<usize> {
        masked(self.mask)
    }

    fn check(&self) -> Result<(), String> {
        let expected = self.tokens.len() - self.loss_start;
        let slices = [
            ("mask", self.mask.len()),
            ("old_values", self.old_values.len()),
            ("returns", self.returns.len()),
            ("coefficients", self.coefficients.len()),
        ];
        slices
            .into_iter()
            .try_for_each(|(name, found)| length(name, found, expected, false))
    }
}

fn masked(mask: &[u8]) -> Vec<usize> {
    (0..mask.len()).filter(|p| mask[*p] != 0).collect()
}

fn length(name: &str, found: usize, expected: usize, optional: bool) -> Result<(), String> {
    if found == expected || (optional && found == 0) {
        return Ok(());
    }
    Err(format!(
        "`{name}` has {found} elements, the response has {expected} tokens"
    ))
}

impl Sequence<'_> {
    fn check(&self, config: &ModelConfig) -> Result<(), String> {
        let (len, start) = (self.tokens.len(), self.loss_start);
        if start == 0 || start > len {
            return Err(format!("`loss_start` = {start} is not within 1..={len}"));
        }
        let per_position = config.experts_per_position();
        if !self.experts.is_empty() && self.experts.len() != len * per_position {
            let found = self.experts.len();
            return Err(format!(
                "`experts` has {found} elements; {len} tokens with {per_position} each are expected"
            ));
        }
        let most = config.moe.as_ref().map_or(0, |moe| moe.experts);
        let unknown = |expert: &&u16| **expert != NO_EXPERT && usize::from(**expert) >= most;
        if let Some(expert) = self.experts.iter().find(unknown) {
            return Err(format!("expert {expert} is not below num_experts {most}"));
        }
        if len > config.max_position_embeddings {
            return Err(format!(
                "{len} tokens, max_position_embeddings is {}",
                config.max_position_embeddings
            ));
        }
        match self.tokens.iter().find(|t| **t as usize >= config.vocab_size) {
            Some(token) => Err(format!("token {token} is not below vocab_size {}", config.vocab_size)),
            None => Ok(()),
        }
    }
}

pub(crate) fn check_rows(rows: &[Row<'_>], objective: &Objective, config: &ModelConfig) -> Result<(), TrainerError> {
    check_temperature(objective.temperature)?;
    for (row, r) in rows.iter().enumerate() {
        let problem = r.sequence().check(config).and_then(|()| r.check(objective));
        problem.map_err(|problem| TrainerError::Row { row, problem })?;
    }
    Ok(())
}

pub(crate) fn check_value_rows(rows: &[ValueRow<'_>], clip: f32, config: &ModelConfig) -> Result<(), TrainerError> {
    if clip.is_nan() || clip <= 0.0 {
        return Err(TrainerError::Number {
            name: "clip",
            found: f64::from(clip),
            expected: "a number above 0",
        });
    }
    for (row, r) in rows.iter().enumerate() {
        let problem = r.sequence().check(config).and_then(|()| r.check());
        problem.map_err(|problem| TrainerError::Row { row, problem })?;
    }
    Ok(())
}

pub(crate) fn check_sequences(sequences: &[Sequence<'_>], config: &ModelConfig) -> Result<(), TrainerError> {
    for (row, sequence) in sequences.iter().enumerate() {
        sequence
            .check(config)
            .map_err(|problem| TrainerError::Row { row, problem })?;
    }
    Ok(())
}

pub(crate) fn check_temperature(temperature: f32) -> Result<(), TrainerError> {
    if temperature > 0.0 && temperature.is_finite() {
        return Ok(());
    }
    Err(TrainerError::Number {
        name: "temperature",
        found: f64::from(temperature),
        expected: "a number above 0",
    })
}
