//! Episodes for this module's tests.

use lego_policy::{AdamW, Device, ModelConfig, Trainer, Weights};

use super::{Filter, Recipe, UpdateSettings, Window};
use crate::config::{FilterSection, HackPolicy, TrainSection};
use crate::trajectory::{CaptureAudit, Episode, Segment, TokenId};

/// A segment whose whole response was sampled, at log-prob −1.
pub(super) fn sampled(prompt: &[TokenId], response: &[TokenId]) -> Segment {
    Segment {
        prompt_ids: prompt.to_vec(),
        response_ids: response.to_vec(),
        response_mask: vec![1; response.len()],
        response_logprobs: Some(vec![-1.0; response.len()]),
        weight_versions: Vec::new(),
        routing: Vec::new(),
        is_main_agent: true,
    }
}

/// A completed episode of three sampled tokens.
pub(super) fn episode(id: &str, group: &str, reward: Option<f32>) -> Episode {
    Episode {
        task_id: group.to_owned(),
        group_id: group.into(),
        segments: vec![sampled(&[1, 2], &[3, 4, 5])],
        reward,
        audit: CaptureAudit {
            num_turns: 1,
            ..CaptureAudit::default()
        },
        ..crate::trajectory::fixture::episode(id)
    }
}

/// Two small layers and 32 tokens.
pub(super) fn shape() -> ModelConfig {
    ModelConfig {
        hidden_size: 32,
        num_hidden_layers: 2,
        num_attention_heads: 4,
        num_key_value_heads: 2,
        head_dim: 8,
        intermediate_size: 64,
        ..ModelConfig::tiny(32)
    }
}

/// A fresh trainer over a policy of this shape.
pub(super) fn trainer(shape: ModelConfig, seed: u64) -> Trainer {
    Trainer::new(Weights::init(shape, seed).unwrap(), Device::Cpu, AdamW::default()).unwrap()
}

/// One of the small shape.
pub(super) fn policy(seed: u64) -> Trainer {
    trainer(shape(), seed)
}

/// A critic of the same shape, fresh.
pub(super) fn critic(seed: u64) -> Trainer {
    Trainer::new(policy(seed).weights().critic(), Device::Cpu, AdamW::default()).unwrap()
}

/// Settings around a `[train]`.
pub(super) fn settings(section: &TrainSection) -> UpdateSettings {
    UpdateSettings {
        recipe: Recipe::from_section(section, 64).unwrap(),
        filter: Filter::from_sections(&FilterSection::default(), HackPolicy::Flag).unwrap(),
        window: Window {
            prompt: 64,
            response: 64,
        },
        group_size: None,
        seed: 42,
    }
}

/// Two groups of three episodes with different answers, one rewarded in each; one episode has two segments, one a
/// tool's answer between its own tokens.
pub(super) fn batch() -> Vec<Episode> {
    let answers: [&[TokenId]; 6] = [
        &[3, 4, 5],
        &[6, 7],
        &[8, 9, 10, 11],
        &[12],
        &[13, 14, 15],
        &[16, 17, 18, 19, 20],
    ];
    let mut episodes: Vec<Episode> = answers
        .iter()
        .enumerate()
        .map(|(place, answer)| {
            let group = if place < 3 { "g" } else { "h" };
            let mut episode = episode(&format!("e{place}"), group, Some(f32::from(u8::from(place % 3 == 0))));
            episode.segments = vec![sampled(if place < 3 { &[1, 2] } else { &[2, 1, 1] }, answer)];
            episode
        })
        .collect();
    episodes[1].segments.push(sampled(&[1, 2, 6, 7, 30], &[21, 22]));
    episodes[5].segments[0].response_mask[2] = 0;
    episodes
}

/// Summed log-prob of an episode's trained tokens.
pub(super) fn log_prob(policy: &Trainer, episode: &Episode) -> f32 {
    let rows: Vec<_> = episode
        .segments
        .iter()
        .filter_map(super::TrainRow::of_segment)
        .collect();
    let sequences: Vec<_> = rows.iter().map(|row| row.sequence(false)).collect();
    let found = policy.log_probs(&sequences, 1.0, 1024).unwrap();
    rows.iter()
        .zip(&found)
        .flat_map(|(row, found)| row.trained(&found.logprobs))
        .sum()
}

/// Replaces the recorded log-probs by those of the policy.
pub(super) fn record(policy: &Trainer, episodes: &mut [Episode]) {
    for segment in episodes.iter_mut().flat_map(|episode| &mut episode.segments) {
        let tokens = [segment.prompt_ids.as_slice(), &segment.response_ids].concat();
        let sequence = lego_policy::Sequence {
            tokens: &tokens,
            loss_start: segment.prompt_ids.len(),
            experts: &[],
        };
        let mut found = policy.log_probs(&[sequence], 1.0, 1024).unwrap().remove(0).logprobs;
        found
            .iter_mut()
            .zip(&segment.response_mask)
            .for_each(|(value, mask)| *value *= f32::from(*mask));
        segment.response_logprobs = Some(found);
    }
}

/// Every weight, bit for bit comparable.
pub(super) fn all_weights(policy: &Trainer) -> Vec<u32> {
    policy
        .weights()
        .iter()
        .flat_map(|(_, tensor)| tensor.data.iter().map(|value| value.to_bits()))
        .collect()
}
