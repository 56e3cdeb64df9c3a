//! Adapters through the whole circle: trained, published merged, kept as PEFT has them, gone on with, exported.

use lego_policy::{LoraSpec, Weights};

use super::{lego, lines, quickstart, succeeded};

const LORA: [&str; 4] = [
    "train.lora={ rank = 4, alpha = 8 }",
    "train.lr=1e-2",
    "train.bypass_old_logprob=false",
    "train.recompute=true",
];

#[test]
fn adapters_train_are_served_merged_and_go_on() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let toml = toml.to_str().unwrap();
    succeeded(&lego(&["train", toml, "--steps", "1"], runs.path(), &LORA));
    let run = runs.path().join("quickstart");
    let first = run.join("checkpoints/step_000001");
    let base = Weights::load(&quickstart().with_file_name("policy")).unwrap();
    let changed = |step: &str| -> Vec<String> {
        let merged = Weights::load(&run.join("checkpoints").join(step)).unwrap();
        let pairs = base.iter().zip(merged.iter()).filter(|(before, after)| before != after);
        pairs.map(|((name, _), _)| name.to_owned()).collect()
    };
    let moved = changed("step_000001");
    assert_eq!(moved.len(), 7 * base.config().num_hidden_layers, "{moved:?}");
    assert!(moved.iter().all(|name| name.ends_with("_proj.weight")), "{moved:?}");
    let spec = LoraSpec::read(&first.join("adapter")).unwrap();
    assert_eq!((spec.rank, spec.alpha, spec.targets.len()), (4, 8.0, 7));
    let (whole, optimizer) = (
        first.join("model.safetensors").metadata().unwrap().len(),
        first.join("optimizer.safetensors").metadata().unwrap().len(),
    );
    assert!(
        optimizer < whole,
        "moments of adapters alone: {optimizer} bytes, the weights have {whole}"
    );

    let output = lego(&["train", toml, "--steps", "2"], runs.path(), &LORA);
    succeeded(&output);
    assert_ne!(
        std::fs::read(first.join("model.safetensors")).unwrap(),
        std::fs::read(run.join("checkpoints/step_000002/model.safetensors")).unwrap()
    );
    // The second step was sampled from the merged weights of the first.
    for line in lines(&run.join("metrics.jsonl")) {
        let pearson = line["training/rollout_actor_probs_pearson_corr"].as_f64().unwrap();
        assert!(pearson >= 0.9999, "{line}");
    }
    for set in [&LORA[1..], &["train.lora={ rank = 2, alpha = 8 }"]] {
        let output = lego(&["train", toml, "--steps", "3"], runs.path(), set);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("another `train.lora.rank`"), "{said}");
    }

    let out = runs.path().join("exported");
    let output = lego(&["train", toml, "--export", out.to_str().unwrap()], runs.path(), &LORA);
    succeeded(&output);
    let exported = Weights::load(&out).unwrap();
    let kept = Weights::load(&run.join("checkpoints/latest")).unwrap();
    assert!(exported.iter().zip(kept.iter()).all(|(a, b)| a == b));
    assert!(!out.join("adapter").exists());
}

#[test]
fn adapters_of_maps_that_a_model_lacks_are_refused() {
    let runs = tempfile::tempdir().unwrap();
    let folder = runs.path().join("experts");
    let shape = lego_policy::ModelConfig {
        family: lego_policy::Family::Qwen3Moe,
        qk_norm: true,
        moe: Some(lego_policy::Moe {
            experts: 4,
            per_token: 2,
            intermediate_size: 16,
            norm_topk_prob: true,
            dense_layers: Vec::new(),
        }),
        ..base_shape()
    };
    std::fs::create_dir(&folder).unwrap();
    Weights::init(shape, 1).unwrap().save(&folder).unwrap();
    let policy = quickstart().with_file_name("policy");
    let set = [
        format!("policy.model={}", folder.display()),
        format!("policy.tokenizer={}", policy.display()),
        "train.lora.targets=[\"down_proj\"]".to_owned(),
    ];
    let set: Vec<&str> = set.iter().map(String::as_str).collect();
    let output = lego(
        &["train", quickstart().to_str().unwrap(), "--steps", "1"],
        runs.path(),
        &set,
    );
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("down_proj has no matrix of its own"), "{said}");
}

/// The quickstart's shape.
fn base_shape() -> lego_policy::ModelConfig {
    let policy = quickstart().with_file_name("policy");
    Weights::load(&policy).unwrap().config().clone()
}
