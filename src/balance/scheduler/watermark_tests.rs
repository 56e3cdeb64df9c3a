//! What must hold of a watermark whatever comes.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

fn watermark() -> Watermark {
    Watermark::new(WatermarkSettings {
        capacity: 10_000,
        high: 0.85,
        hit: 0.8,
        grace: 60.0,
        max_hold: 600.0,
    })
}

fn turn(session: SessionId, prompt: u64) -> Turn {
    Turn { session, prompt }
}

#[test]
fn below_the_mark_all_go_and_beyond_it_what_is_cached() {
    let mut watermark = watermark();
    watermark.arrive(0.0, turn(1, 8_400));
    watermark.arrive(0.0, turn(2, 200));
    assert_eq!(watermark.ready(0.0), [1, 2], "8,400 are less than the mark");
    watermark.arrive(1.0, turn(3, 1_000));
    watermark.arrive(2.0, turn(4, 1_000));
    assert_eq!(watermark.ready(2.0), Vec::<SessionId>::new());
    assert_eq!(watermark.asks(2.0), [3, 4]);
    watermark.cached(2.0, 3, Some(0.79));
    watermark.cached(2.0, 4, Some(0.8));
    assert_eq!(watermark.ready(2.0), [4], "it does not wait for one that is not cached");
    // It is looked at again within 5 s.
    assert_eq!((watermark.asks(6.9), watermark.wake(2.0)), (Vec::new(), Some(7.0)));
    assert_eq!(watermark.asks(7.0), [3]);
    watermark.cached(7.0, 3, Some(0.0));
    assert_eq!(watermark.ready(7.0), Vec::<SessionId>::new());
    watermark.ended(8.0, 1, 8_500);
    assert_eq!(watermark.ready(8.0), [3]);
    assert_eq!((watermark.stats().direct, watermark.stats().held), (3, 1));
}

#[test]
fn a_reservation_lasts_for_the_grace() {
    let mut watermark = watermark();
    watermark.arrive(0.0, turn(1, 9_000));
    watermark.arrive(0.0, turn(2, 1_000));
    watermark.cached(0.0, 2, Some(1.0));
    assert_eq!(watermark.ready(0.0), [1, 2]);
    watermark.ended(10.0, 2, 1_100);
    assert_eq!(watermark.admitted(), 10_100, "what is reserved counts");
    watermark.arrive(70.0, turn(2, 1_200));
    assert_eq!(watermark.ready(70.0), [2]);
    watermark.ended(80.0, 2, 1_300);
    watermark.arrive(90.0, turn(3, 500));
    watermark.cached(138.0, 3, Some(0.0));
    assert_eq!((watermark.ready(138.0), watermark.admitted()), (Vec::new(), 10_300));
    assert!(
        watermark.wake(138.0).is_some_and(|at| at > 140.0 && at < 140.001),
        "it ends then"
    );
    assert_eq!((watermark.ready(140.25), watermark.admitted()), (Vec::new(), 9_000));
    watermark.release(140.25, 3);
    watermark.arrive(140.5, turn(2, 1_400));
    assert_eq!(watermark.ready(140.5), Vec::<SessionId>::new());
    // New weights: what was cached is worth nothing, and neither is a reservation for it.
    watermark.cached(140.75, 2, Some(1.0));
    watermark.forget_cache();
    assert_eq!(watermark.ready(141.0), Vec::<SessionId>::new());
    assert_eq!(watermark.wake(141.0), Some(145.75));
    assert_eq!(watermark.ready(740.5), [2], "however long, it ends");
    assert!(watermark.stats().longest_hold >= 600.0 - 1e-9);
}

proptest! {
    /// Whatever comes and whenever it ends: each turn is let go once, none waits past the bound, and what runs is counted.
    #[test]
    fn each_turn_goes_once_and_in_time(
        steps in prop::collection::vec((0_u64..12, 1_u64..6_000, 0_u8..5, 0.0_f64..40.0), 1..200)
    ) {
        let mut watermark = watermark();
        let mut now = 0.0;
        let mut waits: HashMap<SessionId, Time> = HashMap::new();
        let mut runs: HashMap<SessionId, u64> = HashMap::new();
        let mut prompts: HashMap<SessionId, u64> = HashMap::new();
        let mut ended = HashSet::new();
        for (session, tokens, what, later) in steps {
            now += later;
            match what {
                0 | 1 if !waits.contains_key(&session) && !runs.contains_key(&session) => {
                    watermark.arrive(now, turn(session, tokens));
                    waits.insert(session, now);
                    prompts.insert(session, tokens);
                }
                2 if runs.remove(&session).is_some() => {
                    watermark.ended(now, session, tokens);
                    ended.insert(session);
                }
                3 => {
                    watermark.release(now, session);
                    runs.remove(&session);
                    waits.remove(&session);
                }
                4 if waits.remove(&session).is_some() => watermark.withdraw(session),
                _ => {}
            }
            for asked in watermark.asks(now) {
                prop_assert!(waits.contains_key(&asked));
                watermark.cached(now, asked, Some(tokens as f64 / 6_000.0));
            }
            let ready = watermark.ready(now);
            let unique: HashSet<_> = ready.iter().collect();
            prop_assert_eq!(unique.len(), ready.len());
            for id in ready {
                prop_assert!(waits.remove(&id).is_some(), "{} was let go, and did not wait", id);
                runs.insert(id, prompts[&id]);
            }
            prop_assert!(waits.values().all(|since| now - since < 600.0));
            let running = runs.values().sum::<u64>();
            prop_assert!(watermark.admitted() >= running);
            // Beside them only those that are reserved count, and none that never ended a turn.
            prop_assert!(!ended.is_empty() || watermark.admitted() == running);
            prop_assert_eq!(watermark.waiting(), waits.len());
            let wake = watermark.wake(now);
            prop_assert_eq!(wake.is_some(), !waits.is_empty());
            // Later, or whoever keeps the time would not come to an end.
            prop_assert!(wake.is_none_or(|at| at > now && at <= now + 5.0));
        }
    }
}
