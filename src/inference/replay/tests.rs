use std::io::Write;
use std::time::Duration;

use super::*;
use crate::inference::{RequestOrigin, Sampling};
use crate::trajectory::SessionKey;

/// One token a byte of the text, one a call, and 2 as end of turn.
fn engine() -> ReplayEngine {
    let mut file = tempfile::NamedTempFile::with_suffix(".jsonl").unwrap();
    file.write_all(
        br#"{"instance_id":"fix","turns":[{"content":"ab","tool_calls":[{"name":"bash","arguments":{"command":"ls"}}]},{"content":"c"}]}
{"instance_id":"fix","turns":[{"content":"z"}]}
"#,
    )
    .unwrap();
    let render: RenderTurn = Arc::new(|turn| {
        if turn.content == "c" {
            return Err("no such letter".to_owned());
        }
        Ok(turn
            .content
            .bytes()
            .map(u32::from)
            .chain(turn.tool_calls.iter().map(|_| 1000))
            .chain([2])
            .collect())
    });
    ReplayEngine::new(Recording::load(file.path()).unwrap(), render)
}

fn request(task: &str, episode_index: u32, turn: u32) -> GenerateRequest {
    GenerateRequest {
        id: format!("{task}-{episode_index}-{turn}"),
        session: SessionKey::from("s"),
        prompt: [1, 2, 3].into(),
        sampling: Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            max_tokens: 64,
            stop_token_ids: vec![2],
            seed: 0,
        },
        routing_from: None,
        origin: RequestOrigin {
            task_id: task.to_owned(),
            episode_index,
            turn,
            ..RequestOrigin::default()
        },
    }
}

async fn drain(mut generation: Generation) -> (Vec<TokenId>, Finish) {
    let mut ids = Vec::new();
    loop {
        match tokio::time::timeout(Duration::from_secs(5), generation.next())
            .await
            .unwrap()
            .unwrap()
        {
            GenerationEvent::Tokens(delta) => {
                assert_eq!(delta.logprobs, None);
                ids.extend(delta.ids);
            }
            GenerationEvent::Finished(finish) => {
                assert!(generation.next().await.is_none());
                return (ids, finish);
            }
        }
    }
}

#[tokio::test]
async fn the_origin_chooses_the_answer() {
    let engine = engine();
    let (ids, finish) = drain(engine.generate(request("fix", 0, 0)).await.unwrap()).await;
    assert_eq!(ids, [97, 98, 1000, 2]);
    assert_eq!(finish.reason, FinishReason::Stop);
    assert_eq!(
        finish.usage,
        EngineUsage {
            prompt: 3,
            cached: 0,
            completion: 4
        }
    );
    let (ids, _) = drain(engine.generate(request("fix", 3, 0)).await.unwrap()).await;
    assert_eq!(ids, [122, 2]);
    assert_eq!(engine.load().sampled_tokens, 6);
    assert!(!engine.gives_logprobs());
}

#[tokio::test]
async fn what_is_not_recorded_is_named() {
    let engine = engine();
    for (task, episode, turn, expected) in [
        ("other", 0, 0, "task `other`, turn 0: the task is not recorded"),
        ("fix", 1, 1, "task `fix`, turn 1: the recorded episode has 1 turns"),
        ("fix", 0, 1, "task `fix`, turn 1: it cannot be rendered: no such letter"),
    ] {
        let error = engine
            .generate(request(task, episode, turn))
            .await
            .unwrap_err()
            .to_string();
        assert!(error.contains(expected) && error.contains(".jsonl"), "{error}");
    }
}

#[tokio::test]
async fn an_answer_beyond_the_budget_is_cut_and_says_so() {
    let mut short = request("fix", 0, 0);
    short.sampling.max_tokens = 2;
    let (ids, finish) = drain(engine().generate(short).await.unwrap()).await;
    assert_eq!((ids, finish.reason), (vec![97, 98], FinishReason::Length));
}

#[tokio::test]
async fn paused_generations_wait_and_may_be_aborted() {
    let engine = engine();
    engine.pause(PauseMode::Keep).await.unwrap();
    let kept = engine.generate(request("fix", 0, 0)).await.unwrap();
    let aborted = engine.generate(request("fix", 1, 0)).await.unwrap();
    drop(engine.generate(request("fix", 2, 0)).await.unwrap());
    engine.abort("fix-1-0").await;
    engine.abort("unknown").await;
    assert_eq!(drain(aborted).await.1.reason, FinishReason::Abort);
    let version = PolicyVersion { lineage: 1, update: 7 };
    engine.publish(version, Path::new("anywhere")).await.unwrap();
    engine.resume().await.unwrap();
    assert_eq!(drain(kept).await.0, [97, 98, 1000, 2]);
    assert_eq!(engine.version(), version);
}
