//! The experts of a mixture: those that the engine recorded, laid out for the trainer; and how the load is shared
//! (trainer.md §6).

use lego_policy::{LogProbs, ModelConfig, NO_EXPERT};

use super::batch::TrainRow;
use super::optimize::Work;
use super::report::Metrics;
use crate::trajectory::Segment;

/// The recorded experts of a row's tokens; a token without a record has [`NO_EXPERT`]. Nothing where none is recorded.
pub(super) fn recorded(segment: &Segment, tokens: usize) -> Vec<u16> {
    let Some(first) = segment.routing.first() else {
        return Vec::new();
    };
    let width = usize::from(first.experts.layers) * usize::from(first.experts.top_k);
    let mut all = vec![NO_EXPERT; tokens * width];
    for run in &segment.routing {
        let Some(run) = run.within(0, tokens) else { continue };
        let indices: Vec<u16> = if run.experts.index_bytes() == 1 {
            run.rows.iter().map(|byte| u16::from(*byte)).collect()
        } else {
            run.rows
                .as_chunks::<2>()
                .0
                .iter()
                .map(|bytes| u16::from_le_bytes(*bytes))
                .collect()
        };
        let own = all.iter_mut().skip(run.start as usize * width);
        own.zip(indices).for_each(|(place, index)| *place = index);
    }
    all
}

/// Positions of a row whose forward gave a trained token.
fn loss_positions(row: &TrainRow) -> impl Iterator<Item = usize> + '_ {
    let trained = row.mask.iter().enumerate().filter(|(_, mask)| **mask == 1);
    trained.map(|(position, _)| row.loss_start + position - 1)
}

/// Share of trained tokens whose forward has a record.
pub(super) fn measure_coverage(work: &[Work<'_>], policy: &ModelConfig, metrics: &mut Metrics) {
    let width = policy.experts_per_position();
    let (mut recorded, mut all) = (0.0, 0.0);
    for Work { row, .. } in work {
        for position in loss_positions(row) {
            let experts = row.experts.get(position * width..(position + 1) * width);
            all += 1.0;
            recorded += f64::from(u8::from(experts.is_some_and(|experts| !experts.contains(&NO_EXPERT))));
        }
    }
    if all > 0.0 {
        metrics.insert("rollout/moe/coverage".to_owned(), recorded / all);
    }
}

/// How the routers of a policy share their tokens out, and how often they agree with the record.
pub(super) struct Load {
    per_token: usize,
    experts: usize,
    layers: Vec<usize>,
    all_layers: usize,
    /// Trained tokens of each expert of each layer that has experts.
    counts: Vec<Vec<f64>>,
    tokens: f64,
    /// Trained tokens with a record, and those of them that in some layer share no expert with it.
    compared: f64,
    disjoint: f64,
}

impl Load {
    /// `None` for a dense policy.
    pub(super) fn new(policy: &ModelConfig) -> Option<Self> {
        let moe = policy.moe.as_ref()?;
        let layers: Vec<usize> = (0..policy.num_hidden_layers)
            .filter(|layer| policy.experts_of(*layer).is_some())
            .collect();
        Some(Self {
            per_token: moe.per_token,
            experts: moe.experts,
            all_layers: policy.num_hidden_layers,
            counts: vec![vec![0.0; moe.experts]; layers.len()],
            layers,
            tokens: 0.0,
            compared: 0.0,
            disjoint: 0.0,
        })
    }

    /// Counts what the router chose for the trained tokens of a row.
    pub(super) fn add(&mut self, row: &TrainRow, found: &LogProbs) {
        for position in loss_positions(row) {
            self.tokens += 1.0;
            let (mut has_record, mut is_disjoint) = (false, false);
            for (place, layer) in self.layers.iter().enumerate() {
                let at = (position * self.all_layers + layer) * self.per_token;
                let Some(own) = found.experts.get(at..at + self.per_token) else {
                    continue;
                };
                for expert in own {
                    self.counts[place][usize::from(*expert)] += 1.0;
                }
                let record = row
                    .experts
                    .get(at..at + self.per_token)
                    .filter(|record| !record.contains(&NO_EXPERT));
                has_record |= record.is_some();
                is_disjoint |= record.is_some_and(|record| !own.iter().any(|expert| record.contains(expert)));
            }
            self.compared += f64::from(u8::from(has_record));
            self.disjoint += f64::from(u8::from(is_disjoint));
        }
    }

    /// `rollout/moe/*`: the busiest expert's load over an even one's (1 is even), the standard deviation of the loads over
    /// their mean, and the share of experts without a token, each averaged over layers; and the share of tokens with a
    /// record in whose forward some layer's own choice shares no expert with it.
    pub(super) fn measure(&self, metrics: &mut Metrics) {
        if self.tokens <= 0.0 || self.counts.is_empty() {
            return;
        }
        let even = self.tokens * self.per_token as f64 / self.experts as f64;
        let over_layers = |of: &dyn Fn(&[f64]) -> f64| {
            self.counts.iter().map(|counts| of(counts)).sum::<f64>() / self.counts.len() as f64
        };
        let mut set = |name: &str, value: f64| metrics.insert(format!("rollout/moe/{name}"), value);
        set(
            "load_max",
            over_layers(&|counts| counts.iter().copied().fold(0.0, f64::max) / even),
        );
        let deviation = |counts: &[f64]| {
            let squares: f64 = counts.iter().map(|count| (count / even - 1.0).powi(2)).sum();
            (squares / counts.len() as f64).sqrt()
        };
        set("load_deviation", over_layers(&deviation));
        let idle = |counts: &[f64]| counts.iter().filter(|count| **count <= 0.0).count() as f64 / counts.len() as f64;
        set("idle_experts", over_layers(&idle));
        if self.compared > 0.0 {
            set("disjoint", self.disjoint / self.compared);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::train::fixture::sampled;
    use crate::trajectory::{Experts, RoutedRows};

    fn segment(start: u32, rows: &[u8], count: u16) -> Segment {
        let experts = Experts {
            layers: 2,
            top_k: 1,
            count,
        };
        Segment {
            routing: vec![RoutedRows {
                start,
                experts,
                rows: rows.to_vec(),
            }],
            ..sampled(&[1, 2], &[3, 4])
        }
    }

    #[test]
    fn records_lie_at_their_positions_and_the_rest_is_marked() {
        let none = NO_EXPERT;
        assert_eq!(
            recorded(&segment(1, &[5, 6, 7, 8], 9), 4),
            [none, none, 5, 6, 7, 8, none, none]
        );
        // Wide indices, and more rows than the row has tokens.
        let wide = segment(0, &[1, 1, 2, 0, 3, 0, 4, 0, 9, 0, 9, 0], 300);
        assert_eq!(recorded(&wide, 2), [257, 2, 3, 4]);
        assert!(recorded(&sampled(&[1], &[2]), 2).is_empty());
    }
}
