//! The fused operations as burn sees them: embedding, a whole decoder layer, and scores under the head, each one node of
//! the autodiff graph whose parents are the weights it uses.
//!
//! Values come from the packed copy of the same weights; the parameter tensors are there for the graph.

use std::fmt;
use std::sync::Arc;

use burn::backend::autodiff::{
    NodeId,
    checkpoint::{base::Checkpointer, strategy::NoCheckpointing},
    grads::Gradients,
    ops::{Backward, Ops, OpsKind},
};
use burn::tensor::{Tensor, TensorData, TensorPrimitive};
use burn_flex::{Flex, FlexTensor};

use super::pass::Pass;
use crate::kernels::vector::add;
use crate::layout::LayerSlots;

/// The plain backend, and the differentiable one over it.
pub(super) type Inner = Flex;
type Autodiff = burn::backend::Autodiff<Flex, NoCheckpointing>;
/// A flat parameter of a graph.
pub(super) type Leaf = Tensor<Autodiff, 1>;
/// Rows of a graph, flat.
pub(super) type Node = Tensor<Autodiff, 1>;

/// Weights that a layer can have, and its parents: those and its input.
const LAYER_WEIGHTS: usize = 16;
const LAYER_PARENTS: usize = LAYER_WEIGHTS + 1;

/// A pass, and which of its layers (0 elsewhere).
#[derive(Clone)]
struct State(Arc<Pass>, usize);

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "fused pass of {} tokens, layer {}", self.0.plan.tokens(), self.1)
    }
}

#[derive(Debug)]
struct Embed;
#[derive(Debug)]
struct Layer;
#[derive(Debug)]
struct Score;
#[derive(Debug)]
struct Value;

/// Embeddings of the pass's tokens, `[tokens · hidden]`.
pub(super) fn embed(pass: &Arc<Pass>, embedding: &Leaf) -> Node {
    let mut x = Vec::new();
    pass.decoder.embed(pass.tokens.iter().copied(), &mut x);
    node(Embed, [embedding], State(Arc::clone(pass), 0), x)
}

/// Layer `index` over `x`; `leaves` are all parameters by slot.
pub(super) fn layer(pass: &Arc<Pass>, index: usize, x: &Node, leaves: &[Leaf]) -> Node {
    let slots = layer_slots(&pass.decoder.slots.layers[index]);
    // Stands for the weights that the family does not have.
    let absent = untracked();
    let parents: [&Node; LAYER_PARENTS] = std::array::from_fn(|i| match i.checked_sub(1) {
        Some(weight) => slots[weight].map_or(&absent, |slot| &leaves[slot]),
        None => x,
    });
    let mut out = values(x);
    pass.layer(index, &mut out);
    node(Layer, parents, State(Arc::clone(pass), index), out)
}

/// A leaf that nothing is tracked for.
pub(super) fn untracked() -> Leaf {
    Tensor::from_inner(Tensor::from_primitive(TensorPrimitive::Float(flat(vec![0.0]))))
}

/// Log-probs, then entropies, at the pass's picks: `[2 · picks]`.
pub(super) fn score(pass: &Arc<Pass>, x: &Node, norm: &Leaf, head: &Leaf) -> Node {
    let hidden = values(x);
    let out = {
        let state = &mut pass.buffers().head;
        let parallel = pass.plan.rows().parallel;
        pass.decoder
            .score(&hidden, &pass.picks, pass.temperature, pass.keep_all, parallel, state);
        [state.logprobs.as_slice(), state.entropies.as_slice()].concat()
    };
    node(Score, [x, norm, head], State(Arc::clone(pass), 0), out)
}

/// A critic's values at the pass's picks, as a node and as they are.
pub(super) fn value(pass: &Arc<Pass>, x: &Node, leaves: &[Leaf]) -> (Node, Vec<f32>) {
    let slots = &pass.decoder.slots;
    let found = pass.decoder.value(&values(x), &pass.picks, &mut pass.buffers().head);
    let bias = slots.value_bias.unwrap_or(slots.head);
    let parents = [x, &leaves[slots.final_norm], &leaves[slots.head], &leaves[bias]];
    (node(Value, parents, State(Arc::clone(pass), 0), found.clone()), found)
}

/// A copy of a tensor's elements.
fn values(x: &Node) -> Vec<f32> {
    floats(&x.clone().into_primitive().tensor().primitive)
}

/// Lends a plain tensor's elements.
pub(super) fn with_floats(tensor: Tensor<Inner, 1>, used: impl FnOnce(&[f32])) {
    let tensor = tensor.into_primitive().tensor();
    match tensor.as_slice::<f32>() {
        Some(values) => used(values),
        None => used(tensor.to_contiguous().storage::<f32>()),
    }
}

/// A copy of a primitive's elements.
fn floats(tensor: &FlexTensor) -> Vec<f32> {
    match tensor.as_slice::<f32>() {
        Some(values) => values.to_vec(),
        None => tensor.to_contiguous().storage::<f32>().to_vec(),
    }
}

fn flat(values: Vec<f32>) -> FlexTensor {
    let len = values.len();
    FlexTensor::from_data(TensorData::new(values, [len]))
}

fn node<O, const N: usize>(op: O, parents: [&Node; N], state: State, out: Vec<f32>) -> Node
where
    O: Backward<Flex, N, State = State>,
{
    let nodes = parents.map(|parent| parent.clone().into_primitive().tensor().node);
    let out = flat(out);
    let tensor = match op.prepare::<NoCheckpointing>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(prepared) => prepared.finish(state, out),
        OpsKind::UnTracked(prepared) => prepared.finish(out),
    };
    Tensor::from_primitive(TensorPrimitive::Float(tensor))
}

impl Backward<Flex, 1> for Embed {
    type State = State;

    fn backward(self, ops: Ops<State, 1>, grads: &mut Gradients, _: &mut Checkpointer) {
        let upstream = floats(&grads.consume::<Flex>(&ops.node));
        let (State(pass, _), parents) = (ops.state, ops.parents.map(|parent| parent.map(|node| node.id)));
        let d = pass.decoder.config.hidden_size;
        let mut sum = pass.transposes.learning.zeros(pass.decoder.slots.embedding);
        for (token, gradient) in pass.tokens.iter().zip(upstream.chunks_exact(d)) {
            add(&mut sum[*token as usize * d..][..d], gradient);
        }
        register(grads, parents.into_iter().zip([sum]));
    }
}

impl Backward<Flex, LAYER_PARENTS> for Layer {
    type State = State;

    fn backward(self, ops: Ops<State, LAYER_PARENTS>, grads: &mut Gradients, _: &mut Checkpointer) {
        let mut dx = floats(&grads.consume::<Flex>(&ops.node));
        let (State(pass, index), parents) = (ops.state, ops.parents.map(|parent| parent.map(|node| node.id)));
        let slots = layer_slots(&pass.decoder.slots.layers[index]);
        let mut by_slot = zeros(&pass, &slots);
        pass.layer_backward(index, &mut dx, &mut by_slot);
        let weights = slots.map(|slot| slot.map_or_else(Vec::new, |slot| std::mem::take(&mut by_slot[slot])));
        register(grads, parents.into_iter().zip(std::iter::once(dx).chain(weights)));
    }
}

impl Backward<Flex, 3> for Score {
    type State = State;

    fn backward(self, ops: Ops<State, 3>, grads: &mut Gradients, _: &mut Checkpointer) {
        let upstream = floats(&grads.consume::<Flex>(&ops.node));
        let (State(pass, _), parents) = (ops.state, ops.parents.map(|parent| parent.map(|node| node.id)));
        let (norm, head) = (pass.decoder.slots.final_norm, pass.decoder.slots.head);
        let mut by_slot = zeros(&pass, &[Some(norm), Some(head)]);
        let mut dx = vec![0.0; pass.plan.tokens() * pass.decoder.config.hidden_size];
        let buffers = &mut *pass.buffers();
        pass.decoder.score_backward(
            &pass.transposes,
            &pass.picks,
            upstream.split_at(pass.picks.len()),
            pass.temperature,
            &mut dx,
            &mut by_slot,
            &mut buffers.head,
            &mut buffers.scratch.outer,
        );
        let weights = [norm, head].map(|slot| std::mem::take(&mut by_slot[slot]));
        register(grads, parents.into_iter().zip(std::iter::once(dx).chain(weights)));
    }
}

impl Backward<Flex, 4> for Value {
    type State = State;

    fn backward(self, ops: Ops<State, 4>, grads: &mut Gradients, _: &mut Checkpointer) {
        let upstream = floats(&grads.consume::<Flex>(&ops.node));
        let (State(pass, _), parents) = (ops.state, ops.parents.map(|parent| parent.map(|node| node.id)));
        let slots = &pass.decoder.slots;
        let mut by_slot = zeros(&pass, &[Some(slots.final_norm), Some(slots.head), slots.value_bias]);
        let mut dx = vec![0.0; pass.plan.tokens() * pass.decoder.config.hidden_size];
        let head = &mut pass.buffers().head;
        pass.decoder
            .value_backward(&pass.picks, &upstream, &mut dx, &mut by_slot, head);
        let bias = slots
            .value_bias
            .map_or_else(Vec::new, |slot| std::mem::take(&mut by_slot[slot]));
        let weights = [slots.final_norm, slots.head].map(|slot| std::mem::take(&mut by_slot[slot]));
        register(
            grads,
            parents
                .into_iter()
                .zip(std::iter::once(dx).chain(weights).chain([bias])),
        );
    }
}

/// Zero gradients at the slots named, nothing at the others.
fn zeros(pass: &Pass, slots: &[Option<usize>]) -> Vec<Vec<f32>> {
    let learning = &pass.transposes.learning;
    let mut by_slot = vec![Vec::new(); learning.trained().len()];
    for slot in slots.iter().flatten() {
        by_slot[*slot] = learning.zeros(*slot);
    }
    by_slot
}

/// Hands gradients to the parents that are tracked.
fn register(grads: &mut Gradients, found: impl IntoIterator<Item = (Option<NodeId>, Vec<f32>)>) {
    for (parent, gradient) in found {
        if let Some(parent) = parent {
            grads.register::<Flex>(parent, flat(gradient));
        }
    }
}

/// The slots of a layer's weights, in the order of the operation's parents.
fn layer_slots(s: &LayerSlots) -> [Option<usize>; LAYER_WEIGHTS] {
    [
        Some(s.attention_norm),
        Some(s.query.weight),
        s.query.bias,
        Some(s.key.weight),
        s.key.bias,
        Some(s.value.weight),
        s.value.bias,
        Some(s.output.weight),
        s.output.bias,
        s.query_norm,
        s.key_norm,
        Some(s.mlp_norm),
        s.router,
        Some(s.gate),
        Some(s.up),
        Some(s.down),
    ]
}
