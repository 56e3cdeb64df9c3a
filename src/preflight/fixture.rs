//! A run that passes every check, and what is changed in it.

use super::*;
use crate::config::{Layers, load};
use crate::task::{IndexRow, TaskIndex};

/// A folder with a model and tasks that pass.
fn fixture() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("model");
    std::fs::create_dir(&model).unwrap();
    let policy = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/quickstart/policy");
    for name in ["tokenizer.json", "tokenizer_config.json"] {
        std::fs::copy(policy.join(name), model.join(name)).unwrap();
    }
    let template: serde_json::Value =
        serde_json::from_slice(&std::fs::read(policy.join("tokenizer_config.json")).unwrap()).unwrap();
    std::fs::write(
        model.join("template.jinja"),
        template["chat_template"].as_str().unwrap(),
    )
    .unwrap();
    save(512, &model);
    save(256, &folder.path().join("narrow"));
    let cut = folder.path().join("cut");
    save(512, &cut);
    let weights = std::fs::read(cut.join("model.safetensors")).unwrap();
    std::fs::write(cut.join("model.safetensors"), &weights[..weights.len() / 2]).unwrap();
    std::fs::create_dir(folder.path().join("garbled")).unwrap();
    std::fs::write(folder.path().join("garbled/tokenizer.json"), "{}").unwrap();
    for task in ["one", "untested"] {
        std::fs::create_dir_all(folder.path().join(task).join("tests")).unwrap();
        std::fs::write(folder.path().join(task).join("instruction.md"), "mend").unwrap();
    }
    std::fs::write(folder.path().join("one/tests/test.sh"), "").unwrap();
    std::fs::create_dir_all(folder.path().join("one/environment/files")).unwrap();
    std::fs::write(folder.path().join("foreign.parquet"), "no parquet").unwrap();
    let row = |id: &str| IndexRow {
        instance_id: id.to_owned(),
        task_path: id.to_owned(),
        ..IndexRow::default()
    };
    let index = |name: &str, ids: &[&str]| {
        let rows: Vec<_> = ids.iter().map(|id| row(id)).collect();
        TaskIndex::write(&folder.path().join(name), &rows).unwrap();
    };
    index("train.parquet", &["one"]);
    index("held.parquet", &["one"]);
    std::fs::create_dir(folder.path().join("tasks")).unwrap();
    index("tasks/index.parquet", &["one"]);
    std::fs::write(folder.path().join("blank.jsonl"), "\n \n").unwrap();
    std::fs::write(folder.path().join("prose.jsonl"), "\nWhat to do\n").unwrap();
    index("gone.parquet", &["one", "two"]);
    index("untested.parquet", &["one", "untested"]);
    index("empty.parquet", &[]);
    folder
}

/// A policy of one small layer with its tokenizer files.
fn save(vocab_size: usize, folder: &std::path::Path) {
    let config = lego_policy::ModelConfig {
        hidden_size: 16,
        num_hidden_layers: 1,
        intermediate_size: 16,
        head_dim: 4,
        ..lego_policy::ModelConfig::tiny(vocab_size)
    };
    std::fs::create_dir_all(folder).unwrap();
    lego_policy::Weights::init(config, 1).unwrap().save(folder).unwrap();
}

const GOOD: &str = "policy.model=\"model\" data.train=\"train.parquet\" data.max_prompt_tokens=1024 \
                    data.max_response_tokens=2048 train.max_tokens_per_micro_batch=4096 run.dir=\"runs\"";

/// Each later assignment of a key wins, as on the command line; written as a file so that paths start from it.
pub(super) fn file_of(changes: &str) -> String {
    let mut keys = std::collections::BTreeMap::new();
    for pair in GOOD.split_whitespace().chain(changes.split_whitespace()) {
        let (key, value) = pair.split_once('=').unwrap();
        keys.insert(key, value);
    }
    let written = keys.iter().filter(|(_, value)| !value.is_empty());
    let lines: Vec<_> = written.map(|(key, value)| format!("{key} = {value}")).collect();
    lines.join("\n")
}

pub(super) fn report(changes: &str, purpose: Purpose) -> Report {
    let folder = fixture();
    let text = file_of(changes);
    let path = folder.path().join("run.toml");
    std::fs::write(&path, text).unwrap();
    let run = load(&Layers::file(&path)).unwrap();
    run_static(Context { run: &run, purpose }, &[])
}
