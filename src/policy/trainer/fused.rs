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
use crate::lora::Lora;
use crate::objective::{LossStats, Objective, ValueStats};
use crate::row::{LogProbs, Row, Sequence, ValueRow};
use crate::weights::Weights;
use ops::{Inner, Leaf};
use worker::Worker;

/// Floats that the workers' gradients may take together.
const GRADIENT_FLOATS: usize = 1 << 30;

/// One version of the weights: burn's tensors of what learns, and all numbers packed for the kernels.
pub(super) struct Version {
    /// By slot: the weight, or its adapter; `None` where nothing learns.
    parameters: Vec<Option<Tensor<Inner, 1>>>,
    decoder: Arc<Decoder>,
    transposes: Arc<Transposes>,
    /// Whether passes keep nothing that can be computed again.
    recompute: bool,
}

impl Version {
    fn new(weights: &Weights, lora: Option<&Lora>) -> Self {
        let upload =
            |data: &[f32]| Tensor::from_data(TensorData::new(data.to_vec(), [data.len()]), &burn_flex::FlexDevice);
        let parameters = match lora {
            None => weights.iter().map(|(_, tensor)| Some(upload(&tensor.data))).collect(),
            Some(lora) => {
                let mut parameters: Vec<_> = weights.iter().map(|_| None).collect();
                for adapter in lora.adapters() {
                    parameters[adapter.slot] = Some(upload(&adapter.values));
                }
                parameters
            }
        };
        Self {
            parameters,
            decoder: Arc::new(Decoder::new(weights)),
            transposes: Arc::new(Transposes::new(weights, lora)),
            recompute: false,
        }
    }

    /// Leaves of a new graph, by slot; nothing is tracked for what does not learn.
    fn leaves(&self) -> Vec<Leaf> {
        let leaf = |parameter: &Option<Tensor<Inner, 1>>| match parameter {
            Some(parameter) => Tensor::from_inner(parameter.clone()).require_grad(),
            None => ops::untracked(),
        };
        self.parameters.iter().map(leaf).collect()
    }
}

pub(super) struct Fused {
    version: Version,
    workers: Vec<Worker>,
    /// Workers of passes without gradient, kept for their buffers.
    idle: Mutex<Vec<Worker>>,
}

impl Fused {
    pub(super) fn new(weights: &Weights, lora: Option<&Lora>) -> Self {
        Self {
            version: Version::new(weights, lora),
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
        let trained: usize = self.version.transposes.learning.trained().iter().sum();
        let most = (GRADIENT_FLOATS / trained.max(1)).max(1);
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
    fn set_weights(&mut self, weights: &Weights, lora: Option<&Lora>) {
        let recompute = self.version.recompute;
        self.version = Version {
            recompute,
            ..Version::new(weights, lora)
        };
    }

    fn set_recompute(&mut self, recompute: bool) {
        self.version.recompute = recompute;
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
        let trained = self.version.transposes.learning.trained();
        let zeros = || trained.iter().map(|size| vec![0.0; *size]).collect();
        let mut sum = parts.next().unwrap_or_else(zeros);
        for part in parts {
            sum.par_iter_mut().zip(part).for_each(|(sum, part)| add(sum, &part));
        }
        sum.retain(|gradient| !gradient.is_empty());
        sum
    }
}
