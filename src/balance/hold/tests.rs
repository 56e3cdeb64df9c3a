//! Turns of tasks that come, go and are cancelled.

use super::*;

fn settings(capacity: u64) -> HoldSettings {
    HoldSettings {
        // What is given out is a share of it.
        capacity: Some((capacity as f64 / USABLE).ceil() as u64),
        rule: HoldRule::Lease {
            lease: Duration::from_millis(200),
            tax: 0.05,
        },
        max_hold: Duration::from_secs(30),
        idle_ttl: Duration::from_mins(1),
    }
}

fn ask(session: &str, tokens: u64) -> Ask<'_> {
    Ask {
        session,
        conversation: 0,
        tokens,
        blocks: &[],
        block_tokens: 64.0,
        digest: 0,
        probe: None,
    }
}

/// Waits at most so long that a slow machine is no reason.
async fn soon<T>(wait: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(20), wait).await.unwrap()
}

async fn until_waiting(hold: &Arc<Hold>, count: usize) {
    soon(async {
        while hold.figures().waiting != count {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
}

fn begin(hold: &Arc<Hold>, session: &'static str, tokens: u64) -> tokio::task::JoinHandle<Result<Place, NotLetGo>> {
    let hold = Arc::clone(hold);
    tokio::spawn(async move { hold.enter(&ask(session, tokens)).await })
}

#[tokio::test]
async fn a_turn_that_does_not_fit_waits_for_an_end() {
    let hold = Hold::new("r", settings(1_000));
    let first = hold.enter(&ask("a", 700)).await.unwrap();
    let second = begin(&hold, "b", 700);
    until_waiting(&hold, 1).await;
    // Its turn has ended, and its lease runs; then the session ends.
    drop(first);
    hold.release("a");
    let place = soon(second).await.unwrap().unwrap();
    assert_eq!((hold.figures().admitted, hold.figures().waiting), (700, 0));
    drop(place);
    hold.release("b");
    assert_eq!((hold.figures().admitted, hold.figures().known), (0, 0));
}

#[tokio::test]
async fn an_idle_session_gives_way_when_its_lease_is_over() {
    let hold = Hold::new("r", settings(1_000));
    drop(hold.enter(&ask("a", 700)).await.unwrap());
    let place = soon(begin(&hold, "b", 700)).await.unwrap().unwrap();
    assert!(place.waited() > Duration::ZERO);
    assert_eq!((hold.figures().stats.paused, hold.figures().stats.held), (1, 1));
}

#[tokio::test]
async fn whoever_goes_gives_its_place_back() {
    let hold = Hold::new("r", settings(1_000));
    let first = hold.enter(&ask("a", 700)).await.unwrap();
    // Cancelled while it waits.
    let waits = begin(&hold, "b", 700);
    until_waiting(&hold, 1).await;
    waits.abort();
    until_waiting(&hold, 0).await;
    // Cancelled while it runs, and never released: another one gets its place after its lease.
    let task = tokio::spawn({
        let hold = Arc::clone(&hold);
        async move {
            let _place = hold.enter(&ask("c", 200)).await.unwrap();
            std::future::pending::<()>().await;
        }
    });
    soon(async {
        while hold.figures().admitted != 900 {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    })
    .await;
    task.abort();
    drop(first);
    let place = soon(begin(&hold, "d", 900)).await.unwrap().unwrap();
    assert_eq!(hold.figures().admitted, 900);
    drop(place);
}

#[tokio::test]
async fn a_newer_attempt_takes_the_place_of_one_that_waits() {
    let hold = Hold::new("r", settings(1_000));
    let first = hold.enter(&ask("a", 700)).await.unwrap();
    let older = begin(&hold, "b", 700);
    until_waiting(&hold, 1).await;
    let newer = begin(&hold, "b", 700);
    assert_eq!(soon(older).await.unwrap().unwrap_err(), NotLetGo::Preempted);
    assert_eq!(hold.figures().waiting, 1);
    drop(first);
    assert!(soon(newer).await.unwrap().is_ok());
    // Another turn of the same conversation is no attempt at it.
    let _running = hold.enter(&ask("e", 10)).await.unwrap();
    let beside = hold
        .enter(&Ask {
            digest: 1,
            ..ask("e", 10)
        })
        .await;
    assert!(beside.is_ok());
}

#[tokio::test]
async fn a_replica_that_is_out_holds_nobody() {
    let hold = Hold::new("r", settings(1_000));
    let first = hold.enter(&ask("a", 700)).await.unwrap();
    let second = begin(&hold, "b", 700);
    until_waiting(&hold, 1).await;
    hold.clear();
    assert_eq!(soon(second).await.unwrap().unwrap_err(), NotLetGo::Out);
    drop(first);
    assert_eq!((hold.figures().admitted, hold.figures().known), (0, 0));
    assert!(hold.enter(&ask("b", 700)).await.is_ok());
}

#[tokio::test]
async fn nothing_is_held_where_the_capacity_is_not_known() {
    let unknown = HoldSettings {
        capacity: None,
        ..settings(1)
    };
    let hold = Hold::new("r", unknown);
    let places: Vec<Place> = vec![
        hold.enter(&ask("a", 7_000)).await.unwrap(),
        hold.enter(&ask("b", 7_000)).await.unwrap(),
    ];
    assert_eq!(hold.figures(), HoldFigures::default());
    // The replica says it now.
    hold.set_capacity(0);
    hold.set_capacity(10_000);
    drop(places);
    let _place = hold.enter(&ask("a", 7_000)).await.unwrap();
    let second = begin(&hold, "b", 7_000);
    until_waiting(&hold, 1).await;
    assert_eq!(hold.figures().capacity, 9_500);
    second.abort();
}

/// Resumed where it was, unless it has waited for long and all of it fits elsewhere.
#[tokio::test]
async fn one_that_waits_for_long_goes_where_all_of_it_fits() {
    let looks = (Duration::from_millis(80), Duration::from_millis(10));
    let hold = Hold::with_looks("r", settings(1_000), looks);
    let other = Hold::new("other", settings(1_000));
    let [here, there] = [&hold, &other].map(|hold| begin(hold, "busy", 700));
    let (here, there) = (soon(here).await.unwrap().unwrap(), soon(there).await.unwrap().unwrap());
    let wait = |session: &'static str| {
        let (hold, other) = (Arc::clone(&hold), Arc::clone(&other));
        tokio::spawn(async move {
            let (began, mut asked) = (Instant::now(), Vec::new());
            let entered = hold
                .enter_or_move(&ask(session, 700), || {
                    asked.push(began.elapsed());
                    other.has_room_for(700).then_some("other")
                })
                .await;
            (entered.unwrap(), asked)
        })
    };
    // It does not fit there either: it stays, and resumes here.
    let stays = wait("a");
    until_waiting(&hold, 1).await;
    tokio::time::sleep(Duration::from_millis(150)).await;
    drop(here);
    hold.release("busy");
    let (entered, asked) = soon(stays).await.unwrap();
    let Entered::Here(place) = entered else {
        panic!("{entered:?}")
    };
    assert!(asked.first().is_some_and(|first| *first >= looks.0), "{asked:?}");
    // Now it fits there: it goes, and nothing is known of it here.
    let goes = wait("b");
    until_waiting(&hold, 1).await;
    drop(there);
    other.release("busy");
    let (entered, asked) = soon(goes).await.unwrap();
    assert!(matches!(entered, Entered::Elsewhere("other")), "{entered:?}");
    assert!(asked.first().is_some_and(|first| *first >= looks.0), "{asked:?}");
    assert_eq!((hold.figures().waiting, hold.figures().known), (0, 1));
    drop(place);
}

/// A watermark of half the cache, before a replica that says what it has cached as `cached` does.
fn watermark(max_hold: Duration) -> Arc<Hold> {
    Hold::new(
        "r",
        HoldSettings {
            rule: HoldRule::Watermark {
                high: 0.5,
                hit: 0.8,
                grace: Duration::from_mins(1),
            },
            max_hold,
            ..settings(1_000)
        },
    )
}

fn begin_cached(
    hold: &Arc<Hold>,
    session: &'static str,
    tokens: u64,
    cached: Option<u64>,
) -> tokio::task::JoinHandle<Result<Place, NotLetGo>> {
    let hold = Arc::clone(hold);
    tokio::spawn(async move {
        let probe = Probe::new(move || Box::pin(async move { cached }));
        let ask = Ask {
            probe: Some(&probe),
            ..ask(session, tokens)
        };
        hold.enter(&ask).await
    })
}

#[tokio::test]
async fn beyond_the_watermark_what_is_cached_goes_and_what_is_not_waits() {
    let hold = watermark(Duration::from_mins(5));
    let first = soon(begin_cached(&hold, "a", 700, Some(0))).await.unwrap().unwrap();
    let cold = begin_cached(&hold, "b", 100, Some(79));
    until_waiting(&hold, 1).await;
    let warm = soon(begin_cached(&hold, "c", 100, Some(80))).await.unwrap().unwrap();
    assert_eq!((hold.figures().waiting, hold.figures().admitted), (1, 800));
    // It has a reservation now, and goes at once.
    drop(warm);
    assert_eq!(hold.figures().admitted, 800);
    let again = soon(begin_cached(&hold, "c", 120, None)).await.unwrap().unwrap();
    assert!(hold.figures().waiting == 1 && again.waited() < Duration::from_secs(5));
    drop(again);
    // What runs and is reserved leaves room.
    drop(first);
    assert_eq!(hold.figures().admitted, 220);
    assert!(soon(cold).await.unwrap().is_ok());
}

#[tokio::test]
async fn beyond_the_watermark_nobody_waits_for_ever_or_for_what_nobody_can_say() {
    let hold = watermark(Duration::from_millis(100));
    let _first = soon(begin_cached(&hold, "a", 700, Some(0))).await.unwrap().unwrap();
    let late = soon(begin_cached(&hold, "b", 100, Some(0))).await.unwrap().unwrap();
    assert!(late.waited() >= Duration::from_millis(100));
    let hold = watermark(Duration::from_mins(5));
    let _first = soon(begin_cached(&hold, "a", 700, None)).await.unwrap().unwrap();
    assert!(soon(begin_cached(&hold, "b", 100, None)).await.unwrap().is_ok());
    assert!(soon(begin(&hold, "c", 100)).await.unwrap().is_ok());
}

#[tokio::test]
async fn what_sessions_share_counts_once() {
    let hold = Hold::new("r", settings(1_000));
    let blocks: Vec<u64> = (0..8).collect();
    let shared = |session, tokens| Ask {
        blocks: &blocks,
        ..ask(session, tokens)
    };
    let _first = hold.enter(&shared("a", 600)).await.unwrap();
    // 512 of its tokens are the first one's.
    let _second = soon(hold.enter(&shared("b", 700))).await.unwrap();
    assert_eq!(hold.figures().admitted, 600 + 188);
}

#[tokio::test]
async fn new_weights_take_all_idle_places() {
    let hold = Hold::new("r", settings(1_000));
    drop(hold.enter(&ask("a", 400)).await.unwrap());
    let running = hold.enter(&ask("b", 400)).await.unwrap();
    hold.forget_cache();
    assert_eq!(hold.figures().admitted, 400);
    assert_eq!(hold.figures().stats.paused, 0);
    drop(running);
}
