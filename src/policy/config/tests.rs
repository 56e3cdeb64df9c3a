//! What is written reads back; what is refused is named.

use super::*;

#[test]
fn what_is_written_reads_back() {
    for family in [Family::Llama, Family::Qwen2, Family::Qwen3] {
        let config = ModelConfig {
            family,
            attention_bias: family == Family::Qwen2,
            qk_norm: family == Family::Qwen3,
            bos_token_id: Some(1),
            eos_token_ids: vec![2, 7],
            dtype: StoredType::Bf16,
            ..ModelConfig::tiny(300)
        };
        assert_eq!(ModelConfig::from_json(&config.to_json()).unwrap(), config);
    }
}

#[test]
fn refusals_name_the_key() {
    let base: Value = serde_json::from_str(&ModelConfig::tiny(300).to_json()).unwrap();
    let with = |key: &str, value: Value| {
        let mut changed = base.clone();
        changed[key] = value;
        ModelConfig::from_json(&changed.to_string()).unwrap_err().to_string()
    };
    assert!(with("model_type", json!("mamba")).contains("`model_type` = \"mamba\" is not supported"));
    assert!(with("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0})).contains("`rope_scaling`"));
    assert!(with("hidden_size", json!("big")).contains("`hidden_size` should be a whole number"));
    assert!(with("hidden_size", Value::Null).contains("`hidden_size` is missing"));
    assert!(with("num_key_value_heads", json!(3)).contains("`num_key_value_heads` = 3 does not divide 4"));
    assert!(with("head_dim", json!(31)).contains("`head_dim`"));
    assert!(with("hidden_act", json!("gelu")).contains("`hidden_act`"));
    assert!(with("dtype", json!("int8")).contains("`dtype`"));
    assert!(
        ModelConfig::from_json("[1]")
            .unwrap_err()
            .to_string()
            .contains("not a JSON object")
    );
}

#[test]
fn tiny_has_the_size_it_promises() {
    assert_eq!(ModelConfig::tiny(512).parameter_count(), 853_120);
}
