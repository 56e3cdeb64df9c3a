//! Verdicts by table: each fault is found, named by its key, and nothing else is.

use super::fixture::{file_of, report};
use super::*;
use crate::config::{Layers, load};

#[test]
fn a_good_run_passes_every_check() {
    let report = report("data.val=[\"held.parquet\"]", Purpose::Whole);
    assert!(
        report.findings.iter().all(|finding| finding.status <= Status::Skip),
        "{:?}",
        report.findings
    );
    // What the run has none of was not looked at.
    let skipped = report.findings.iter().filter(|finding| finding.status == Status::Skip);
    let skipped: Vec<&str> = skipped.map(|finding| finding.check.as_str()).collect();
    assert_eq!(
        skipped,
        [
            "engine",
            "balance",
            "async",
            "rollout-correction",
            "routing-replay",
            "images"
        ]
    );
    assert_eq!(report.findings.len(), checks().len());
    assert_eq!(report.verdict(), "safe to run: 0 warnings");
}

#[test]
fn each_fault_is_found_and_named_by_its_key() {
    for (changes, check, status, key) in [
        ("policy.model=", "paths", Status::Fatal, "policy.model"),
        ("run.name=\"../evil\"", "paths", Status::Fatal, "run.name"),
        ("scaffold.name=\"custom\"", "agent", Status::Fatal, "scaffold.name"),
        (
            "scaffold.name=\"custom\" scaffold.command=[\"no-such-agent\"]",
            "agent",
            Status::Fatal,
            "scaffold.name",
        ),
        ("policy.model=\"nowhere\"", "paths", Status::Fatal, "policy.model"),
        ("policy.model=\"hf:org/name\"", "paths", Status::Warn, "policy.model"),
        ("data.train=", "paths", Status::Fatal, "data.train"),
        ("data.val=[\"v.parquet\"]", "paths", Status::Fatal, "data.val"),
        ("data.val=[\"gone.parquet\"]", "paths", Status::Fatal, "data.val"),
        ("data.val=[\"empty.parquet\"]", "paths", Status::Fatal, "data.val"),
        ("data.train=\"foreign.parquet\"", "paths", Status::Fatal, "data.train"),
        ("data.train=\"untested.parquet\"", "paths", Status::Fatal, "data.train"),
        ("data.train=\"tasks\"", "paths", Status::Fatal, "data.train"),
        ("data.train=\"blank.jsonl\"", "paths", Status::Fatal, "data.train"),
        ("data.val=[\"prose.jsonl\"]", "paths", Status::Fatal, "data.val"),
        ("data.val=[\"train.parquet\"]", "validation", Status::Warn, "data.val"),
        ("train.lr=10", "schedule", Status::Warn, "train.lr"),
        (
            "train.routing_replay=\"r3\"",
            "model-files",
            Status::Fatal,
            "train.routing_replay",
        ),
        (
            "train.algorithm=\"grpo\" train.gamma=0.5",
            "batch",
            Status::Fatal,
            "train.gamma",
        ),
        (
            "train.rollout_correction.rollout_rs=[\"token_k2\"] train.rollout_correction.rollout_rs_threshold=[\"1_2\"]",
            "batch",
            Status::Fatal,
            "train.rollout_correction.rollout_rs_threshold",
        ),
        (
            "policy.model=\"cut\" policy.tokenizer=\"model\"",
            "model-files",
            Status::Fatal,
            "policy.model",
        ),
        (
            "policy.model=\"narrow\" policy.tokenizer=\"model\"",
            "model-files",
            Status::Fatal,
            "policy.tokenizer",
        ),
        (
            "policy.tokenizer=\"garbled\" policy.chat_template=\"model/template.jinja\"",
            "model-files",
            Status::Fatal,
            "policy.tokenizer",
        ),
        ("sandbox.backend=\"docker\"", "paths", Status::Fatal, "data.train"),
        (
            "sandbox.registry=\"reg/\"",
            "sandbox",
            Status::Fatal,
            "sandbox.registry",
        ),
        ("sandbox.docker.starts=2", "sandbox", Status::Fatal, "sandbox.docker"),
        ("run.dir=\"train.parquet\"", "paths", Status::Fatal, "run.dir"),
        ("engine.kind=\"replay\"", "paths", Status::Fatal, "engine.kind"),
        ("engine.kind=\"vllm\"", "engine", Status::Fatal, "engine.kind"),
        (
            "engine.endpoints=[\"http://a:1\"]",
            "engine",
            Status::Fatal,
            "engine.endpoints",
        ),
        (
            "engine.kind=\"vllm\" engine.endpoints=[\"a:1\"]",
            "engine",
            Status::Fatal,
            "engine.endpoints",
        ),
        (
            "engine.kind=\"sglang\" engine.endpoints=[\"http://a:1\",\"http://a:1\"]",
            "engine",
            Status::Fatal,
            "engine.endpoints",
        ),
        (
            "engine.kind=\"vllm\" engine.endpoints=[\"http://a:1\"] engine.api_key_env=\"NO_SUCH_KEY\"",
            "engine",
            Status::Fatal,
            "engine.api_key_env",
        ),
        (
            "policy.chat_template=\"model/config.json\"",
            "chat-template",
            Status::Fatal,
            "policy.chat_template",
        ),
        (
            "policy.max_model_len=9000",
            "token-budget",
            Status::Fatal,
            "policy.max_model_len",
        ),
        (
            "policy.max_model_len=3000",
            "token-budget",
            Status::Fatal,
            "data.max_response_tokens",
        ),
        (
            "train.max_tokens_per_micro_batch=3071",
            "token-budget",
            Status::Fatal,
            "train.max_tokens_per_micro_batch",
        ),
        ("async.staleness=0.5", "async", Status::Fatal, "async.staleness"),
        (
            "async.enabled=true async.max_queue=63",
            "async",
            Status::Fatal,
            "async.max_queue",
        ),
        (
            "async.enabled=true rollout.tail_kill.grace=\"1s\"",
            "async",
            Status::Fatal,
            "rollout.tail_kill",
        ),
        (
            "async.enabled=true rollout.groups_per_step=4 train.mini_batch=2 async.require_batches=3",
            "async",
            Status::Warn,
            "rollout.groups_per_step",
        ),
        ("rollout.group_size=1", "batch", Status::Fatal, "rollout.group_size"),
        ("rollout.group_size=2", "batch", Status::Warn, "rollout.group_size"),
        ("train.mini_batch=48", "batch", Status::Fatal, "train.mini_batch"),
        ("train.mini_batch=128", "batch", Status::Fatal, "train.mini_batch"),
        (
            "train.loss_agg_mode=\"token-mean\"",
            "batch",
            Status::Fatal,
            "train.loss_agg_mode",
        ),
        (
            "rollout.dynamic_sampling=true",
            "batch",
            Status::Fatal,
            "rollout.dynamic_sampling",
        ),
        ("rollout.temperature=0", "batch", Status::Fatal, "rollout.temperature"),
        ("rollout.top_p=0.9", "batch", Status::Fatal, "rollout.top_p"),
        ("train.lr=0", "schedule", Status::Fatal, "train.lr"),
        ("train.warmup=100", "schedule", Status::Fatal, "train.warmup"),
        (
            "train.scheduler=\"cosine\"",
            "schedule",
            Status::Fatal,
            "train.scheduler",
        ),
        ("run.seed=42", "validation", Status::Warn, "data.val"),
        (
            "data.val=[\"held.parquet\"] eval.every=0 eval.before_train=false",
            "validation",
            Status::Warn,
            "eval.every",
        ),
        (
            "engine.tool_parser=\"mistral\"",
            "tool-parser",
            Status::Fatal,
            "engine.tool_parser",
        ),
        (
            "scaffold.env.HF_TOKEN=\"hf_abcdefghijkl\"",
            "secrets",
            Status::Fatal,
            "scaffold.env.HF_TOKEN",
        ),
    ] {
        let report = report(changes, Purpose::Whole);
        let wrong: Vec<_> = report
            .findings
            .iter()
            // That the file names no validation is told of each, and is a row of its own.
            .filter(|finding| finding.status > Status::Skip && (finding.check != "validation" || check == "validation"))
            .collect();
        assert_eq!(wrong.len(), 1, "{changes}: {wrong:?}");
        assert_eq!((wrong[0].check.as_str(), wrong[0].status), (check, status), "{changes}");
        assert_eq!(wrong[0].key.as_deref(), Some(key), "{changes}");
        assert!(wrong[0].help.is_some(), "{changes}");
        let line = file_of(changes)
            .lines()
            .position(|line| line.starts_with(&format!("{key} = ")));
        if let Some(line) = line {
            let place = wrong[0].location.as_deref().unwrap_or_default();
            assert!(place.ends_with(&format!("run.toml:{}", line + 1)), "{changes}: {place}");
        }
        if status == Status::Fatal {
            assert_eq!(report.findings.last(), Some(wrong[0]), "worst last");
        }
        assert!(
            !wrong[0].line.as_deref().unwrap_or_default().contains("hf_"),
            "a secret is never shown"
        );
    }
}

#[test]
fn a_fault_of_a_file_names_the_file_and_what_is_wrong_with_it() {
    for (changes, says) in [
        ("data.train=\"untested.parquet\"", "tests/test.sh"),
        ("data.train=\"blank.jsonl\"", "blank.jsonl names no task: it is empty"),
        (
            "data.train=\"prose.jsonl\"",
            "prose.jsonl:2: no JSON object where a record should begin",
        ),
        ("data.train=\"tasks\"", "tasks is a folder, and a file is read"),
        (
            "policy.model=\"cut\" policy.tokenizer=\"model\"",
            "cut/model.safetensors: not a readable safetensors file",
        ),
        ("policy.model=\"narrow\" policy.tokenizer=\"model\"", "vocab_size = 256"),
        (
            "policy.tokenizer=\"garbled\" policy.chat_template=\"model/template.jinja\"",
            "garbled/tokenizer.json` is not usable",
        ),
    ] {
        let report = report(changes, Purpose::Whole);
        let detail = &report.findings.last().unwrap().detail;
        assert!(detail.contains(says), "{detail}");
    }
    let by_name = report("policy.model=\"Qwen/Qwen3-8B\"", Purpose::Whole);
    let help = by_name.findings.last().unwrap().help.clone().unwrap();
    assert!(help.contains("or `hf:Qwen/Qwen3-8B`"), "{help}");
}

#[test]
fn written_keys_are_located() {
    let report = report("rollout.group_size=1 data.val=[\"held.parquet\"]", Purpose::Whole);
    let last = report.findings.last().unwrap();
    assert!(last.location.as_deref().unwrap().contains("run.toml:"), "{last:?}");
    assert_eq!(last.line.as_deref(), Some("rollout.group_size = 1"));
    assert_eq!(report.verdict(), "not safe to run: 1 fatal, 0 warnings");
}

#[test]
fn a_purpose_asks_only_for_what_it_needs() {
    assert!(!report("data.train=", Purpose::Train { from_shards: false }).is_safe());
    assert!(report("data.train=", Purpose::Train { from_shards: true }).is_safe());
    assert!(report("engine.kind=\"vllm\"", Purpose::Train { from_shards: true }).is_safe());
    assert!(report("data.train=", Purpose::Rollout { tasks_given: true }).is_safe());
    assert!(!report("data.train=", Purpose::Evaluate).is_safe());
    assert!(report("data.train= data.val=[\"held.parquet\"]", Purpose::Evaluate).is_safe());
    assert!(
        report(
            "train.lr=0 rollout.group_size=1",
            Purpose::Rollout { tasks_given: false }
        )
        .is_safe()
    );
}

#[test]
fn only_runs_what_is_named() {
    let run = load(&Layers::text("")).unwrap();
    let report = run_static(
        Context {
            run: &run,
            purpose: Purpose::Whole,
        },
        &["schedule".to_owned()],
    );
    assert_eq!(report.findings.len(), 1);
    assert_eq!(ids()[0], "paths");
}
