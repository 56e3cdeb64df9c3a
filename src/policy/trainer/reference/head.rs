//! Log-probs and entropies over the vocabulary in chunks, forward and backward, in burn's operations.

use burn::tensor::{Int, Tensor, TensorData, backend::AutodiffBackend, backend::Backend};

use super::body::Body;
use super::floats;

/// Rows of logits that exist at a time.
const CHUNK: usize = 512;

/// Log-probs of `targets` after hidden rows `at`, and entropies.
pub(super) fn scores<B: Backend>(
    body: &Body<'_, B>,
    hidden: &Tensor<B, 2>,
    at: &[i32],
    targets: &[i32],
    temperature: f32,
) -> (Vec<f32>, Vec<f32>) {
    let head = head(body);
    let (mut logprobs, mut entropies) = (Vec::new(), Vec::new());
    for (at, targets) in at.chunks(CHUNK).zip(targets.chunks(CHUNK)) {
        let rows = hidden.clone().select(0, ints(at, &hidden.device()));
        let (logprob, entropy) = score(rows, head.clone(), targets, temperature);
        logprobs.extend(floats(logprob));
        entropies.extend(floats(entropy));
    }
    (logprobs, entropies)
}

/// Gradients of `Σ dlogprobs·logprob + dentropies·entropy` for `hidden` and (flat) for the head's weight.
pub(super) fn scores_backward<B: AutodiffBackend>(
    body: &Body<'_, B::InnerBackend>,
    hidden: &Tensor<B::InnerBackend, 2>,
    at: &[i32],
    targets: &[i32],
    (dlogprobs, dentropies): (&[f32], &[f32]),
    temperature: f32,
) -> (Tensor<B::InnerBackend, 2>, Tensor<B::InnerBackend, 1>) {
    let device = hidden.device();
    let weight = head(body);
    let [vocab, d] = weight.dims();
    let mut dhidden = Tensor::zeros(hidden.dims(), &device);
    let mut dweight = Tensor::zeros([vocab, d], &device);
    let upstream = dlogprobs.chunks(CHUNK).zip(dentropies.chunks(CHUNK));
    for ((at, targets), (a, b)) in at.chunks(CHUNK).zip(targets.chunks(CHUNK)).zip(upstream) {
        let rows = hidden.clone().select(0, ints(at, &device));
        let rows = Tensor::<B, 2>::from_inner(rows).require_grad();
        let weight = Tensor::<B, 2>::from_inner(weight.clone()).require_grad();
        let (logprob, entropy) = score(rows.clone(), weight.clone(), targets, temperature);
        let column =
            |values: &[f32]| Tensor::<B, 2>::from_data(TensorData::new(values.to_vec(), [values.len(), 1]), &device);
        let found = (logprob * column(a) + entropy * column(b)).sum().backward();
        if let Some(gradient) = rows.grad(&found) {
            let add = burn::tensor::IndexingUpdateOp::Add;
            dhidden = dhidden.select_assign(0, ints(at, &device), gradient, add);
        }
        if let Some(gradient) = weight.grad(&found) {
            dweight = dweight + gradient;
        }
    }
    (dhidden, dweight.reshape([vocab * d]))
}

/// A critic's values after hidden rows `at`, `[rows, 1]`.
pub(super) fn values<B: Backend>(body: &Body<'_, B>, hidden: &Tensor<B, 2>, at: &[i32]) -> Tensor<B, 2> {
    let weight = body.matrix(body.slots.head, 1, body.config.hidden_size);
    let values = hidden
        .clone()
        .select(0, ints(at, &hidden.device()))
        .matmul(weight.transpose());
    match body.slots.value_bias {
        Some(bias) => values + body.weights[bias].clone().unsqueeze(),
        None => values,
    }
}

fn head<B: Backend>(body: &Body<'_, B>) -> Tensor<B, 2> {
    body.matrix(body.slots.head, body.config.vocab_size, body.config.hidden_size)
}

/// Log-prob of each row's target and entropy, `[rows, 1]` each.
fn score<B: Backend>(
    rows: Tensor<B, 2>,
    weight: Tensor<B, 2>,
    targets: &[i32],
    temperature: f32,
) -> (Tensor<B, 2>, Tensor<B, 2>) {
    let device = rows.device();
    let targets = Tensor::<B, 1, Int>::from_data(TensorData::new(targets.to_vec(), [targets.len()]), &device);
    let logits = rows.matmul(weight.transpose()) / temperature;
    let shifted = logits.clone() - logits.detach().max_dim(1);
    let log_sum = shifted.clone().exp().sum_dim(1).log();
    let logprobs = shifted - log_sum;
    let entropy = -(logprobs.clone().exp() * logprobs.clone()).sum_dim(1);
    (logprobs.gather(1, targets.unsqueeze_dim(1)), entropy)
}

fn ints<B: Backend>(values: &[i32], device: &B::Device) -> Tensor<B, 1, Int> {
    Tensor::from_data(TensorData::new(values.to_vec(), [values.len()]), device)
}
