//! New weights: who is given them when, and who is sampled from meanwhile.

use super::*;

#[tokio::test]
async fn one_that_does_not_take_the_weights_is_out_until_it_does() {
    let (engines, replicas) = pair();
    engines[0].stuck.store(true, Ordering::SeqCst);
    replicas.publish(version(3), Path::new("/w")).await.unwrap();
    assert_eq!(replicas.version(), version(3));
    assert_eq!(sampled(&replicas, "a", 1).await.0, [2]);
    assert_eq!(sampled(&replicas, "b", 1).await.0, [2]);
    engines[0].stuck.store(false, Ordering::SeqCst);
    eventually("the first is back", || replicas.up().count() == 2).await;
    assert_eq!(engines[0].version(), version(3));
    for engine in &engines {
        engine.stuck.store(true, Ordering::SeqCst);
    }
    let error = replicas.publish(version(4), Path::new("/w")).await.unwrap_err();
    assert!(error.to_string().contains("half a file"), "{error}");
}

#[tokio::test]
async fn one_that_was_started_anew_is_given_the_weights_before_it_serves() {
    let (engines, replicas) = pair();
    replicas.publish(version(1), Path::new("/w")).await.unwrap();
    lock(&engines[0].breaks).push_back(1);
    // A broken stream alone needs no weights.
    sampled(&replicas, "a", 2).await;
    eventually("the first is back", || replicas.up().count() == 2).await;
    assert_eq!(engines[0].publications.load(Ordering::SeqCst), 1);
    lock(&engines[1].breaks).push_back(1);
    *lock(&engines[1].served) = version(0);
    sampled(&replicas, "b", 2).await;
    sampled(&replicas, "a", 2).await;
    eventually("both are back", || replicas.up().count() == 2).await;
    assert_eq!(engines[1].version(), version(1));
}

/// Two replicas that load and sample only as far as they are let, with what lets them.
fn rolling() -> ([Arc<Breakable>; 2], [Arc<Semaphore>; 2], Arc<Replicas>) {
    let permits = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let engines = [1, 2].map(|number| {
        Arc::new(Breakable {
            number,
            permits: Some(Arc::clone(&permits[number as usize - 1])),
            ..Breakable::default()
        })
    });
    let named = engines
        .iter()
        .map(|engine| (format!("r{}", engine.number), Arc::clone(engine) as Arc<dyn Engine>));
    let balancing = Balancing {
        rolling: true,
        ..Balancing::default()
    };
    let replicas = Replicas::with(named.collect(), balancing, Duration::from_millis(200));
    (engines, permits, Arc::new(replicas))
}

fn publishes(replicas: &Arc<Replicas>, drains: bool) -> tokio::task::JoinHandle<Result<(), EngineError>> {
    let replicas = Arc::clone(replicas);
    tokio::spawn(async move {
        if drains {
            replicas.publish_between(version(1), Path::new("/w1")).await
        } else {
            replicas.publish(version(1), Path::new("/w1")).await
        }
    })
}

fn log(engine: &Breakable) -> Vec<String> {
    lock(&engine.log).clone()
}

async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap()
}

#[tokio::test]
async fn one_loads_while_the_others_go_on() {
    let (engines, permits, replicas) = rolling();
    let [a, b] = [
        replicas.generate(request("a", 4)).await.unwrap(),
        replicas.generate(request("b", 4)).await.unwrap(),
    ];
    let publishing = publishes(&replicas, false);
    eventually("the first loads", || log(&engines[0]) == ["loads 0.1"]).await;
    assert!(!replicas.longest_hold().is_zero());
    // A turn of a session that is there waits; a new session goes to the other, which samples on.
    let mut turn = Box::pin(replicas.generate(request("a", 1)));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut turn)
            .await
            .is_err()
    );
    permits[1].add_permits(5);
    assert_eq!(sampled(&replicas, "c", 1).await.0, [2]);
    assert_eq!(soon(rest(b)).await.0, [2; 4]);
    assert_eq!(log(&engines[1]), Vec::<String>::new(), "one after the other");
    assert_eq!(engines[0].generations.load(Ordering::SeqCst), 1);
    // One permit for the load, and the others for what was being sampled and what waited.
    permits[0].add_permits(6);
    assert_eq!(soon(rest(soon(turn).await.unwrap())).await.0, [1]);
    assert_eq!(soon(rest(a)).await.0, [1; 4]);
    eventually("the second loads", || log(&engines[1]) == ["loads 0.1"]).await;
    assert_eq!(log(&engines[0]), ["loads 0.1", "loaded 0.1"]);
    permits[1].add_permits(1);
    soon(publishing).await.unwrap().unwrap();
    assert_eq!([engines[0].version(), engines[1].version()], [version(1); 2]);
    assert!(replicas.longest_hold().is_zero());
}

#[tokio::test]
async fn what_is_sampled_ends_on_the_weights_that_it_began_with() {
    let (engines, permits, replicas) = rolling();
    let mut a = replicas.generate(request("a", 3)).await.unwrap();
    let publishing = publishes(&replicas, true);
    eventually("its gate is closed", || replicas.0.replicas[0].gate.is_closed()).await;
    permits[0].add_permits(1);
    assert!(matches!(soon(a.next()).await, Some(GenerationEvent::Tokens(_))));
    assert_eq!(
        log(&engines[0]),
        Vec::<String>::new(),
        "it does not load before that has ended"
    );
    permits[0].add_permits(2);
    permits[1].add_permits(1);
    let (ids, finish) = soon(rest(a)).await;
    assert_eq!((ids, finish.reason), (vec![1; 2], FinishReason::Length));
    permits[0].add_permits(1);
    soon(publishing).await.unwrap().unwrap();
    assert_eq!([engines[0].version(), engines[1].version()], [version(1); 2]);
}

#[tokio::test]
async fn no_turn_is_sent_to_older_weights_than_its_last_one() {
    let (engines, permits, replicas) = rolling();
    let held = replicas.generate(request("x", 1)).await.unwrap();
    let publishing = publishes(&replicas, false);
    permits[0].add_permits(8);
    eventually("the second loads", || log(&engines[1]) == ["loads 0.1"]).await;
    assert_eq!(soon(rest(held)).await.0, [1]);
    assert_eq!(sampled(&replicas, "x", 1).await.0, [1]);
    // Its replica breaks; the other one still has the older weights, and then the newer.
    engines[0].down.store(true, Ordering::SeqCst);
    assert!(replicas.generate(request("x", 1)).await.is_err());
    let mut turn = Box::pin(replicas.generate(request("x", 1)));
    assert!(
        tokio::time::timeout(Duration::from_millis(50), &mut turn)
            .await
            .is_err()
    );
    assert_eq!(engines[1].generations.load(Ordering::SeqCst), 0);
    permits[1].add_permits(2);
    soon(publishing).await.unwrap().unwrap();
    assert_eq!(soon(rest(soon(turn).await.unwrap())).await.0, [2]);
    // With nothing under way that would help, the wait is bounded and says what is missing.
    *lock(&engines[1].served) = version(0);
    let error = soon(replicas.generate(request("x", 1))).await.unwrap_err().to_string();
    assert!(
        error.contains("none of r1, r2 was well with weights as new as"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_says_it_serves_others_is_out() {
    let (engines, replicas) = pair();
    engines[0].lies.store(true, Ordering::SeqCst);
    replicas.publish(version(2), Path::new("/w")).await.unwrap();
    assert_eq!(replicas.up().map(|(at, _)| at).collect::<Vec<_>>(), [1]);
    engines[0].lies.store(false, Ordering::SeqCst);
    eventually("the first is back", || replicas.up().count() == 2).await;
    assert_eq!(engines[0].version(), version(2));
    for engine in &engines {
        engine.lies.store(true, Ordering::SeqCst);
    }
    let error = replicas
        .publish(version(3), Path::new("/w"))
        .await
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("given the weights 0.3, and says that it serves 0.2"),
        "{error}"
    );
}

#[tokio::test]
async fn one_that_is_lost_while_others_load_comes_back_with_the_newest() {
    let (engines, permits, replicas) = rolling();
    let _held = replicas.generate(request("x", 1)).await.unwrap();
    engines[1].down.store(true, Ordering::SeqCst);
    let publishing = publishes(&replicas, false);
    eventually("the first loads", || log(&engines[0]) == ["loads 0.1"]).await;
    // It is found out while the first one loads, and is well again before its turn comes.
    assert!(sampled_or_lost(&replicas, "new").await.is_err());
    assert_eq!(replicas.folders(), [Path::new("/w1"), Path::new("/w1")]);
    engines[1].down.store(false, Ordering::SeqCst);
    permits[1].add_permits(8);
    eventually("it is back", || replicas.up().count() == 2).await;
    assert_eq!(log(&engines[1]), ["loads 0.1", "loaded 0.1"]);
    permits[0].add_permits(8);
    soon(publishing).await.unwrap().unwrap();
    assert_eq!(log(&engines[1]).len(), 2, "it has them already");
    assert_eq!(replicas.folders(), [Path::new("/w1")]);
}

async fn sampled_or_lost(replicas: &Replicas, session: &str) -> Result<Generation, EngineError> {
    soon(replicas.generate(request(session, 1))).await
}

#[tokio::test]
async fn with_nothing_to_go_on_with_all_load_at_once() {
    let (engines, permits, replicas) = rolling();
    let publishing = publishes(&replicas, true);
    for engine in &engines {
        eventually("both load", || log(engine) == ["loads 0.1"]).await;
    }
    // A session that begins now waits for whoever is first.
    let mut first = Box::pin(replicas.generate(request("a", 1)));
    assert!(
        tokio::time::timeout(Duration::from_millis(300), &mut first)
            .await
            .is_err()
    );
    permits[1].add_permits(2);
    assert_eq!(soon(rest(soon(first).await.unwrap())).await.0, [2]);
    permits[0].add_permits(1);
    soon(publishing).await.unwrap().unwrap();
}
