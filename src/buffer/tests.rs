//! The ledger: what is consumed, dropped, voided, torn, damaged.

use std::collections::BTreeSet;

use fs_err as fs;
use proptest::prelude::*;

use super::*;
use crate::trajectory::EpisodeId;

fn ids(names: &[&str]) -> Vec<EpisodeId> {
    names.iter().copied().map(EpisodeId::from).collect()
}

#[test]
fn lines_are_as_specified_and_a_resume_voids_what_the_checkpoint_does_not_hold() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("buffer.jsonl");
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.consume(1, &ids(&["a", "b"])).unwrap();
    ledger.drop_episodes(1, &ids(&["c"]), "stale").unwrap();
    ledger.consume(2, &ids(&["d"])).unwrap();
    drop(ledger);

    let mut ledger = Ledger::open(&path).unwrap();
    assert_eq!(ledger.void_after(1).unwrap(), ids(&["d"]));
    assert_eq!(ledger.void_after(1).unwrap(), []);
    assert!(ledger.view().is_available(&"d".into()));
    ledger.consume(2, &ids(&["d"])).unwrap();
    let expected = [
        r#"{"v":1,"seq":0,"kind":"consumed","update":1,"episode_ids":["a","b"],"reason":null}"#,
        r#"{"v":1,"seq":1,"kind":"dropped","update":1,"episode_ids":["c"],"reason":"stale"}"#,
        r#"{"v":1,"seq":2,"kind":"consumed","update":2,"episode_ids":["d"],"reason":null}"#,
        r#"{"v":1,"seq":3,"kind":"void","update":1,"episode_ids":["d"],"reason":"resumed from the checkpoint of update 1"}"#,
        r#"{"v":1,"seq":4,"kind":"consumed","update":2,"episode_ids":["d"],"reason":null}"#,
    ];
    assert_eq!(fs::read_to_string(&path).unwrap().lines().collect::<Vec<_>>(), expected);
    let view = Ledger::read_view(&path).unwrap();
    assert_eq!(view.dropped().collect::<Vec<_>>(), [(&EpisodeId::from("c"), "stale")]);
    assert_eq!(view.consumed().count(), 3);
    assert_eq!(view.fate(&"d".into()), Some(&Fate::Consumed { update: 2 }));
}

#[test]
fn an_episode_is_consumed_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("buffer.jsonl");
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.consume(1, &ids(&["a"])).unwrap();
    let message = ledger.consume(2, &ids(&["b", "a"])).unwrap_err().to_string();
    assert!(message.ends_with("episode a was consumed by update 1 already; an episode trains at most once"));
    assert!(
        ledger
            .consume(2, &ids(&["b", "b"]))
            .unwrap_err()
            .to_string()
            .contains("given twice in one entry")
    );
    assert!(ledger.view().is_available(&"b".into()));
    assert_eq!(Ledger::read(&path).unwrap().len(), 1);
}

#[test]
fn a_torn_last_line_never_was_and_any_other_damage_is_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("buffer.jsonl");
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.consume(1, &ids(&["a"])).unwrap();
    ledger.consume(2, &ids(&["b"])).unwrap();
    let whole = fs::read_to_string(&path).unwrap();
    let first = whole.find('\n').unwrap() + 1;
    for end in first..whole.len() {
        fs::write(&path, &whole[..end]).unwrap();
        assert_eq!(Ledger::read(&path).unwrap().len(), 1, "cut at {end}");
    }
    let mut ledger = Ledger::open(&path).unwrap();
    ledger.consume(2, &ids(&["b"])).unwrap();
    assert_eq!(fs::read_to_string(&path).unwrap(), whole);

    let message = |text: &str| {
        fs::write(&path, text).unwrap();
        Ledger::open(&path).unwrap_err().to_string()
    };
    assert!(
        message(&whole.replacen("consumed", "eaten", 1))
            .contains("buffer.jsonl:1: not a ledger entry: unknown variant `eaten`")
    );
    assert!(message(&whole[first..]).ends_with("1: expected seq 0, found 1; entries are missing or out of order"));
    assert!(message(&whole.replace("\"b\"", "\"a\"")).ends_with("2: episode a was consumed by update 1 already"));
    assert!(
        message(&whole.replacen("\"v\":1", "\"v\":2", 1)).ends_with("written with version 2, this release reads 1")
    );
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Updates of a run that is killed now and then: in the history that survives, every episode is consumed once.
    #[test]
    fn every_episode_is_consumed_once_in_the_surviving_history(kills in prop::collection::vec((1u64..4, 0u64..4), 1..5)) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("buffer.jsonl");
        let all: Vec<EpisodeId> = (0..40).map(|at| format!("e{at:02}").as_str().into()).collect();
        let mut checkpoint = 0;
        for (after_checkpoint, lost) in kills {
            let mut ledger = Ledger::open(&path).unwrap();
            ledger.void_after(checkpoint).unwrap();
            for update in checkpoint + 1..=checkpoint + after_checkpoint + lost {
                let next: Vec<EpisodeId> = all.iter().filter(|id| ledger.view().is_available(id)).take(2).cloned().collect();
                ledger.consume(update, &next).unwrap();
            }
            checkpoint += after_checkpoint;
        }
        let mut ledger = Ledger::open(&path).unwrap();
        ledger.void_after(checkpoint).unwrap();
        let consumed: BTreeSet<EpisodeId> = ledger.view().consumed().map(|(id, _)| id.clone()).collect();
        prop_assert_eq!(consumed.len() as u64, checkpoint.min(20) * 2);
        prop_assert!(all.iter().take(consumed.len()).all(|id| consumed.contains(id)), "an episode was passed over");
    }
}
