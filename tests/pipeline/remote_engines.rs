//! Runs on servers in other processes: weights go through folders, tokens come back with their versions.

use std::path::{Path, PathBuf};
use std::process::Output;

use super::servers::{Fault, Peer};
use super::{consumed, lego, lines, quickstart, succeeded};

/// Some of what the policy writes loops for ever.
const AGENT_TIMEOUT: &str = "sandbox.timeouts.agent=20s";

fn policy() -> PathBuf {
    quickstart().with_file_name("policy")
}

/// A command on these servers.
pub(super) fn on(peers: &[&str], arguments: &[&str], runs: &Path, set: &[&str]) -> Output {
    let endpoints = format!("engine.endpoints={peers:?}");
    let set: Vec<&str> = ["engine.kind=vllm", endpoints.as_str(), AGENT_TIMEOUT]
        .into_iter()
        .chain(set.iter().copied())
        .collect();
    lego(arguments, runs, &set)
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_run_trains_on_servers_of_which_one_dies() {
    let runs = tempfile::tempdir().unwrap();
    let peers = [Fault::None, Fault::DiesAt(9), Fault::None].map(|fault| Peer::start(&policy(), fault));
    let urls: Vec<&str> = peers.iter().map(|peer| peer.url.as_str()).collect();
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "3"];
    let output = on(&urls, &arguments, runs.path(), &["train.bypass_old_logprob=false"]);
    succeeded(&output);
    let run = runs.path().join("quickstart");
    assert_eq!(consumed(&run).len(), 24);
    let metrics = lines(&run.join("metrics.jsonl"));
    assert_eq!(metrics.len(), 3);
    for step in &metrics {
        // The servers sampled by the very weights that the trainer holds, in the later steps too.
        let pearson = step["training/rollout_actor_probs_pearson_corr"].as_f64().unwrap();
        assert!(pearson >= 0.9999, "{step}");
        assert_eq!(step["rollout/delivered_fraction/min"], 1.0, "a sampled token was lost");
    }
    // Two updates a step, published at its end.
    let weights = |name: &str| run.join("weights").join(name);
    let (loaded, label) = peers[0].loaded();
    assert_eq!(loaded.first(), Some(&weights("v0_0")));
    assert_eq!(loaded.len(), 4, "at the start and after each step: {loaded:?}");
    let newest = format!("v{}", label.replace('.', "_"));
    assert_eq!(loaded.last(), Some(&weights(&newest)));
    let mut kept: Vec<PathBuf> = std::fs::read_dir(run.join("weights"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    kept.sort();
    assert_eq!(kept, loaded[2..], "the last two are kept");
    assert!(weights(&newest).join("model.safetensors").is_file() && weights(&newest).join("tokenizer.json").is_file());
    assert_eq!(peers[2].loaded().1, label);
    // It was taken out, and its sessions moved.
    assert_eq!(peers[1].generations(), 9);
    assert!(peers[0].generations() > 9 && peers[2].generations() > 9);
}

#[test]
fn no_reward_comes_of_waiting_for_a_server_that_is_gone() {
    let runs = tempfile::tempdir().unwrap();
    let peer = Peer::start(&policy(), Fault::DiesAt(40));
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "3"];
    // The agents' time is over before the engine gives up.
    let set = ["sandbox.timeouts.agent=3s", "rollout.max_retries=0"];
    let output = on(&[&peer.url], &arguments, runs.path(), &set);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    for step in lines(&runs.path().join("quickstart/metrics.jsonl")) {
        assert!(step["rollout/sampled_tokens"].as_f64() > Some(0.0), "{step}");
    }
}

#[test]
fn a_run_trains_on_servers_of_the_other_kind() {
    let runs = tempfile::tempdir().unwrap();
    let peer = Peer::start(&policy(), Fault::None);
    let toml = quickstart();
    let arguments = ["train", toml.to_str().unwrap(), "--steps", "2"];
    let set = ["engine.kind=sglang", "train.bypass_old_logprob=false"];
    succeeded(&on(&[&peer.url], &arguments, runs.path(), &set));
    let run = runs.path().join("quickstart");
    assert_eq!(consumed(&run).len(), 16);
    for step in &lines(&run.join("metrics.jsonl")) {
        let pearson = step["training/rollout_actor_probs_pearson_corr"].as_f64().unwrap();
        assert!(pearson >= 0.9999, "{step}");
        assert_eq!(step["rollout/delivered_fraction/min"], 1.0, "a sampled token was lost");
    }
    assert_eq!(peer.loaded().0.len(), 3, "at the start and after each step");
}

#[test]
fn servers_are_given_weights_one_after_the_other_while_the_others_sample() {
    for partial in ["true", "false"] {
        let runs = tempfile::tempdir().unwrap();
        let peers = [Fault::None, Fault::None].map(|fault| Peer::start(&policy(), fault));
        let urls: Vec<&str> = peers.iter().map(|peer| peer.url.as_str()).collect();
        let toml = quickstart();
        let arguments = ["train", toml.to_str().unwrap(), "--async", "--steps", "4"];
        let partial = format!("async.partial_rollout={partial}");
        let set = [
            "engine.weight_sync=rolling",
            "train.bypass_old_logprob=false",
            "async.staleness=1",
            partial.as_str(),
        ];
        succeeded(&on(&urls, &arguments, runs.path(), &set));
        let run = runs.path().join("quickstart");
        assert_eq!(consumed(&run).len(), 4 * 8);
        for step in &lines(&run.join("metrics.jsonl")) {
            assert_eq!(step["rollout/delivered_fraction/min"], 1.0, "a sampled token was lost");
        }
        let ([(one, name), (other, other_name)], kept) = (
            [&peers[0], &peers[1]].map(Peer::loaded),
            std::fs::read_dir(run.join("weights")).unwrap().count(),
        );
        assert_eq!(
            (&one, &name),
            (&other, &other_name),
            "both have served all of them, in order"
        );
        assert!(one.len() >= 4 && one.is_sorted(), "{one:?}");
        assert_eq!(kept, 2);
    }
}

#[test]
fn a_rollout_samples_what_the_servers_serve() {
    let runs = tempfile::tempdir().unwrap();
    let peer = Peer::start(&policy(), Fault::None);
    let ids = runs.path().join("ids.txt");
    std::fs::write(&ids, "train-00000\n").unwrap();
    let (toml, shards) = (quickstart(), runs.path().join("shards"));
    let arguments = [
        "rollout",
        toml.to_str().unwrap(),
        "-o",
        shards.to_str().unwrap(),
        "--tasks",
        ids.to_str().unwrap(),
    ];
    succeeded(&on(
        &[&peer.url],
        &arguments,
        runs.path(),
        &["engine.served_model=quickstart"],
    ));
    assert!(peer.generations() > 4 && peer.loaded().0.is_empty());
}

#[test]
fn a_server_that_cannot_be_used_is_named_with_what_to_do() {
    let runs = tempfile::tempdir().unwrap();
    let toml = quickstart();
    let train = ["train", toml.to_str().unwrap(), "--steps", "1"];
    let good = Peer::start(&policy(), Fault::None);
    let forbids = Peer::start(&policy(), Fault::Forbids);
    let raw = Peer::start(&policy(), Fault::Raw);
    for (url, set, says) in [
        ("http://127.0.0.1:1", "run.name=a", "change `engine.endpoints`"),
        (forbids.url.as_str(), "run.name=b", "--enable-scale-out"),
        (
            raw.url.as_str(),
            "rollout.temperature=0.7",
            "--logprobs-mode processed_logprobs",
        ),
        (
            good.url.as_str(),
            "engine.served_model=qwen",
            "--served-model-name qwen",
        ),
        (good.url.as_str(), "policy.max_model_len=512", "--max-model-len 512"),
    ] {
        // The first server of several is well.
        let several = [good.url.as_str(), url];
        let servers = if url == good.url { &several[1..] } else { &several[..] };
        // It prepares no tasks, and checks the same.
        let output = on(servers, &["serve-proxy", toml.to_str().unwrap()], runs.path(), &[set]);
        let said = said(&output);
        assert_eq!(output.status.code(), Some(3), "{says}: {said}");
        assert!(said.contains(says), "{says}: {said}");
    }
    let output = on(&[], &train, runs.path(), &[]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("engine.endpoints"), "{}", said(&output));
    let output = on(&["http://127.0.0.1:1"], &train, runs.path(), &[]);
    assert_eq!(output.status.code(), Some(3), "{}", said(&output));
    assert!(said(&output).contains("http://127.0.0.1:1/"), "{}", said(&output));
}
