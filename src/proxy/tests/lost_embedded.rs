//! The embedded engine in mid-stream: it is stopped, its thread is gone, or it is given other weights. Two of them
//! behind `Replicas`, in every dialect.

use std::path::Path;
use std::sync::{Mutex, RwLock};

use async_trait::async_trait;
use lego_policy::{ModelConfig, Weights};
use tokio::sync::mpsc;

use super::lost_replica::{Dialect, Read, read, version};
use super::*;
use crate::balance::Replicas;
use crate::inference::{
    EmbeddedEngine, EmbeddedOptions, Engine, EngineError, EngineLoad, GenerateRequest, Generation, GenerationEvent,
    PauseMode,
};
use crate::trajectory::{PolicyVersion, VersionSpan};

/// Tokens that come before it happens.
const BEFORE: usize = 3;
const MOST: u64 = 300;

/// What happens to the engine that works on the first request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Happens {
    Nothing,
    Stopped,
    Vanished,
    Published,
}

/// An embedded engine to which something happens.
struct Unsteady {
    engine: RwLock<Option<Arc<EmbeddedEngine>>>,
    happens: Arc<Mutex<Happens>>,
}

impl Unsteady {
    fn engine(&self) -> Result<Arc<EmbeddedEngine>, EngineError> {
        let engine = self.engine.read().unwrap().clone();
        engine.ok_or_else(|| EngineError::Unavailable {
            reason: "it was stopped".to_owned(),
            retry_after: None,
        })
    }
}

/// Of the same shape, with another seed.
fn weights(seed: u64) -> Weights {
    let vocabulary = quickstart().tokenizer().vocab_size();
    Weights::init(ModelConfig::tiny(vocabulary), seed).unwrap()
}

/// Shared, so that a generation outlives the request for it.
struct Shared(Arc<Unsteady>);

#[async_trait]
impl Engine for Shared {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        let mut generation = self.0.engine()?.generate(request).await?;
        let (events, receiver) = mpsc::channel(4);
        let this = Arc::clone(&self.0);
        tokio::spawn(async move {
            let mut sampled = 0;
            while let Some(event) = generation.next().await {
                if let GenerationEvent::Tokens(delta) = &event {
                    sampled += delta.ids.len();
                }
                if events.send(event).await.is_err() {
                    return;
                }
                if sampled < BEFORE {
                    continue;
                }
                let happens = std::mem::replace(&mut *this.happens.lock().unwrap(), Happens::Nothing);
                match happens {
                    Happens::Nothing => {}
                    Happens::Stopped => drop(this.engine.write().unwrap().take()),
                    Happens::Vanished => this.engine().unwrap().vanish().await,
                    Happens::Published => {
                        let engine = this.engine().unwrap();
                        // Laying weights out takes longer than the rest of the answer.
                        engine.pause(PauseMode::Keep).await.unwrap();
                        engine.publish_weights(version(7), weights(2)).await.unwrap();
                        engine.resume().await.unwrap();
                    }
                }
            }
        });
        Ok(Generation::of(receiver))
    }

    async fn abort(&self, request_id: &str) {
        if let Ok(engine) = self.0.engine() {
            engine.abort(request_id).await;
        }
    }

    async fn pause(&self, mode: PauseMode) -> Result<(), EngineError> {
        self.0.engine()?.pause(mode).await
    }

    async fn publish(&self, version: PolicyVersion, weights: &Path) -> Result<(), EngineError> {
        self.0.engine()?.publish(version, weights).await
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.0.engine()?.resume().await
    }

    fn version(&self) -> PolicyVersion {
        self.0
            .engine()
            .map_or_else(|_| PolicyVersion::default(), |engine| engine.version())
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        self.0.engine()?.served().await
    }

    fn load(&self) -> EngineLoad {
        self.0
            .engine()
            .map_or_else(|_| EngineLoad::default(), |engine| engine.load())
    }
}

/// What the client reads and what the session records; the log's own count must be what the ledger holds.
async fn trial(dialect: Dialect, happens: Happens) -> (Read, SessionCapture) {
    let happens = Arc::new(Mutex::new(happens));
    let engines = (0..2)
        .map(|number| {
            let started = EmbeddedEngine::start(&weights(1), version(number), &EmbeddedOptions::default());
            let engine = Unsteady {
                engine: RwLock::new(Some(Arc::new(started.unwrap()))),
                happens: Arc::clone(&happens),
            };
            (
                number.to_string(),
                Arc::new(Shared(Arc::new(engine))) as Arc<dyn Engine>,
            )
        })
        .collect();
    let engine = Arc::new(Replicas::new(engines));
    let harness = Harness::over(quickstart(), Vec::new(), |options| served_by(options, engine)).await;
    let (ticket, log, _folder) = harness.open_logged();
    let (path, mut body) = dialect.request();
    // Random weights call no tools.
    body.as_object_mut().unwrap().remove("tools");
    for key in ["max_tokens", "max_output_tokens"] {
        if let Some(most) = body.get_mut(key) {
            *most = MOST.into();
        }
    }
    let read = read(&harness, &ticket, dialect, path, &body).await;
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let recovered = recover(&log).unwrap();
    assert_eq!(u64::from(recovered.usage.completion), capture.ledger.total());
    (read, capture)
}

/// The session's only segment is the whole answer, and the client has read it.
fn spans(case: &str, read: &Read, capture: &SessionCapture) -> (Vec<TokenId>, Vec<VersionSpan>) {
    assert_eq!(capture.segments.len(), 1, "{case}");
    let segment = &capture.segments[0];
    let ids = trained(segment);
    assert_eq!(read.sampled, ids.len() as u64, "{case}");
    assert_eq!(
        (capture.ledger.trained, capture.ledger.total()),
        (read.sampled, read.sampled),
        "{case}"
    );
    assert_eq!(capture.n_engine_errors, 0, "{case}");
    let messages: Value = serde_json::from_str(&capture.messages).unwrap();
    assert_eq!(messages[1]["content"], read.text, "{case}");
    let logprobs = segment.response_logprobs.as_ref().unwrap();
    assert!(logprobs[..ids.len()].iter().all(|logprob| *logprob < 0.0), "{case}");
    (ids, segment.weight_versions.clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn an_embedded_engine_is_lost_and_its_answer_goes_on_elsewhere() {
    for dialect in Dialect::ALL {
        let (read, capture) = trial(dialect, Happens::Nothing).await;
        let (whole, _) = spans("whole", &read, &capture);
        assert!(whole.len() > 100, "{} tokens are soon sampled", whole.len());
        for happens in [Happens::Stopped, Happens::Vanished, Happens::Published] {
            let case = format!("{dialect:?}, {happens:?}");
            let (read, capture) = trial(dialect, happens).await;
            let (ids, spans) = spans(&case, &read, &capture);
            assert_eq!(spans.len(), 2, "{case}: {spans:?}");
            let [first, second] = [spans[0], spans[1]];
            let other = if happens == Happens::Published {
                version(7)
            } else {
                version(1 - first.version.update as usize)
            };
            assert_eq!(
                (first.start, second.start, second.end as usize),
                (0, first.end, ids.len()),
                "{case}"
            );
            assert_eq!(second.version, other, "{case}");
            let before = first.end as usize;
            assert!(before >= BEFORE && before < ids.len(), "{case}: lost after {before}");
            assert_eq!(ids[..before], whole[..before], "{case}");
        }
    }
}
