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
