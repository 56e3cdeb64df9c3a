//! The shape of a mixture of experts. What becomes of a token in it is the decoder's.

/// Routed experts in place of a layer's MLP: each token goes through the most probable ones.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moe {
    pub experts: usize,
    /// Experts that a token goes through.
    pub per_token: usize,
    /// Width of an expert.
    pub intermediate_size: usize,
    /// Whether the probabilities of the chosen experts are scaled to a sum of 1.
    pub norm_topk_prob: bool,
    /// Layers with an ordinary MLP all the same.
    pub dense_layers: Vec<usize>,
}
