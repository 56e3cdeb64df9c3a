//! Names, shapes and order of a decoder's tensors, as Hugging Face lays them out.
//!
//! The one place that knows the names; everything else goes by [`Role`] or by position in this order.

use crate::config::{Family, ModelConfig};

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
    /// Names on disk of what lies one behind the other here, `shape[0]` of them; empty: the tensor is stored as it is.
    pub(crate) parts: Vec<String>,
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
    /// With routed experts; gate, up and down are then those of all experts, `[experts, out, in]`.
    pub(crate) router: Option<usize>,
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
    /// The embedding's own position where the head is tied; a critic's is one row.
    pub(crate) head: usize,
    /// The bias of a critic's head.
    pub(crate) value_bias: Option<usize>,
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
    let mut put_parts = |name: String, shape: Vec<usize>, role: Role, parts: Vec<String>| {
        list.push(Parameter {
            name,
            shape,
            role,
            parts,
        });
        list.len() - 1
    };
    let (hidden, query, key) = (
        c.hidden_size,
        c.num_attention_heads * c.head_dim,
        c.num_key_value_heads * c.head_dim,
    );
    let embedding = put_parts(
        "model.embed_tokens.weight".to_owned(),
        vec![c.vocab_size, hidden],
        Role::Matrix,
        Vec::new(),
    );
    let layers = (0..c.num_hidden_layers)
        .map(|i| {
            let at = |part: &str| format!("model.layers.{i}.{part}");
            let mut put = |part: &str, shape: Vec<usize>, role| put_parts(at(part), shape, role, Vec::new());
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
            let (router, gate, up, down) = match c.experts_of(i) {
                None => {
                    let inner = c.intermediate_size;
                    let mut matrix = |part: &str, shape| put(&format!("mlp.{part}.weight"), shape, Role::Matrix);
                    let gate = matrix("gate_proj", vec![inner, hidden]);
                    let up = matrix("up_proj", vec![inner, hidden]);
                    (None, gate, up, matrix("down_proj", vec![hidden, inner]))
                }
                Some(moe) => {
                    let (block, [gate, up, down]) = expert_names(c.family);
                    let router = put(&format!("{block}.gate.weight"), vec![moe.experts, hidden], Role::Matrix);
                    let mut stacked = |part: &str, name: &str, out, from| {
                        let one = |expert| at(&format!("{block}.experts.{expert}.{name}.weight"));
                        let parts = (0..moe.experts).map(one).collect();
                        let name = at(&format!("mlp.experts.{part}.weight"));
                        put_parts(name, vec![moe.experts, out, from], Role::Matrix, parts)
                    };
                    let inner = moe.intermediate_size;
                    let gate = stacked("gate_proj", gate, inner, hidden);
                    let up = stacked("up_proj", up, inner, hidden);
                    (Some(router), gate, up, stacked("down_proj", down, hidden, inner))
                }
            };
            LayerSlots {
                attention_norm,
                query,
                key,
                value,
                output,
                query_norm,
                key_norm,
                mlp_norm,
                router,
                gate,
                up,
                down,
            }
        })
        .collect();
    let mut put = |name: &str, shape, role| put_parts(name.to_owned(), shape, role, Vec::new());
    let final_norm = put("model.norm.weight", vec![hidden], Role::Gain);
    let (head, value_bias) = if c.value_head {
        let head = put("score.weight", vec![1, hidden], Role::Matrix);
        (head, Some(put("score.bias", vec![1], Role::Bias)))
    } else if c.tie_word_embeddings {
        (embedding, None)
    } else {
        let shape = vec![c.vocab_size, hidden];
        (put("lm_head.weight", shape, Role::Matrix), None)
    };
    (
        list,
        Slots {
            embedding,
            layers,
            final_norm,
            head,
            value_bias,
        },
    )
}

fn query_width(c: &ModelConfig) -> usize {
    c.num_attention_heads * c.head_dim
}

fn key_width(c: &ModelConfig) -> usize {
    c.num_key_value_heads * c.head_dim
}

/// What a layer's experts are called on disk: the block, and gate, up and down in it.
fn expert_names(family: Family) -> (&'static str, [&'static str; 3]) {
    if family == Family::Mixtral {
        ("block_sparse_moe", ["w1", "w3", "w2"])
    } else {
        ("mlp", ["gate_proj", "up_proj", "down_proj"])
    }
}
