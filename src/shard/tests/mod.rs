//! Shards both ways.

mod damage;
mod grouping;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fs_err as fs;
use jiff::Timestamp;
use proptest::prelude::*;

use super::*;
use crate::trajectory::{
    CaptureAudit, Episode, Experts, FinishReason, Outcome, PolicyVersion, RoutedRows, Segment, Timings, VersionSpan,
};

fn meta() -> ShardMeta {
    ShardMeta {
        run_id: "run".into(),
        producer: "lego 0.1.0".into(),
        tokenizer_sha256: "aa".into(),
        template_sha256: "bb".into(),
        vocab_size: 300,
    }
}

/// A segment of response tokens `(id, sampled, log-prob)` and the versions that sampled them.
fn segment(prompt: Vec<u32>, tokens: &[(u32, bool, f32)], with_logprobs: bool) -> Segment {
    let mut spans: Vec<VersionSpan> = Vec::new();
    for (at, (_, sampled, _)) in tokens.iter().enumerate() {
        let at = at as u32;
        match spans.last_mut().filter(|span| span.end == at && !at.is_multiple_of(5)) {
            _ if !sampled => {}
            Some(span) => span.end += 1,
            None => spans.push(VersionSpan {
                start: at,
                end: at + 1,
                version: PolicyVersion {
                    lineage: 1,
                    update: u64::from(at / 5),
                },
            }),
        }
    }
    let routed = (prompt.len() + tokens.len()).saturating_sub(1).min(3) as u8;
    let rows = RoutedRows {
        start: 0,
        experts: Experts {
            layers: 2,
            top_k: 1,
            count: 256,
        },
        rows: (0..routed).flat_map(|at| [at, at + 1]).collect(),
    };
    Segment {
        prompt_ids: prompt,
        response_ids: tokens.iter().map(|token| token.0).collect(),
        response_mask: tokens.iter().map(|token| u8::from(token.1)).collect(),
        response_logprobs: with_logprobs
            .then(|| tokens.iter().map(|token| if token.1 { token.2 } else { 0.0 }).collect()),
        weight_versions: spans,
        routing: Some(rows).filter(|rows| !rows.rows.is_empty()).into_iter().collect(),
        is_main_agent: true,
    }
}

fn episode(id: &str, step: i32, segments: Vec<Segment>) -> Episode {
    let trained: usize = segments.iter().map(Segment::trained_tokens).sum();
    Episode {
        step,
        group_id: format!("task-{step}").as_str().into(),
        attempt: 1,
        segments,
        reward: Some(1.0),
        rewards: [("reward".to_owned(), 1.0), ("tests".to_owned(), 0.1 + 0.2)].into(),
        audit: CaptureAudit {
            sampled_tokens: trained as u64,
            delivered_fraction: if trained > 0 { 1.0 } else { 0.0 },
            num_calls: 3,
            num_turns: 2,
            num_tool_calls: 1,
            finish_reason: Some(FinishReason::Stop),
            ..CaptureAudit::default()
        },
        hack_flags: vec!["edited-tests".into()],
        started_at: Timestamp::from_microsecond(1_700_000_000_123_456).unwrap(),
        timings: Timings {
            agent_s: 1.5,
            total_s: 2.0,
            ..Timings::default()
        },
        messages: r#"[{"role":"user","content":"é"}]"#.into(),
        ..crate::trajectory::fixture::episode(id)
    }
}

fn simple(id: &str, step: i32) -> Episode {
    episode(
        id,
        step,
        vec![segment(
            vec![1, 2],
            &[(3, true, -0.5), (4, false, 0.0), (5, true, -1e-9)],
            true,
        )],
    )
}

fn writer(root: &Path) -> ShardWriter {
    ShardWriter::new(root, "w0", meta(), WriterOptions::default()).unwrap()
}

fn read(root: &Path) -> Vec<Episode> {
    group_episodes(ShardReader::open(&[root]).unwrap().rows_local().unwrap()).unwrap()
}

fn any_segment() -> impl Strategy<Value = Segment> {
    let tokens = prop::collection::vec((any::<u32>(), any::<bool>(), -20.0f32..0.0), 0..40);
    (prop::collection::vec(any::<u32>(), 1..20), tokens, any::<bool>())
        .prop_map(|(prompt, tokens, with_logprobs)| segment(prompt, &tokens, with_logprobs))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn episodes_read_back_bit_for_bit(parts in prop::collection::vec(prop::collection::vec(any_segment(), 0..4), 1..6)) {
        let dir = tempfile::tempdir().unwrap();
        let episodes: Vec<Episode> =
            parts.into_iter().enumerate().map(|(at, segments)| episode(&format!("e{at}"), 3, segments)).collect();
        let mut writer = writer(dir.path());
        for episode in &episodes {
            writer.push(episode).unwrap();
        }
        prop_assert_eq!(writer.pending(), episodes.len());
        prop_assert_eq!(writer.flush().unwrap(), [dir.path().join("000003/part-w0-000000.parquet")]);
        prop_assert_eq!(read(dir.path()), episodes);
    }
}

#[test]
fn an_episode_without_a_reward_or_ids_keeps_its_reason() {
    let dir = tempfile::tempdir().unwrap();
    let failed = Episode {
        reward: None,
        rewards: [].into(),
        outcome: Outcome::EnvSetupFailed,
        drop_reason: Some("env_setup_failed".into()),
        ..episode("e", 0, vec![])
    };
    let without_ids = episode(
        "f",
        0,
        vec![Segment {
            is_main_agent: true,
            ..Segment::default()
        }],
    );
    let mut writer = writer(dir.path());
    writer.push(&failed).unwrap();
    writer.push(&without_ids).unwrap();
    writer.flush().unwrap();
    assert_eq!(read(dir.path()), [failed, without_ids]);
    let rows = ShardReader::open(&[dir.path()]).unwrap().rows_local().unwrap();
    assert!(
        rows.iter()
            .all(|row| row.prompt_ids.is_none() && row.response_mask.is_none())
    );
    assert_eq!((rows[0].n_segments, rows[1].n_segments), (0, 1));
}

#[test]
fn files_close_by_size_step_and_time_and_numbers_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let options = WriterOptions {
        target_bytes: 1,
        flush_after: Duration::from_hours(1),
    };
    let mut small = ShardWriter::new(dir.path(), "w0", meta(), options).unwrap();
    assert_eq!(small.push(&simple("a", 1)).unwrap().len(), 1);
    let second = small.push(&simple("b", 1)).unwrap();
    assert_eq!(second, [dir.path().join("000001/part-w0-000001.parquet")]);

    let options = WriterOptions {
        flush_after: Duration::ZERO,
        ..WriterOptions::default()
    };
    let mut eager = ShardWriter::new(dir.path(), "w0", meta(), options).unwrap();
    fs::write(
        dir.path().join("000001/.part-w0-000007.parquet.tmp"),
        "left by a killed process",
    )
    .unwrap();
    assert_eq!(
        eager.push(&simple("c", 1)).unwrap(),
        [dir.path().join("000001/part-w0-000002.parquet")]
    );
    assert_eq!(fs::read_dir(dir.path().join("000001")).unwrap().count(), 3);

    let mut writer = writer(dir.path());
    writer.push(&simple("d", 2)).unwrap();
    writer.push(&simple("e", 3)).unwrap();
    assert_eq!(
        writer.flush_step(2).unwrap(),
        Some(dir.path().join("000002/part-w0-000000.parquet"))
    );
    drop(writer);
    let ids: Vec<String> = read(dir.path())
        .into_iter()
        .map(|episode| episode.episode_id.0)
        .collect();
    assert_eq!(ids, ["a", "b", "c", "d"]);
}

#[test]
fn rows_that_break_an_invariant_are_refused_on_both_sides() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    let mut refused = |change: &dyn Fn(&mut Episode)| {
        let mut wrong = simple("e", 1);
        change(&mut wrong);
        let message = writer.push(&wrong).unwrap_err().to_string();
        assert!(message.starts_with("episode e, segment 0: "), "{message}");
        message
    };
    assert!(refused(&|e| e.segments[0].response_mask[1] = 2).ends_with("mask at 1 is 2, expected 0 or 1"));
    assert!(refused(&|e| e.segments[0].response_ids.push(1)).ends_with("4 response ids, but 3 mask values"));
    assert!(
        refused(&|e| e.segments[0].response_logprobs = Some(vec![0.0; 2])).ends_with("3 response ids, but 2 log-probs")
    );
    assert!(refused(&|e| e.segments[0].response_logprobs = Some(vec![-1.0; 3])).contains("log-prob at 1 (mask 0)"));
    assert!(refused(&|e| e.segments[0].response_logprobs = Some(vec![f32::NAN, 0.0, 0.0])).contains("is NaN"));
    assert!(
        refused(&|e| e.segments[0].weight_versions.truncate(1)).ends_with("sampled token at 2 has no weight version")
    );
    assert!(refused(&|e| e.segments[0].weight_versions[1].end = 9).contains("out of order or range"));
    assert!(refused(&|e| e.reward = Some(f32::NAN)).contains("reward is NaN"));
    assert!(refused(&|e| e.outcome = Outcome::InfraError).contains("has no valid reward"));
    assert_eq!(writer.pending(), 0);
}

#[tokio::test]
async fn a_store_is_read_like_a_folder_and_projection_reads_what_is_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    let mut writer = writer(dir.path());
    writer.push(&simple("a", 1)).unwrap();
    writer.push(&simple("b", 2)).unwrap();
    writer.flush().unwrap();
    let store = Arc::new(object_store::local::LocalFileSystem::new_with_prefix(dir.path()).unwrap());
    let file = ShardFile::Remote {
        store,
        path: "000001/part-w0-000000.parquet".into(),
        url: "s3://b/x".into(),
    };

    let url = format!("file://{}", dir.path().display());
    let reader = ShardReader::open_places(&[url, dir.path().join("000001").display().to_string()])
        .await
        .unwrap();
    assert_eq!(reader.files().len(), 2, "the same file named twice is read once");
    assert_eq!(reader.episodes(Some(&meta())).await.unwrap().len(), 2);
    let some = reader.clone().with_columns(&["episode_id", "reward"]).unwrap();
    let (found, rows) = some.read(&file).await.unwrap();
    assert_eq!(found, meta());
    assert_eq!(
        (rows[0].episode_id.as_str(), rows[0].reward, rows[0].outcome.as_str()),
        ("a", Some(1.0), "")
    );
    assert_eq!(reader.read(&file).await.unwrap().1, episode_rows(&simple("a", 1)));

    let other = ShardMeta {
        vocab_size: 301,
        ..meta()
    };
    let message = reader.episodes(Some(&other)).await.unwrap_err().to_string();
    assert!(message.ends_with("the vocabulary size is 300, expected 301; its token ids mean something else here"));
    let message = some.with_columns(&["rewrad"]).unwrap_err().to_string();
    assert_eq!(message, "no column `rewrad` in a rollout shard; did you mean `reward`?");
    let message = ShardReader::open_places(&["nowhere://x/y".to_owned()])
        .await
        .unwrap_err()
        .to_string();
    assert!(message.starts_with("nowhere://x/y: "), "{message}");
}

/// The table of the specification: names, types and order; `?` may be null. A change of it is a new version.
const SPECIFIED: &str = "\
run_id Utf8
step Int32
task_id Utf8
data_source Utf8
group_id Utf8
episode_id Utf8
trial_name Utf8
attempt Int32
segment_index Int32
n_segments Int32
is_main_agent Boolean
agent Utf8
agent_version Utf8
model Utf8
tool_parser Utf8
endpoint Utf8
prompt_ids List(Int32)?
response_ids List(Int32)?
response_mask List(UInt8)?
response_logprobs List(Float32)?
weight_versions List(Struct(start: Int32, end: Int32, version: Utf8))
routed_experts List(Struct(start: Int32, rows: Binary))?
routed_shape List(Int32)?
reward Float32?
rewards Map(entries: Struct(key: Utf8, value: Float64), unsorted)
temperature Float32
top_p Float32
top_k Int32
outcome Utf8
dropped Boolean
drop_reason Utf8?
finish_reason Utf8?
num_turns Int32
num_tool_calls Int32
num_calls Int32
num_preempted Int32
num_aborts Int32
delivered_fraction Float32
n_rewrites Int32
n_discarded Int32
n_unresolved_retries Int32
hack_flags List(Utf8)
started_at Timestamp(µs, UTC)
env_setup_s Float32
agent_setup_s Float32
agent_s Float32
model_s Float32
tool_s Float32
verify_s Float32
total_s Float32
tool_gap_p90_s Float32
queue_wait_s Float32
messages Utf8
";

#[test]
fn the_columns_are_those_of_the_specification() {
    let describe = |field: &Arc<arrow_schema::Field>| {
        let data_type = field.data_type().to_string().replace("non-null ", "").replace('"', "");
        let null = if field.is_nullable() { "?" } else { "" };
        format!("{} {data_type}{null}\n", field.name())
    };
    assert_eq!(schema().fields().iter().map(describe).collect::<String>(), SPECIFIED);
    assert_eq!(SCHEMA_VERSION, 1);
}
