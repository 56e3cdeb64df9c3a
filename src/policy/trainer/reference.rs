//! Gradients through burn's own operations and autodiff: what runs on a GPU, and on the CPU what the fused kernels are
//! checked against.
//!
//! Rows are padded to the right inside groups of similar length; under a causal mask the padding never reaches a real
//! position. Losses are evaluated on the host from log-probs, and come back as one gradient per position.

mod body;
mod experts;
mod head;

use burn::tensor::{Int, Tensor, TensorData, backend::AutodiffBackend};

use super::{Gradients, TrainerError};
use crate::NO_EXPERT;
use crate::config::ModelConfig;
use crate::layout::{Slots, slots};
use crate::lora::{Adapter, Lora};
use crate::objective::{LossStats, Objective, ValueStats, evaluate, value_loss};
use crate::row::{LogProbs, Row, Sequence, ValueRow};
use crate::weights::Weights;
use body::Body;

/// Rows share a padded group while the shortest has at least this share of the longest's length.
const LEAST_FILL: f64 = 0.75;

type Cpu = burn::backend::Autodiff<burn::backend::Flex>;

pub(super) fn on_cpu(weights: &Weights, lora: Option<&Lora>) -> Box<dyn Gradients> {
    Box::new(Reference::<Cpu>::new(
        weights,
        lora,
        burn::tensor::Device::<Cpu>::default(),
    ))
}

#[cfg(feature = "cuda")]
pub(super) fn on_cuda(
    weights: &Weights,
    lora: Option<&Lora>,
    index: usize,
) -> Result<Box<dyn Gradients>, TrainerError> {
    type Cuda = burn::backend::Autodiff<burn::backend::Cuda>;
    cuda_available()?;
    Ok(Box::new(Reference::<Cuda>::new(
        weights,
        lora,
        burn::backend::cuda::CudaDevice::new(index),
    )))
}

#[cfg(not(feature = "cuda"))]
pub(super) fn on_cuda(_: &Weights, _: Option<&Lora>, _: usize) -> Result<Box<dyn Gradients>, TrainerError> {
    cuda_available().and(Err(TrainerError::NoCuda {
        reason: NOT_COMPILED.to_owned(),
    }))
}

#[cfg(not(feature = "cuda"))]
const NOT_COMPILED: &str = "this build has no CUDA support; build with `--features cuda`";

/// burn panics in its own threads without a driver, so the driver is looked for first.
pub(super) fn cuda_available() -> Result<(), TrainerError> {
    #[cfg(not(feature = "cuda"))]
    return Err(TrainerError::NoCuda {
        reason: NOT_COMPILED.to_owned(),
    });
    #[cfg(feature = "cuda")]
    if driver_present() {
        Ok(())
    } else {
        let reason = "the NVIDIA driver (libcuda.so.1) is not installed on this machine".to_owned();
        Err(TrainerError::NoCuda { reason })
    }
}

#[cfg(feature = "cuda")]
fn driver_present() -> bool {
    #[expect(
        unsafe_code,
        reason = "asks the dynamic linker whether the driver's library can be loaded"
    )]
    // SAFETY: loading the driver runs its initialisers only; the handle is left open, for burn loads it again.
    unsafe {
        !libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_LAZY | libc::RTLD_LOCAL).is_null()
    }
}

/// Weights on a device, and the gradients accumulated there.
struct Reference<B: AutodiffBackend> {
    config: ModelConfig,
    slots: Slots,
    device: burn::tensor::Device<B>,
    /// Flat, by slot.
    weights: Vec<Tensor<B::InnerBackend, 1>>,
    gradients: Vec<Option<Tensor<B::InnerBackend, 1>>>,
    /// Where adapters alone learn: whole gradients of their matrices are made, and brought down to them at the end.
    lora: Option<Lora>,
}

/// A padded group of rows.
struct Group {
    /// Positions in the caller's list.
    members: Vec<usize>,
    width: usize,
}

impl<B: AutodiffBackend> Reference<B> {
    fn new(weights: &Weights, lora: Option<&Lora>, device: burn::tensor::Device<B>) -> Self {
        let mut this = Self {
            config: weights.config().clone(),
            slots: slots(weights.config()),
            device,
            weights: Vec::new(),
            gradients: Vec::new(),
            lora: None,
        };
        this.set_weights(weights, lora);
        this
    }

    /// The body over some weights, with the experts that are prescribed to a group's rows.
    fn body<'a, I: burn::tensor::backend::Backend>(
        &'a self,
        weights: &'a [Tensor<I, 1>],
        prescribed: &'a [u16],
    ) -> Body<'a, I> {
        Body {
            config: &self.config,
            slots: &self.slots,
            weights,
            prescribed,
            chosen: std::cell::RefCell::default(),
        }
    }

    /// Prescribed experts of a group's padded positions; empty where no row has any.
    fn prescribed(&self, group: &Group, sequences: &[Sequence<'_>]) -> Vec<u16> {
        let per_position = self.config.experts_per_position();
        let mut all = Vec::new();
        if group.members.iter().any(|row| !sequences[*row].experts.is_empty()) {
            for row in &group.members {
                all.extend_from_slice(sequences[*row].experts);
                all.resize(all.len().next_multiple_of(group.width * per_position), NO_EXPERT);
                if sequences[*row].experts.is_empty() {
                    all.extend(std::iter::repeat_n(NO_EXPERT, group.width * per_position));
                }
            }
        }
        all
    }

    /// Leaves of a new graph, by slot.
    fn leaves(&self) -> Vec<Tensor<B, 1>> {
        let learns = |slot| {
            let lora = self.lora.as_ref();
            lora.is_none_or(|lora| lora.adapters().iter().any(|adapter| adapter.slot == slot))
        };
        let leaf = |(slot, weight): (usize, &Tensor<B::InnerBackend, 1>)| {
            let leaf = Tensor::from_inner(weight.clone());
            if learns(slot) { leaf.require_grad() } else { leaf }
        };
        self.weights.iter().enumerate().map(leaf).collect()
    }

    /// Token ids, `[members, width]`, padded with token 0.
    fn ids<I: burn::tensor::backend::Backend>(
        group: &Group,
        tokens: &[&[u32]],
        device: &burn::tensor::Device<I>,
    ) -> Tensor<I, 2, Int> {
        let padded = |row: &usize| {
            let ids = tokens[*row].iter().map(|t| *t as i32);
            ids.chain(std::iter::repeat(0)).take(group.width).collect::<Vec<_>>()
        };
        let ids: Vec<i32> = group.members.iter().flat_map(padded).collect();
        Tensor::from_data(TensorData::new(ids, [group.members.len(), group.width]), device)
    }
}

/// Groups of similar length, of at most `budget` padded tokens (or one row).
fn groups(lengths: &[usize], budget: usize) -> Vec<Group> {
    let mut order: Vec<usize> = (0..lengths.len()).collect();
    order.sort_by_key(|row| std::cmp::Reverse(lengths[*row]));
    let mut groups: Vec<Group> = Vec::new();
    for row in order {
        let fits = |g: &&mut Group| {
            lengths[row] as f64 >= LEAST_FILL * g.width as f64 && (g.members.len() + 1) * g.width <= budget
        };
        match groups.last_mut().filter(fits) {
            Some(group) => group.members.push(row),
            None => groups.push(Group {
                members: vec![row],
                width: lengths[row],
            }),
        }
    }
    groups
}

impl<B: AutodiffBackend> Gradients for Reference<B> {
    fn set_weights(&mut self, weights: &Weights, lora: Option<&Lora>) {
        self.lora = lora.cloned();
        let upload = |data: &[f32]| Tensor::from_data(TensorData::new(data.to_vec(), [data.len()]), &self.device);
        self.weights = weights.iter().map(|(_, tensor)| upload(&tensor.data)).collect();
        self.gradients = vec![None; self.weights.len()];
    }

    fn log_probs(&self, sequences: &[Sequence<'_>], temperature: f32, micro_batch_tokens: usize) -> Vec<LogProbs> {
        let tokens: Vec<&[u32]> = sequences.iter().map(|s| s.tokens).collect();
        let lengths: Vec<usize> = tokens.iter().map(|t| t.len()).collect();
        let mut out = vec![LogProbs::default(); sequences.len()];
        for group in groups(&lengths, micro_batch_tokens) {
            let ids = Self::ids::<B::InnerBackend>(&group, &tokens, &self.device);
            let prescribed = self.prescribed(&group, sequences);
            let body = self.body(&self.weights, &prescribed);
            let hidden = body.hidden(ids);
            let (mut rows, mut targets) = (Vec::new(), Vec::new());
            for (i, member) in group.members.iter().enumerate() {
                let s = &sequences[*member];
                rows.extend((s.loss_start..s.tokens.len()).map(|at| (i * group.width + at - 1) as i32));
                targets.extend(s.tokens[s.loss_start..].iter().map(|t| *t as i32));
            }
            let (logprobs, entropy) = head::scores(&body, &hidden, &rows, &targets, temperature);
            let (mut done, chosen) = (0, body.chosen.borrow());
            let per_position = self.config.experts_per_position();
            for (i, member) in group.members.iter().enumerate() {
                let s = &sequences[*member];
                let range = done..done + s.tokens.len() - s.loss_start;
                done = range.end;
                out[*member] = LogProbs {
                    logprobs: logprobs[range.clone()].to_vec(),
                    entropy: entropy[range].to_vec(),
                    experts: chosen[i * group.width * per_position..][..s.tokens.len() * per_position].to_vec(),
                };
            }
        }
        out
    }

    fn accumulate(&mut self, rows: &[Row<'_>], objective: &Objective) -> LossStats {
        let sequences: Vec<Sequence<'_>> = rows.iter().map(Row::sequence).collect();
        let tokens: Vec<&[u32]> = rows.iter().map(|r| r.tokens).collect();
        let lengths: Vec<usize> = tokens.iter().map(|t| t.len()).collect();
        let mut by_row = vec![LossStats::default(); rows.len()];
        for group in groups(&lengths, usize::MAX) {
            let leaves = self.leaves();
            let prescribed = self.prescribed(&group, &sequences);
            let body = self.body(&leaves, &prescribed);
            let plain = self.body(&self.weights, &[]);
            let hidden = body.hidden(Self::ids::<B>(&group, &tokens, &self.device));
            let fixed = hidden.clone().inner();
            let (mut at, mut targets, mut masked) = (Vec::new(), Vec::new(), Vec::new());
            for (i, member) in group.members.iter().enumerate() {
                let row = &rows[*member];
                let positions = row.masked();
                at.extend(
                    positions
                        .iter()
                        .map(|p| (i * group.width + row.loss_start + p - 1) as i32),
                );
                targets.extend(positions.iter().map(|p| row.tokens[row.loss_start + p] as i32));
                masked.push(positions);
            }
            let (logprobs, entropy) = head::scores(&plain, &fixed, &at, &targets, objective.temperature);
            let (mut dlogprobs, mut dentropies, mut done) = (Vec::new(), Vec::new(), 0);
            for (member, positions) in group.members.iter().zip(&masked) {
                let range = done..done + positions.len();
                done = range.end;
                let scores = (&logprobs[range.clone()], &entropy[range]);
                let outputs = (&mut dlogprobs, &mut dentropies);
                by_row[*member] = evaluate(&rows[*member], positions, scores, objective, outputs);
            }
            if at.is_empty() {
                continue;
            }
            let upstream = (dlogprobs.as_slice(), dentropies.as_slice());
            let (dhidden, dhead) =
                head::scores_backward::<B>(&plain, &fixed, &at, &targets, upstream, objective.temperature);
            let found = (hidden * Tensor::from_inner(dhidden)).sum().backward();
            for (sum, leaf) in self.gradients.iter_mut().zip(&leaves) {
                add(sum, leaf.grad(&found));
            }
            if self.lora.is_none() {
                add(&mut self.gradients[self.slots.head], Some(dhead));
            }
        }
        let mut sum = LossStats::default();
        for stats in &by_row {
            sum.merge(stats);
        }
        sum
    }

    fn values(&self, sequences: &[Sequence<'_>], micro_batch_tokens: usize) -> Vec<Vec<f32>> {
        let tokens: Vec<&[u32]> = sequences.iter().map(|s| s.tokens).collect();
        let lengths: Vec<usize> = tokens.iter().map(|t| t.len()).collect();
        let mut out = vec![Vec::new(); sequences.len()];
        for group in groups(&lengths, micro_batch_tokens) {
            let body = self.body(&self.weights, &[]);
            let hidden = body.hidden(Self::ids::<B::InnerBackend>(&group, &tokens, &self.device));
            for (i, member) in group.members.iter().enumerate() {
                let s = &sequences[*member];
                let at: Vec<i32> = (s.loss_start..s.tokens.len())
                    .map(|at| (i * group.width + at - 1) as i32)
                    .collect();
                out[*member] = floats(head::values(&body, &hidden, &at));
            }
        }
        out
    }

    fn accumulate_values(&mut self, rows: &[ValueRow<'_>], clip: f32) -> ValueStats {
        let tokens: Vec<&[u32]> = rows.iter().map(|r| r.tokens).collect();
        let lengths: Vec<usize> = tokens.iter().map(|t| t.len()).collect();
        let mut by_row = vec![ValueStats::default(); rows.len()];
        for group in groups(&lengths, usize::MAX) {
            let leaves = self.leaves();
            let body = self.body(&leaves, &[]);
            let (mut at, mut masked) = (Vec::new(), Vec::new());
            for (i, member) in group.members.iter().enumerate() {
                let row = &rows[*member];
                let positions = row.masked();
                let place = |p: &usize| (i * group.width + row.loss_start + p - 1) as i32;
                at.extend(positions.iter().map(place));
                masked.push(positions);
            }
            if at.is_empty() {
                continue;
            }
            let hidden = body.hidden(Self::ids::<B>(&group, &tokens, &self.device));
            let values = head::values(&body, &hidden, &at);
            let found = floats(values.clone().inner());
            let (mut dvalues, mut done) = (Vec::new(), 0);
            for (member, positions) in group.members.iter().zip(&masked) {
                let own = &found[done..done + positions.len()];
                done += positions.len();
                by_row[*member] = value_loss(&rows[*member], positions, own, clip, &mut dvalues);
            }
            let upstream = Tensor::<B, 2>::from_data(TensorData::new(dvalues, [at.len(), 1]), &self.device);
            let gradients = (values * upstream).sum().backward();
            for (sum, leaf) in self.gradients.iter_mut().zip(&leaves) {
                add(sum, leaf.grad(&gradients));
            }
        }
        let mut sum = ValueStats::default();
        for stats in &by_row {
            sum.merge(stats);
        }
        sum
    }

    /// burn's graph keeps what it keeps.
    fn set_recompute(&mut self, _: bool) {}

    fn take(&mut self) -> Vec<Vec<f32>> {
        let download = |(sum, weight): (&mut Option<Tensor<B::InnerBackend, 1>>, &Tensor<B::InnerBackend, 1>)| {
            sum.take().map_or_else(|| vec![0.0; weight.dims()[0]], floats)
        };
        match &self.lora {
            None => self.gradients.iter_mut().zip(&self.weights).map(download).collect(),
            Some(lora) => {
                let of = |adapter: &Adapter| {
                    let slot = adapter.slot;
                    lora.of_matrix(adapter, &download((&mut self.gradients[slot], &self.weights[slot])))
                };
                lora.adapters().iter().map(of).collect()
            }
        }
    }
}

fn add<I: burn::tensor::backend::Backend>(sum: &mut Option<Tensor<I, 1>>, more: Option<Tensor<I, 1>>) {
    *sum = match (sum.take(), more) {
        (Some(sum), Some(more)) => Some(sum + more),
        (sum, more) => sum.or(more),
    };
}

/// A tensor's elements on the host.
fn floats<I: burn::tensor::backend::Backend, const D: usize>(tensor: Tensor<I, D>) -> Vec<f32> {
    tensor.into_data().iter::<f32>().collect()
}
