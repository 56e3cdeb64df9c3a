//! Replicas of engines that a test can break.

mod publication;

use std::collections::VecDeque;
use std::sync::atomic::AtomicU32;

use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::balance::hold::HoldRule;
use crate::inference::{EngineUsage, Finish, GenerationEvent, RequestOrigin, Sampling, TokenDelta};
use crate::trajectory::FinishReason;

/// Answers with as many tokens as are asked for, each its own number.
#[derive(Default)]
struct Breakable {
    number: u32,
    /// It answers nothing at all.
    down: AtomicBool,
    /// Its weights cannot be loaded.
    stuck: AtomicBool,
    /// Tokens after which the next generations break.
    breaks: Mutex<VecDeque<usize>>,
    served: Mutex<PolicyVersion>,
    /// It takes weights and goes on serving what it served.
    lies: AtomicBool,
    /// What it does, in order.
    log: Mutex<Vec<String>>,
    /// Loading weights, and each token, take one of these; absent, they are free.
    permits: Option<Arc<Semaphore>>,
    generations: AtomicU32,
    publications: AtomicU32,
    aborted: Mutex<Vec<String>>,
}

impl Breakable {
    fn check(&self) -> Result<(), EngineError> {
        if !self.down.load(Ordering::SeqCst) {
            return Ok(());
        }
        Err(EngineError::Unavailable {
            reason: format!("replica {} is down", self.number),
            retry_after: None,
        })
    }
}

#[async_trait]
impl Engine for Breakable {
    async fn generate(&self, request: GenerateRequest) -> Result<Generation, EngineError> {
        self.check()?;
        self.generations.fetch_add(1, Ordering::SeqCst);
        if request.prompt.is_empty() {
            return Err(EngineError::Invalid("no prompt".to_owned()));
        }
        let breaks = lock(&self.breaks).pop_front();
        let asked = request.sampling.max_tokens as usize;
        let (events, receiver) = mpsc::channel(1);
        let (number, version) = (self.number, self.version());
        let permits = self.permits.clone();
        tokio::spawn(async move {
            for _ in 0..breaks.unwrap_or(asked) {
                if let Some(permits) = &permits {
                    permits.acquire().await.unwrap().forget();
                }
                let delta = TokenDelta {
                    ids: vec![number],
                    logprobs: Some(vec![-1.0]),
                    version,
                };
                if events.send(GenerationEvent::Tokens(delta)).await.is_err() {
                    return;
                }
            }
            let broke = breaks.is_some();
            let finish = Finish {
                reason: if broke {
                    FinishReason::Error
                } else {
                    FinishReason::Length
                },
                usage: EngineUsage {
                    prompt: 1,
                    cached: 0,
                    completion: breaks.unwrap_or(asked) as u32,
                },
                error: broke.then(|| "it broke".to_owned()),
                routing: None,
                rejected: false,
            };
            let _ = events.send(GenerationEvent::Finished(finish)).await;
        });
        Ok(Generation::of(receiver))
    }

    async fn abort(&self, request_id: &str) {
        lock(&self.aborted).push(request_id.to_owned());
    }

    async fn pause(&self, _: PauseMode) -> Result<(), EngineError> {
        self.check()
    }

    async fn publish(&self, version: PolicyVersion, _: &Path) -> Result<(), EngineError> {
        self.check()?;
        self.publications.fetch_add(1, Ordering::SeqCst);
        lock(&self.log).push(format!("loads {version}"));
        if let Some(permits) = &self.permits {
            permits.acquire().await.unwrap().forget();
        }
        lock(&self.log).push(format!("loaded {version}"));
        if self.stuck.load(Ordering::SeqCst) {
            return Err(EngineError::Rejected("half a file".to_owned()));
        }
        if !self.lies.load(Ordering::SeqCst) {
            *lock(&self.served) = version;
        }
        Ok(())
    }

    async fn resume(&self) -> Result<(), EngineError> {
        self.check()
    }

    fn version(&self) -> PolicyVersion {
        *lock(&self.served)
    }

    async fn served(&self) -> Result<PolicyVersion, EngineError> {
        self.check()?;
        Ok(self.version())
    }

    fn load(&self) -> EngineLoad {
        EngineLoad {
            running: self.number,
            ..EngineLoad::default()
        }
    }

    fn gives_logprobs(&self) -> bool {
        true
    }
}

fn pair() -> ([Arc<Breakable>; 2], Replicas) {
    let engines = [1, 2].map(|number| {
        Arc::new(Breakable {
            number,
            ..Breakable::default()
        })
    });
    let named = engines
        .iter()
        .map(|engine| (format!("r{}", engine.number), Arc::clone(engine) as Arc<dyn Engine>));
    let replicas = Replicas::with_patience(named.collect(), Duration::from_millis(200));
    (engines, replicas)
}

fn request(session: &str, tokens: u32) -> GenerateRequest {
    GenerateRequest {
        id: format!("{session}-{tokens}"),
        session: SessionKey::from(session),
        prompt: Arc::from([7]),
        sampling: Sampling {
            temperature: 1.0,
            top_p: 1.0,
            top_k: -1,
            max_tokens: tokens,
            stop_token_ids: Vec::new(),
            seed: 0,
        },
        origin: RequestOrigin::default(),
        routing_from: None,
    }
}

/// Which replica sampled each token, and the end.
async fn sampled(replicas: &Replicas, session: &str, tokens: u32) -> (Vec<u32>, Finish) {
    rest(replicas.generate(request(session, tokens)).await.unwrap()).await
}

/// The same of one that has begun.
async fn rest(mut generation: Generation) -> (Vec<u32>, Finish) {
    let mut ids = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(20), generation.next()).await;
        match event.unwrap().unwrap() {
            GenerationEvent::Tokens(delta) => ids.extend(delta.ids),
            GenerationEvent::Finished(finish) => return (ids, finish),
        }
    }
}

async fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    panic!("never: {what}");
}

fn version(update: u64) -> PolicyVersion {
    PolicyVersion { lineage: 0, update }
}

#[tokio::test]
async fn sessions_spread_and_stay() {
    let (_, replicas) = pair();
    for (session, replica) in [("a", 1), ("b", 2), ("a", 1), ("b", 2), ("a", 1)] {
        assert_eq!(sampled(&replicas, session, 2).await.0, [replica; 2], "{session}");
    }
    replicas.end_session(&SessionKey::from("a"));
    assert_eq!(sampled(&replicas, "c", 1).await.0, [1]);
    assert_eq!(replicas.load().running, 3);
}

#[tokio::test]
async fn what_breaks_before_its_first_token_begins_again_elsewhere() {
    let (engines, replicas) = pair();
    lock(&engines[0].breaks).push_back(0);
    let (ids, finish) = sampled(&replicas, "a", 3).await;
    assert_eq!((ids, finish.reason), (vec![2; 3], FinishReason::Length));
    // Neither does one that refuses connections keep a request from being served.
    engines[1].down.store(true, Ordering::SeqCst);
    eventually("the first is back", || replicas.up().any(|(at, _)| at == 0)).await;
    assert_eq!(sampled(&replicas, "a", 1).await.0, [1]);
    assert!(!replicas.up().any(|(at, _)| at == 1));
}

#[tokio::test]
async fn what_breaks_later_is_told_and_the_session_moves() {
    let (engines, replicas) = pair();
    lock(&engines[0].breaks).push_back(2);
    let (ids, finish) = sampled(&replicas, "a", 3).await;
    assert_eq!((ids, finish.reason), (vec![1; 2], FinishReason::Error));
    assert_eq!(finish.error.as_deref(), Some("it broke"));
    engines[0].down.store(true, Ordering::SeqCst);
    assert_eq!(sampled(&replicas, "a", 1).await.0, [2]);
}

#[tokio::test]
async fn with_none_left_the_wait_is_bounded_and_names_them() {
    let (engines, replicas) = pair();
    for engine in &engines {
        engine.down.store(true, Ordering::SeqCst);
    }
    let error = replicas.generate(request("a", 1)).await.unwrap_err();
    assert!(error.to_string().contains("is down"), "{error}");
    let error = replicas.generate(request("a", 1)).await.unwrap_err().to_string();
    assert!(error.contains("none of r1, r2 was well within 200ms"), "{error}");
    assert!(replicas.publish(version(1), Path::new("/w")).await.is_err());
    engines[1].down.store(false, Ordering::SeqCst);
    eventually("the second is back", || replicas.up().any(|(at, _)| at == 1)).await;
    assert_eq!(sampled(&replicas, "a", 1).await.0, [2]);
}

#[tokio::test]
async fn a_request_at_fault_takes_no_replica_out() {
    let (engines, replicas) = pair();
    let wrong = GenerateRequest {
        prompt: Arc::from([]),
        ..request("a", 1)
    };
    assert!(matches!(replicas.generate(wrong).await, Err(EngineError::Invalid(_))));
    assert_eq!(
        (replicas.up().count(), engines[1].generations.load(Ordering::SeqCst)),
        (2, 0)
    );
}

#[tokio::test]
async fn aborts_reach_the_replica_that_works_on_the_request() {
    let (engines, replicas) = pair();
    let generation = replicas.generate(request("a", 100)).await.unwrap();
    let _other = replicas.generate(request("b", 100)).await.unwrap();
    replicas.abort("a-100").await;
    replicas.abort("unknown").await;
    assert_eq!(*lock(&engines[0].aborted), ["a-100"]);
    assert!(lock(&engines[1].aborted).is_empty());
    drop(generation);
    eventually("it is forgotten", || lock(&replicas.0.running).len() == 1).await;
}

#[tokio::test]
async fn aborts_follow_a_request_that_began_again() {
    let (engines, replicas) = pair();
    lock(&engines[0].breaks).push_back(0);
    let mut generation = replicas.generate(request("a", 100)).await.unwrap();
    generation.next().await.unwrap();
    replicas.abort("a-100").await;
    assert_eq!(*lock(&engines[1].aborted), ["a-100"]);
}

/// One replica whose cache holds 100 tokens of those that are given out.
fn holding() -> (Arc<Breakable>, Replicas) {
    let engine = Arc::new(Breakable {
        number: 1,
        ..Breakable::default()
    });
    let balancing = Balancing {
        hold: Some(HoldSettings {
            capacity: Some(106),
            rule: HoldRule::Lease {
                lease: Duration::from_mins(10),
                tax: 0.05,
            },
            max_hold: Duration::from_mins(10),
            idle_ttl: Duration::from_mins(10),
        }),
        ..Balancing::default()
    };
    let named = vec![("r1".to_owned(), Arc::clone(&engine) as Arc<dyn Engine>)];
    (engine, Replicas::with(named, balancing, Duration::from_millis(200)))
}

fn long(session: &str, tokens: u32) -> GenerateRequest {
    GenerateRequest {
        prompt: vec![7; 60].into(),
        ..request(session, tokens)
    }
}

#[tokio::test]
async fn turns_wait_for_room_and_every_end_makes_it() {
    let (engine, replicas) = holding();
    let now = || replicas.balanced().unwrap();
    let first = replicas.generate(long("a", 100)).await.unwrap();
    assert_eq!((now().admitted_tokens, now().capacity_tokens), (60, 100));
    let mut second = Box::pin(replicas.generate(long("b", 3)));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut second)
            .await
            .is_err()
    );
    assert_eq!((now().held, engine.generations.load(Ordering::SeqCst)), (1, 1));
    // Another conversation of the same session has a context of its own.
    let mut beside = long("a", 3);
    beside.origin.conversation = 1;
    let beside = tokio::time::timeout(Duration::from_millis(50), replicas.generate(beside));
    assert!(beside.await.is_err());
    assert_eq!(now().held, 1, "whoever goes away waits no more");
    // Cancelled in mid-answer; then the session ends, and all of it is free.
    drop(first);
    replicas.end_session(&SessionKey::from("a"));
    let mut generation = tokio::time::timeout(Duration::from_secs(20), second)
        .await
        .unwrap()
        .unwrap();
    while let Some(event) = generation.next().await {
        if let GenerationEvent::Finished(finish) = event {
            assert_eq!(finish.reason, FinishReason::Length);
        }
    }
    // What the engine says that it holds is what counts.
    assert_eq!((now().admitted_tokens, now().held, now().held_total), (4, 0, 1));
    assert_eq!(now().placed_total, [("home", 1), ("new", 2)]);
    replicas.end_session(&SessionKey::from("b"));
    assert_eq!(now().admitted_tokens, 0);
}

#[tokio::test]
async fn a_lost_replica_and_new_weights_free_its_places() {
    let (engine, replicas) = holding();
    let now = || replicas.balanced().unwrap();
    lock(&engine.breaks).push_back(1);
    let (_, finish) = sampled(&replicas, "a", 3).await;
    assert_eq!((finish.reason, now().admitted_tokens), (FinishReason::Error, 0));
    eventually("it is back", || replicas.up().count() == 1).await;
    sampled(&replicas, "a", 3).await;
    assert_eq!(now().admitted_tokens, 4);
    *lock(&engine.served) = version(5);
    sampled(&replicas, "b", 2).await;
    assert_eq!(
        now().admitted_tokens,
        3,
        "what older weights have cached is worth nothing"
    );
}
