//! What must hold of every policy.

use std::collections::{HashMap, HashSet};

use proptest::prelude::*;

use super::*;

fn pool(ids: &[ReplicaId]) -> Vec<Candidate> {
    let one = |&id: &ReplicaId| Candidate {
        id,
        hash: stable_hash(format!("http://replica-{id}:8000").as_bytes()),
        tokens: 0,
        requests: 0,
        queued: 0,
        rate: 1_000.0,
        opens: true,
        version: PolicyVersion::default(),
    };
    ids.iter().map(one).collect()
}

fn wish(session: &str) -> Wish<'_> {
    Wish {
        session: Some(session),
        tokens: 100,
        blocks: &[],
    }
}

#[test]
fn sessions_spread_stay_and_move_when_they_must() {
    let mut placement = Placement::new(PlacementPolicy::Sticky, 1);
    let names: Vec<String> = (0..40).map(|index| format!("s{index}")).collect();
    let mut homes = HashMap::new();
    for name in &names {
        let (id, reason) = placement.place(&wish(name), &pool(&[0, 1, 2, 3])).unwrap();
        assert_eq!(reason, Reason::New);
        homes.insert(name, id);
    }
    assert!((0..4).all(|id| placement.sessions_of(id) == 10), "the fewest tokens");
    // One replica is out: its sessions spread, the others' stay.
    let mut orphans = HashSet::new();
    for name in &names {
        let (id, reason) = placement.place(&wish(name), &pool(&[0, 1, 3])).unwrap();
        if homes[name] == 2 {
            assert_eq!(reason, Reason::Orphan);
            orphans.insert(id);
        } else {
            assert_eq!((id, reason), (homes[name], Reason::Home));
        }
        homes.insert(name, id);
    }
    assert_eq!(orphans.len(), 3, "not all on the first healthy one");
    // It is back, and nothing moves back.
    for name in &names {
        let placed = placement.place(&wish(name), &pool(&[0, 1, 2, 3]));
        assert_eq!(placed, Some((homes[name], Reason::Home)));
    }
    assert_eq!(
        placement.place(&wish("late"), &pool(&[0, 1, 2, 3])),
        Some((2, Reason::New))
    );
    for name in &names {
        placement.end(name);
    }
    assert_eq!(placement.sessions().count(), 1);
    assert_eq!(placement.place(&wish("none"), &[]), None);
}

#[test]
fn ties_do_not_starve_the_rest() {
    let mut placement = Placement::new(PlacementPolicy::LeastLoad, 1);
    let mut counts = [0; 4];
    for _ in 0..200 {
        let (id, _) = placement.place(&Wish::default(), &pool(&[0, 1, 2, 3])).unwrap();
        counts[id as usize] += 1;
    }
    assert!(counts.iter().all(|&count| count > 20), "{counts:?}");
}

#[test]
fn a_hash_is_the_same_in_every_process_and_bounded() {
    let mut here = Placement::new(PlacementPolicy::ConsistentHash, 1);
    let mut there = Placement::new(PlacementPolicy::ConsistentHash, 2);
    let mut all = pool(&[0, 1, 2, 3]);
    for index in 0..50 {
        let name = format!("s{index}");
        let first = here.place(&wish(&name), &all);
        let mut reversed: Vec<_> = all.iter().copied().rev().collect();
        assert_eq!(first, there.place(&wish(&name), &reversed));
        // Without one of the others it stays.
        let (id, _) = first.unwrap();
        reversed.retain(|one| one.id == id || one.id % 2 == 0);
        assert_eq!(here.place(&wish(&name), &reversed), first);
    }
    let (home, _) = here.place(&wish("s"), &all).unwrap();
    all[home as usize].requests = 100;
    let (other, reason) = here.place(&wish("s"), &all).unwrap();
    assert!(other != home && reason == Reason::HashPassed);
}

#[test]
fn the_longest_beginning_wins_unless_its_replica_has_too_much_to_do() {
    let mut placement = Placement::new(PlacementPolicy::Prefix, 1);
    let mut all = pool(&[0, 1]);
    let with = |session, blocks| Wish {
        session: Some(session),
        tokens: 10,
        blocks,
    };
    let (first, _) = placement.place(&with("a", &[1, 2, 3]), &all).unwrap();
    assert_eq!(
        placement.place(&with("b", &[1, 2, 9]), &all),
        Some((first, Reason::Prefix))
    );
    all[first as usize].requests = 50;
    let (other, _) = placement.place(&with("c", &[1, 2, 3]), &all).unwrap();
    assert_ne!(other, first);
    placement.forget_cache(first);
    all[first as usize].requests = 0;
    assert_eq!(
        placement.place(&with("d", &[1, 2, 3]), &all),
        Some((other, Reason::Prefix))
    );
}

/// As weights are loaded replica after replica.
#[test]
fn no_turn_goes_to_older_weights_than_its_last_one() {
    let newer = PolicyVersion { lineage: 0, update: 1 };
    let mut placement = Placement::new(PlacementPolicy::Sticky, 1);
    let mut all = pool(&[0, 1]);
    let (home, _) = placement.place(&wish("a"), &all).unwrap();
    let other = 1 - home;
    all[home as usize].version = newer;
    placement.saw("a", newer);
    placement.saw("a", PolicyVersion::default());
    placement.saw("unknown", newer);
    let older = [all[other as usize]];
    assert_eq!(placement.place(&wish("a"), &older), None);
    assert!(!placement.has_place(Some("a"), &older) && placement.has_place(Some("b"), &older));
    // Turns that end change nothing of it.
    placement.ended("a", 300);
    assert_eq!(placement.home("a").unwrap().version, newer);
    all[other as usize].version = newer;
    assert_eq!(
        placement.place(&wish("a"), &[all[other as usize]]),
        Some((other, Reason::Orphan))
    );
}

/// The price of a move is the whole context: what would be long for a short one is not for a long one.
#[test]
fn a_session_moves_where_waiting_costs_more_than_its_context() {
    let mut placement = Placement::new(PlacementPolicy::Priced, 1);
    let turn = |session, tokens| Wish {
        session: Some(session),
        tokens,
        blocks: &[],
    };
    let mut all = pool(&[0, 1]);
    let (home, _) = placement.place(&turn("a", 100), &all[..1]).unwrap();
    placement.place(&turn("b", 100), &all[..1]).unwrap();
    placement.ended("a", 2_000);
    placement.ended("b", 9_000);
    all[0].queued = 5_000;
    // 5.3 s against 9.3 s there; 5.3 s against 2.3 s.
    assert_eq!(placement.place(&turn("b", 9_300), &all), Some((home, Reason::Home)));
    assert_eq!(placement.home("b").unwrap().fresh(), 300);
    assert_eq!(placement.place(&turn("a", 2_300), &all), Some((1, Reason::Moved)));
    assert_eq!(placement.home("a").unwrap().fresh(), 2_300);
    placement.ended("b", 9_400);
    placement.forget_cache(home);
    placement.place(&turn("b", 9_500), &all[..1]).unwrap();
    assert_eq!(placement.home("b").unwrap().fresh(), 9_500, "new weights");
    // Where the other one is as busy, or slower, or takes none, or nothing is known, all stay.
    let mut placement = Placement::new(PlacementPolicy::Priced, 1);
    placement.place(&turn("a", 100), &all[..1]).unwrap();
    for (queued, rate, opens) in [
        (3_000, 1_000.0, true),
        (0, 400.0, true),
        (0, 1_000.0, false),
        (0, 0.0, true),
    ] {
        (all[1].queued, all[1].rate, all[1].opens) = (queued, rate, opens);
        placement.ended("a", 2_000);
        assert_eq!(
            placement.place(&turn("a", 2_300), &all),
            Some((0, Reason::Home)),
            "{queued} {rate} {opens}"
        );
    }
    (all[1].rate, all[1].opens, all[0].rate) = (1_000.0, true, 0.0);
    assert_eq!(placement.place(&turn("a", 2_300), &all), Some((0, Reason::Home)));
    // A plain session stays however long it waits.
    let mut placement = Placement::new(PlacementPolicy::Sticky, 1);
    placement.place(&turn("a", 100), &all[..1]).unwrap();
    assert_eq!(
        placement.place(&turn("a", 110), &pool(&[0, 1])),
        Some((0, Reason::Home))
    );
}

#[test]
fn one_that_takes_no_new_sessions_keeps_those_that_stay() {
    let mut all = pool(&[0, 1]);
    let mut placement = Placement::new(PlacementPolicy::Sticky, 1);
    let (home, _) = placement.place(&wish("a"), &all).unwrap();
    all[home as usize].opens = false;
    assert_eq!(placement.place(&wish("a"), &all), Some((home, Reason::Home)));
    for name in ["b", "c", "d"] {
        assert_eq!(placement.place(&wish(name), &all), Some((1 - home, Reason::New)));
    }
    assert_eq!(placement.place(&wish("e"), &[all[home as usize]]), None);
    // Where sessions stay nowhere there is nothing to keep.
    let mut placement = Placement::new(PlacementPolicy::RoundRobin, 1);
    for _ in 0..4 {
        assert_eq!(placement.place(&wish("a"), &all), Some((1 - home, Reason::RoundRobin)));
    }
}

proptest! {
    /// Whatever comes and goes: only sessions of a replica that is gone move, and one is chosen of those that are there.
    #[test]
    fn only_a_dead_replicas_sessions_move(steps in prop::collection::vec((0_u8..20, 1_u8..16), 1..200)) {
        let mut placement = Placement::new(PlacementPolicy::Sticky, 7);
        let mut homes: HashMap<u8, ReplicaId> = HashMap::new();
        for (session, mask) in steps {
            let up: Vec<ReplicaId> = (0..4).filter(|id| mask & (1 << id) != 0).collect();
            let name = format!("s{session}");
            let (id, _) = placement.place(&wish(&name), &pool(&up)).unwrap();
            prop_assert!(up.contains(&id));
            if let Some(before) = homes.insert(session, id) && up.contains(&before) {
                prop_assert_eq!(id, before);
            }
            let sessions: usize = (0..4).map(|id| placement.sessions_of(id)).sum();
            prop_assert_eq!(sessions, homes.len());
        }
    }
}
