//! Objects of a meeting place in a folder: once and whole.

use std::time::Duration;

use super::*;
use crate::trajectory::PolicyVersion;

fn published(beat: u64) -> Published {
    Published {
        v: Published::VERSION,
        beat,
        run: "r".to_owned(),
        finished: false,
        step: 3,
        version: PolicyVersion { lineage: 1, update: 6 },
        weights: "v1_6".to_owned(),
        order: Order {
            seed: 1,
            tasks: 2,
            tasks_sha256: "ab".to_owned(),
            shuffle: true,
            epochs: None,
            required: 2,
            trials: 4,
            settings: [("rollout.temperature".to_owned(), "1.0".to_owned())].into(),
        },
        settled_step: 2,
        cursor: 4,
        settled_groups: 4,
        begin_below: 10,
    }
}

#[tokio::test]
async fn what_a_trainer_says_is_read_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let meeting = Meeting::open(folder.path().to_str().unwrap()).unwrap();
    assert_eq!(meeting.published().await.unwrap(), None);
    meeting.publish(&published(1)).await.unwrap();
    meeting.publish(&published(2)).await.unwrap();
    assert_eq!(meeting.published().await.unwrap(), Some(published(2)));
    let path = folder.path().join("published.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"v\":1", "\"v\":2")).unwrap();
    let error = meeting.published().await.unwrap_err().to_string();
    assert!(
        error.contains("published.json: expected version 1, found: version 2"),
        "{error}"
    );
    std::fs::write(&path, "{").unwrap();
    let error = meeting.published().await.unwrap_err().to_string();
    assert!(error.contains("expected what a trainer published"), "{error}");
}

#[tokio::test]
async fn a_group_is_claimed_by_one() {
    let folder = tempfile::tempdir().unwrap();
    let meeting = Meeting::open(&format!("file://{}", folder.path().display())).unwrap();
    let names: Vec<String> = (0..8).map(|at| format!("r{at}")).collect();
    let claims = futures_util::future::join_all(names.iter().map(|name| meeting.claim(7, 0, name))).await;
    let owners: std::collections::BTreeSet<String> = claims.into_iter().map(Result::unwrap).collect();
    assert_eq!(owners.len(), 1, "{owners:?}");
    assert_eq!(meeting.claim(7, 1, "heir").await.unwrap(), "heir");
    assert_eq!(meeting.claim(7, 1, "late").await.unwrap(), "heir");
}

#[test]
fn who_does_not_count_up_is_dead() {
    let mut pulse = Pulse::new(Duration::from_millis(40));
    assert!(pulse.beats("a", 1));
    std::thread::sleep(Duration::from_millis(50));
    assert!(!pulse.beats("a", 1));
    assert!(pulse.beats("a", 2));
}

#[test]
fn another_order_is_named_by_its_key() {
    let mine = published(0).order;
    assert_eq!(mine.difference(&mine), None);
    let theirs = Order {
        trials: 8,
        ..mine.clone()
    };
    assert_eq!(mine.difference(&theirs).unwrap().0, "rollout.group_size");
    let colder = Order {
        settings: [("rollout.temperature".to_owned(), "0.2".to_owned())].into(),
        ..mine.clone()
    };
    let found = mine.difference(&colder).unwrap();
    assert_eq!(
        found,
        ("rollout.temperature".to_owned(), "1.0".to_owned(), "0.2".to_owned())
    );
}
