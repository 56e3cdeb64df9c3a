//! Algorithms that need more than a group of episodes: a critic, a greedy episode, recorded experts.

use std::collections::BTreeMap;
use std::path::Path;

use lego_policy::{Family, HostTensor, ModelConfig, Moe, Weights};
use serde_json::Value;

use super::{consumed, lego, lines, quickstart, succeeded};

fn train(steps: &str, runs: &Path, set: &[&str]) -> Vec<Value> {
    let toml = quickstart();
    succeeded(&lego(&["train", toml.to_str().unwrap(), "--steps", steps], runs, set));
    lines(&runs.join("quickstart/metrics.jsonl"))
}

#[test]
fn ppo_goes_on_with_its_critic_as_if_it_had_not_been_interrupted() {
    let set = ["train.algorithm=ppo", "train.critic.lr=1e-3"];
    let (whole, cut) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let expected = train("2", whole.path(), &set);
    train("1", cut.path(), &set);
    let critic = cut.path().join("quickstart/checkpoints/latest/critic");
    for file in ["model.safetensors", "config.json", "optimizer.safetensors"] {
        assert!(critic.join(file).is_file(), "{file}");
    }
    let found = train("2", cut.path(), &set);
    for name in [
        "critic/score/mean",
        "critic/vf_loss",
        "critic/grad_norm",
        "critic/values/max",
        "actor/grad_norm",
        "actor/loss",
    ] {
        let (a, b) = (expected[1][name].as_f64().unwrap(), found[1][name].as_f64().unwrap());
        assert!(
            (a - b).abs() <= 1e-6 * a.abs().max(1.0),
            "{name}: {a}, after a resume {b}"
        );
    }
    assert!(found[0]["critic/values/max"] == 0.0 && found[1]["critic/values/max"] != 0.0);
}

#[test]
fn remax_samples_a_greedy_episode_for_each_group_and_trains_on_the_others() {
    let runs = tempfile::tempdir().unwrap();
    let lines = train("1", runs.path(), &["train.algorithm=remax"]);
    assert_eq!(lines[0]["training/episodes"], 8.0);
    assert_eq!(consumed(&runs.path().join("quickstart")).len(), 10);
}

/// The quickstart's policy with four copies of each MLP as experts, told apart by nothing but the router: what the
/// experts give together is what the MLP gives.
fn mixture(folder: &Path) {
    let dense = Weights::load(&quickstart().with_file_name("policy")).unwrap();
    let config = ModelConfig {
        family: Family::Mixtral,
        moe: Some(Moe {
            experts: 4,
            per_token: 2,
            intermediate_size: dense.config().intermediate_size,
            norm_topk_prob: true,
            dense_layers: Vec::new(),
        }),
        ..dense.config().clone()
    };
    let fresh = Weights::init(config.clone(), 3).unwrap();
    let tensors: BTreeMap<String, HostTensor> = fresh
        .iter()
        .map(|(name, tensor)| {
            let of_dense = dense.get(&name.replace(".experts.", "."));
            let data = match of_dense {
                Some(one) if name.contains(".experts.") => one.data.repeat(4).into(),
                Some(one) => one.data.clone(),
                None => tensor.data.clone(),
            };
            let shape = tensor.shape.clone();
            (name.to_owned(), HostTensor { shape, data })
        })
        .collect();
    Weights::from_tensors(config, tensors).unwrap().save(folder).unwrap();
    for entry in std::fs::read_dir(quickstart().with_file_name("policy")).unwrap() {
        let from = entry.unwrap().path();
        let to = folder.join(from.file_name().unwrap());
        if !to.exists() {
            std::fs::copy(from, to).unwrap();
        }
    }
}

#[test]
fn experts_are_recorded_while_sampling_stored_and_replayed_in_the_update() {
    let model = tempfile::tempdir().unwrap();
    mixture(model.path());
    let model = format!("policy.model={}", model.path().display());
    let set = |replay| [model.as_str(), replay, "train.bypass_old_logprob=false"];
    let runs = tempfile::tempdir().unwrap();
    let lines = train("2", runs.path(), &set("train.routing_replay=r3"));
    let trained = lines
        .iter()
        .filter(|line| line["actor/grad_norm"].as_f64().is_some_and(|norm| norm > 0.0));
    let mut seen = 0;
    for line in trained {
        seen += 1;
        assert_eq!(line["rollout/moe/coverage"], 1.0, "{line}");
        assert_eq!(line["rollout/moe/disjoint"], 0.0, "{line}");
        assert!(line["rollout/moe/load_max"].as_f64().unwrap() >= 1.0, "{line}");
        let pearson = line["training/rollout_actor_probs_pearson_corr"].as_f64().unwrap();
        assert!(pearson >= 0.9999, "{pearson}");
    }
    assert!(seen > 0, "{lines:?}");
    let weights = Weights::load(&runs.path().join("quickstart/checkpoints/latest")).unwrap();
    assert_eq!(weights.config().family, Family::Mixtral);
}

#[test]
fn routes_of_a_dense_model_are_refused_before_anything_runs() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let set = ["train.routing_replay=r3"];
    let output = lego(&["train", toml.to_str().unwrap(), "--steps", "1"], runs.path(), &set);
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        !output.status.success() && said.contains("the policy is a dense model"),
        "{said}"
    );
    assert!(!runs.path().join("quickstart/rollouts/000001").exists());
}
