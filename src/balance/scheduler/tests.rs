//! What must hold of a lease whatever comes.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

const CAPACITY: u64 = 10_000;

fn lease() -> Lease {
    Lease::new(LeaseSettings {
        capacity: CAPACITY,
        lease: 20.0,
        max_hold: 600.0,
        tax: 0.05,
        prefill_rate: 1_000.0,
    })
}

fn turn(session: SessionId, prompt: u64) -> Turn {
    Turn { session, prompt }
}

#[test]
fn sessions_that_fit_go_at_once_and_others_wait_for_a_place() {
    let mut lease = lease();
    lease.arrive(0.0, turn(1, 6_000));
    lease.arrive(0.0, turn(2, 6_000));
    assert_eq!(lease.ready(0.0), [1]);
    assert_eq!((lease.waiting(), lease.admitted()), (1, 6_000));
    lease.ended(5.0, 1, 6_500);
    assert!(lease.ready(5.0).is_empty(), "it is idle, and its lease runs");
    assert_eq!(lease.wake(5.0), Some(25.0));
    assert_eq!(lease.ready(25.0), [2], "the lease is over");
    assert_eq!(lease.stats().paused, 1);
    // The first comes back: it waits until the second ends.
    lease.arrive(30.0, turn(1, 6_600));
    assert!(lease.ready(30.0).is_empty());
    lease.release(40.0, 2);
    assert_eq!(lease.ready(40.0), [1]);
}

#[test]
fn a_turn_of_a_session_with_a_place_is_never_held() {
    let mut lease = lease();
    lease.arrive(0.0, turn(1, 4_000));
    lease.arrive(0.0, turn(2, 4_000));
    assert_eq!(lease.ready(0.0), [1, 2]);
    lease.ended(1.0, 1, 4_500);
    lease.ended(1.0, 2, 4_500);
    // It outgrows the room: the other, idle, loses its place at once.
    lease.arrive(2.0, turn(1, 9_000));
    assert_eq!(lease.ready(2.0), [1]);
    assert_eq!(lease.stats().paused, 1);
    lease.arrive(3.0, turn(2, 4_600));
    assert!(lease.ready(3.0).is_empty());
}

#[test]
fn the_head_blocks_and_those_that_return_come_first() {
    let mut lease = lease();
    lease.arrive(0.0, turn(1, 9_000));
    assert_eq!(lease.ready(0.0), [1]);
    lease.ended(1.0, 1, 9_000);
    lease.arrive(30.0, turn(2, 9_500));
    assert_eq!(lease.ready(30.0), [2], "the first was idle for longer than its lease");
    lease.arrive(31.0, turn(3, 100));
    assert_eq!(lease.ready(31.0), [3], "it fits beside the second");
    lease.arrive(32.0, turn(4, 900));
    lease.arrive(33.0, turn(1, 9_100));
    assert!(lease.ready(33.0).is_empty());
    lease.release(34.0, 2);
    assert_eq!(lease.ready(34.0), [1], "it was there before the fourth");
}

#[test]
fn one_that_waits_too_long_takes_an_idle_place_while_the_budget_lasts() {
    let mut lease = lease();
    lease.arrive(0.0, turn(1, 9_000));
    assert_eq!(lease.ready(0.0), [1]);
    lease.arrive(0.0, turn(2, 9_000));
    // The first never idles for as long as its lease.
    let mut now = 0.0;
    let mut went = None;
    while went.is_none() && now < 2_000.0 {
        now += 10.0;
        lease.ended(now, 1, 9_000);
        went = lease.ready(now).first().copied();
        if went.is_none() {
            lease.arrive(now + 5.0, turn(1, 9_000));
            assert_eq!(lease.ready(now + 5.0), [1]);
        }
    }
    assert_eq!((went, now), (Some(2), 600.0));
    assert_eq!(lease.stats().displaced, 1);
    // 9 s of computing against 30 s of budget: twice more, and it is spent.
    lease.release(601.0, 2);
    assert!(lease.ready(601.0).is_empty());
}

#[test]
fn what_no_cache_holds_runs_alone() {
    let mut lease = lease();
    lease.arrive(0.0, turn(1, 50_000));
    assert_eq!(lease.ready(0.0), [1]);
    lease.arrive(0.0, turn(2, 10));
    assert!(lease.ready(0.0).is_empty());
    lease.release(1.0, 1);
    assert_eq!(lease.ready(1.0), [2]);
}

/// What a made-up pool does to a scheduler.
#[derive(Debug, Clone)]
enum Step {
    Arrive(SessionId, u64),
    End(SessionId, u64),
    Release(SessionId),
    Wait(f64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let session = 0_u64..12;
    prop::collection::vec(
        prop_oneof![
            (session.clone(), 1_u64..4_000).prop_map(|(session, grown)| Step::Arrive(session, grown)),
            (session.clone(), 1_u64..2_000).prop_map(|(session, grown)| Step::End(session, grown)),
            session.prop_map(Step::Release),
            (0.1_f64..40.0).prop_map(Step::Wait),
        ],
        1..300,
    )
}

proptest! {
    /// No turn is lost or sent twice, none runs beside its own session's other, and a new session is let in only where it
    /// fits or nothing else has a place.
    #[test]
    fn every_turn_is_sent_once_and_places_are_not_given_twice(steps in steps()) {
        let mut lease = lease();
        let mut now = 0.0;
        let mut tokens: HashMap<SessionId, u64> = HashMap::new();
        let mut waiting: Vec<SessionId> = Vec::new();
        let mut running: Vec<SessionId> = Vec::new();
        for step in steps {
            match step {
                Step::Arrive(session, grown) if !waiting.contains(&session) && !running.contains(&session) => {
                    let held = tokens.entry(session).or_insert(0);
                    *held = (*held + grown).min(9_000);
                    lease.arrive(now, turn(session, *held));
                    waiting.push(session);
                }
                Step::End(session, grown) if running.contains(&session) => {
                    let held = tokens.entry(session).or_insert(0);
                    *held = (*held + grown).min(9_000);
                    running.retain(|other| *other != session);
                    lease.ended(now, session, *held);
                }
                Step::Release(session) => {
                    tokens.remove(&session);
                    waiting.retain(|other| *other != session);
                    running.retain(|other| *other != session);
                    lease.release(now, session);
                }
                Step::Wait(seconds) => now += seconds,
                Step::Arrive(..) | Step::End(..) => {}
            }
            let before = running.len();
            for session in lease.ready(now) {
                let at = waiting.iter().position(|other| *other == session);
                prop_assert!(at.is_some(), "{session} was sent without a wish");
                waiting.remove(at.unwrap());
                running.push(session);
            }
            prop_assert_eq!(lease.waiting(), waiting.len());
            if running.len() > before && running.len() > 1 && lease.stats().direct == 0 {
                prop_assert!(lease.admitted() <= CAPACITY);
            }
        }
        // When all have ended, nothing is held any more.
        for session in 0..12 {
            lease.release(now, session);
        }
        prop_assert_eq!((lease.admitted(), lease.waiting()), (0, 0));
    }

    /// While the budget allows, none waits for longer than it should: here nobody is idle for as long as a lease.
    #[test]
    fn no_wait_is_longer_than_its_bound(seed in 0_u64..1_000) {
        let mut lease = Lease::new(LeaseSettings { tax: 1.0, ..LeaseSettings {
            capacity: CAPACITY, lease: 20.0, max_hold: 60.0, tax: 1.0, prefill_rate: 10_000.0,
        }});
        // Eight sessions of a third of the room each; their turns take 4 s and their tools 3.
        let mut due: Vec<(f64, SessionId, bool)> = (0..8).map(|session| ((seed % 7) as f64 * 0.1, session, true)).collect();
        let mut since: HashMap<SessionId, f64> = HashMap::new();
        let mut longest: f64 = 0.0;
        while let Some(at) = due.iter().enumerate().min_by(|a, b| a.1.0.total_cmp(&b.1.0)).map(|(at, _)| at) {
            let (now, session, sends) = due.swap_remove(at);
            if now > 2_000.0 {
                break;
            }
            if session == u64::MAX {
                // The scheduler's own wish to look again.
            } else if sends {
                since.insert(session, now);
                lease.arrive(now, turn(session, 3_000));
            } else {
                lease.ended(now, session, 3_000);
                due.push((now + 3.0, session, true));
            }
            for ready in lease.ready(now) {
                longest = longest.max(now - since.remove(&ready).unwrap_or(now));
                due.push((now + 4.0, ready, false));
            }
            if let Some(wake) = lease.wake(now) && !due.iter().any(|(_, session, _)| *session == u64::MAX) {
                due.push((wake.max(now + 0.01), u64::MAX, false));
            }
        }
        prop_assert!(longest <= 66.0, "{longest}");
        prop_assert!(since.values().all(|since| 2_000.0 - since <= 70.0));
    }
}
