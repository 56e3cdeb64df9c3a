//! Names, shapes and order of a decoder's tensors, as Hugging Face lays them out.
//!
//! The one place that knows the names; everything else goes by [`Role`] or by position in this order.

use crate::config::ModelConfig;

/// What a tensor is, for initial values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// A matrix, `[out, in]` (the embedding `[vocab, hidden]`).
    Matrix,
    /// The gain of an RMS norm.
    Gain,
    /// A bias.
    Bias,
}

/// One trained tensor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    pub(crate) shape: Vec<usize>,
    pub(crate) role: Role,
}

/// Positions of a layer's tensors in the list of [`parameters`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerSlots {
    pub(crate) attention_norm: usize,
    pub(crate) query: Projection,
    pub(crate) key: Projection,
    pub(crate) value: Projection,
    pub(crate) output: Projection,
    pub(crate) query_norm: Option<usize>,
    pub(crate) key_norm: Option<usize>,
    pub(crate) mlp_norm: usize,
    pub(crate) gate: usize,
    pub(crate) up: usize,
    pub(crate) down: usize,
}

/// A linear map's weight and, where the family has one, bias.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Projection {
    pub(crate) weight: usize,
    pub(crate) bias: Option<usize>,
}

/// Positions of all tensors.
#[derive(Clone, Debug)]
pub(crate) struct Slots {
    pub(crate) embedding: usize,
    pub(crate) layers: Vec<LayerSlots>,
    pub(crate) final_norm: usize,
    /// The embedding's own position where the head is tied.
    pub(crate) head: usize,
}

/// All tensors in order; with tied embeddings there is no `lm_head.weight`.
pub(crate) fn parameters(config: &ModelConfig) -> Vec<Parameter> {
    build(config).0
}

/// Where each tensor is.
pub(crate) fn slots(config: &ModelConfig) -> Slots {
    build(config).1
}

fn build(c: &ModelConfig) -> (Vec<Parameter>, Slots) {
    let mut list = Vec::new();
    let mut put = |name: String, shape: Vec<usize>, role: Role| {
        list.push(Parameter { name, shape, role });
        list.len() - 1
    };
    let (hidden, query, key) = (
        c.hidden_size,
        c.num_attention_heads * c.head_dim,
        c.num_key_value_heads * c.head_dim,
    );
    let embedding = put(
        "model.embed_tokens.weight".to_owned(),
        vec![c.vocab_size, hidden],
        Role::Matrix,
    );
    let layers = (0..c.num_hidden_layers)
        .map(|i| {
            let mut put = |part: &str, shape: Vec<usize>, role| put(format!("model.layers.{i}.{part}"), shape, role);
            let mut projection = |part: &str, out: usize, from: usize, bias: bool| Projection {
                weight: put(&format!("self_attn.{part}.weight"), vec![out, from], Role::Matrix),
                bias: bias.then(|| put(&format!("self_attn.{part}.bias"), vec![out], Role::Bias)),
            };
            let query = projection("q_proj", query, hidden, c.attention_bias);
            let key = projection("k_proj", key, hidden, c.attention_bias);
            let value = projection("v_proj", key_width(c), hidden, c.attention_bias);
            let output = projection("o_proj", hidden, query_width(c), c.output_bias());
            let mut norm = |part: &str, width| put(&format!("{part}.weight"), vec![width], Role::Gain);
            let attention_norm = norm("input_layernorm", hidden);
            let mlp_norm = norm("post_attention_layernorm", hidden);
            let query_norm = c.qk_norm.then(|| norm("self_attn.q_norm", c.head_dim));
            let key_norm = c.qk_norm.then(|| norm("self_attn.k_norm", c.head_dim));
            let mut matrix = |part: &str, shape| put(&format!("mlp.{part}.weight"), shape, Role::Matrix);
            let gate = matrix("gate_proj", vec![c.intermediate_size, hidden]);
            let up = matrix("up_proj", vec![c.intermediate_size, hidden]);
            let down = matrix("down_proj", vec![hidden, c.intermediate_size]);
            LayerSlots {
                attention_norm,
                query,
                key,
                value,
                output,
                query_norm,
                key_norm,
                mlp_norm,
                gate,
                up,
                down,
            }
        })
        .collect();
    let final_norm = put("model.norm.weight".to_owned(), vec![hidden], Role::Gain);
    let head = if c.tie_word_embeddings {
        embedding
    } else {
        put("lm_head.weight".to_owned(), vec![c.vocab_size, hidden], Role::Matrix)
    };
    (
        list,
        Slots {
            embedding,
            layers,
            final_norm,
            head,
        },
    )
}

fn query_width(c: &ModelConfig) -> usize {
    c.num_attention_heads * c.head_dim
}

fn key_width(c: &ModelConfig) -> usize {
    c.num_key_value_heads * c.head_dim
}
