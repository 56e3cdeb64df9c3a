//! The committed schema and the loader accept and refuse the same files.

use lego::config::{Layers, load, run_schema, starter};

fn schema_accepts(text: &str) -> bool {
    let value: toml::Value = toml::from_str(text).unwrap();
    let document = serde_json::to_value(value).unwrap();
    jsonschema::validator_for(run_schema()).unwrap().is_valid(&document)
}

#[test]
fn schema_and_loader_agree() {
    for text in [
        starter(),
        "",
        "[rollout]\ngroup_size = 4",
        "[sandbox]\ntimeouts = { agent = \"10m\" }\nmemory = \"8GiB\"",
        "[policy]\ndevice = \"cuda:1\"",
        "[scaffold]\nenv = { A = \"1\" }",
        "[train.lora]\nrank = 8\ntargets = [\"q_proj\", \"v_proj\"]",
        "[train]\nalgorithm = \"dr_grpo\"\nloss_agg_mode = \"token-mean\"",
    ] {
        assert!(schema_accepts(text), "the schema refuses:\n{text}");
        assert!(load(&Layers::text(text)).is_ok(), "the loader refuses:\n{text}");
    }
    for text in [
        "[rollout]\ngroup_sise = 4",
        "[rollout]\ngroup_size = 0",
        "[rollout]\ngroup_size = \"4\"",
        "[rollout]\ntop_p = 1.5",
        "[rollout]\nflush = \"30\"",
        "[policy]\ndevice = \"gpu\"",
        "[engine]\nweight_sync = \"lora\"",
        "[scaffold]\nname = \"qwen-code\"",
        "[train]\nalgorithm = \"grppo\"",
        "[filter]\ndrop_outcomes = [\"nope\"]",
        "[train]\nlora = { rank = 0 }",
        "[train.lora]\ntargets = [\"lm_head\"]",
    ] {
        assert!(!schema_accepts(text), "the schema accepts:\n{text}");
        assert!(load(&Layers::text(text)).is_err(), "the loader accepts:\n{text}");
    }
}
