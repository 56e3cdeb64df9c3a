//! Gradients on the CPU: burn's tensors and autodiff over fused operations with hand-written backward passes.
//!
//! Data-parallel over rows: each worker builds its own graph over its share of a micro-batch, rows side by side without
//! padding, and keeps its own sum of gradients. Sums are merged in a fixed order, so that a repeat gives the same bits.

mod ops;
mod pass;
mod worker;

use std::sync::{Arc, Mutex, PoisonError};

use burn::tensor::{Tensor, TensorData};
use rayon::prelude::*;

use super::Gradients;
use crate::decoder::backward::Transposes;
use crate::decoder::packed::Decoder;
use crate::kernels::vector::add;
use crate::objective::{LossStats, Objective, ValueStats};
use crate::row::{LogProbs, Row, Sequence, ValueRow};
use crate::weights::Weights;
use ops::{Inner, Leaf};
use worker::Worker;

/// Floats that the workers' gradients may take together.
const GRADIENT_FLOATS: usize = 1 << 30;

/// One version of the weights: burn's parameter tensors, and the same numbers packed for the kernels.
pub(super) struct Version {
    parameters: Vec<Tensor<Inner, 1>>,
    decoder: Arc<Decoder>,
    transposes: Arc<Transposes>,
}

impl Version {
    fn new(weights: &Weights) -> Self {
        let upload =
            |data: &[f32]| Tensor::from_data(TensorData::new(data.to_vec(), [data.len()]), &burn_flex::FlexDevice);
        Self {
            parameters: weights.iter().map(|(_, tensor)| upload(&tensor.data)).collect(),
            decoder: Arc::new(Decoder::new(weights)),
            transposes: Arc::new(Transposes::new(weights)),
        }
    }

    /// Leaves of a new graph, by slot.
    fn leaves(&self) -> Vec<Leaf> {
        self.parameters
            .iter()
            .map(|p| Tensor::from_inner(p.clone()).require_grad())
            .collect()
    }
}

pub(super) struct Fused {
    version: Version,
    workers: Vec<Worker>,
    /// Workers of passes without gradient, kept for their buffers.
    idle: Mutex<Vec<Worker>>,
}

impl Fused {
    pub(super) fn new(weights: &Weights) -> Self {
        Self {
            version: Version::new(weights),
            workers: Vec::new(),
            idle: Mutex::default(),
        }
    }

    /// Shares of near-equal work, longest rows first; each share lists rows in ascending order.
    fn shares(&self, lengths: &[usize]) -> Vec<Vec<usize>> {
        let config = &self.version.decoder.config;
        let parameters = config.parameter_count();
        let attention = 2 * config.num_hidden_layers * config.num_attention_heads * config.head_dim;
        let cost = |row: usize| lengths[row] * (parameters + attention * lengths[row]);
        let most = (GRADIENT_FLOATS / parameters).max(1);
        let count = rayon::current_num_threads().min(lengths.len()).min(most);
        let mut shares = vec![(0, Vec::new()); count];
        let mut order: Vec<usize> = (0..lengths.len()).collect();
        order.sort_by_key(|row| std::cmp::Reverse(cost(*row)));
        for row in order {
            if let Some((work, rows)) = shares.iter_mut().min_by_key(|(work, _)| *work) {
                *work += cost(row);
                rows.push(row);
            }
        }
        let sorted = |(_, mut rows): (usize, Vec<usize>)| {
            rows.sort_unstable();
            rows
        };
        shares.into_iter().map(sorted).collect()
    }
}

impl Fused {
    /// Cuts the sequences into jobs, and scores these side by side.
    fn score<T: Send>(
        &self,
        sequences: &[Sequence<'_>],
        micro_batch_tokens: usize,
        score: impl Fn(&mut Worker, &Decoder, &[Sequence<'_>], bool) -> Vec<T> + Sync,
    ) -> Vec<T> {
        let budget = (micro_batch_tokens / rayon::current_num_threads()).max(1);
        let mut jobs: Vec<&[Sequence<'_>]> = Vec::new();
        let (mut first, mut tokens) = (0, 0);
        for (i, sequence) in sequences.iter().enumerate() {
            if i > first && tokens + sequence.tokens.len() > budget {
                jobs.push(&sequences[first..i]);
                (first, tokens) = (i, 0);
            }
            tokens += sequence.tokens.len();
        }
        jobs.push(&sequences[first..]);
        let parallel = jobs.len() == 1;
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let run = |job: &&[Sequence<'_>]| {
            let worker = idle().pop();
            let mut worker = worker.unwrap_or_default();
            let scores = score(&mut worker, &self.version.decoder, job, parallel);
            idle().push(worker);
            scores
        };
        jobs.par_iter().flat_map_iter(run).collect()
    }

    /// Shares the rows out over the workers; gives what each row came to, so that sums do not depend on the shares.
    fn by_row<R: Copy + Sync, T: Clone + Default + Send>(
        &mut self,
        rows: &[R],
        length: impl Fn(&R) -> usize,
        run: impl Fn(&mut Worker, &Version, &[R], bool) -> Vec<T> + Sync,
    ) -> Vec<T> {
        let lengths: Vec<usize> = rows.iter().map(length).collect();
        let shares = self.shares(&lengths);
        if self.workers.len() < shares.len() {
            self.workers.resize_with(shares.len(), Worker::default);
        }
        let (version, parallel) = (&self.version, shares.len() == 1);
        let work = self.workers.par_iter_mut().zip(&shares).map(|(worker, share)| {
            let rows: Vec<R> = share.iter().map(|i| rows[*i]).collect();
            run(worker, version, &rows, parallel)
        });
        let found: Vec<Vec<T>> = work.collect();
        let mut by_row = vec![T::default(); rows.len()];
        for (share, found) in shares.iter().zip(found) {
            for (row, found) in share.iter().zip(found) {
                by_row[*row] = found;
            }
        }
        by_row
    }
}

impl Gradients for Fused {
    fn set_weights(&mut self, weights: &Weights) {
        self.version = Version::new(weights);
    }

    fn log_probs(&self, sequences: &[Sequence<'_>], temperature: f32, micro_batch_tokens: usize) -> Vec<LogProbs> {
        self.score(sequences, micro_batch_tokens, |worker, decoder, job, parallel| {
            worker.log_probs(decoder, job, temperature, parallel)
        })
    }

    fn values(&self, sequences: &[Sequence<'_>], micro_batch_tokens: usize) -> Vec<Vec<f32>> {
        self.score(sequences, micro_batch_tokens, Worker::values)
    }

    fn accumulate(&mut self, rows: &[Row<'_>], objective: &Objective) -> LossStats {
        let by_row = self.by_row(
            rows,
            |row| row.tokens.len(),
            |worker, version, rows, parallel| worker.accumulate(version, rows, objective, parallel),
        );
        let mut sum = LossStats::default();
        for stats in &by_row {
            sum.merge(stats);
        }
        sum
    }

    fn accumulate_values(&mut self, rows: &[ValueRow<'_>], clip: f32) -> ValueStats {
        let by_row = self.by_row(
            rows,
            |row| row.tokens.len(),
            |worker, version, rows, parallel| worker.accumulate_values(version, rows, clip, parallel),
        );
        let mut sum = ValueStats::default();
        for stats in &by_row {
            sum.merge(stats);
        }
        sum
    }

    fn take(&mut self) -> Vec<Vec<f32>> {
        let mut parts: Vec<Vec<Vec<f32>>> = self.workers.iter_mut().map(Worker::take).collect();
        parts.retain(|part| !part.is_empty());
        let mut parts = parts.into_iter();
        let zeros = || self.version.parameters.iter().map(|p| vec![0.0; p.dims()[0]]).collect();
        let mut sum = parts.next().unwrap_or_else(zeros);
        for part in parts {
            sum.par_iter_mut().zip(part).for_each(|(sum, part)| add(sum, &part));
        }
        sum
    }
}
