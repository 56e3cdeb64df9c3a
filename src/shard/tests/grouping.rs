//! Rows back to episodes: what is whole, what counts, and what is wrong.

use super::*;

#[test]
fn half_an_episode_and_an_episode_twice_are_refused() {
    let rows = episode_rows(&episode("e", 1, vec![segment(vec![1], &[(1, true, -1.0)], true); 2]));
    let half = group_episodes(rows[1..].to_vec()).unwrap_err().to_string();
    assert_eq!(
        half,
        "episode e, segment 1: 1 rows for 2 segments; a shard is missing, or is given twice"
    );
    let twice: Vec<Row> = rows.iter().chain(&rows).cloned().collect();
    assert!(
        group_episodes(twice)
            .unwrap_err()
            .to_string()
            .contains("4 rows for 2 segments")
    );
}

#[test]
fn one_bad_row_hides_no_other() {
    let mut rows: Vec<Row> = ["a", "b", "c", "d"]
        .iter()
        .flat_map(|name| episode_rows(&episode(name, 1, vec![segment(vec![1], &[(1, true, -1.0)], true); 2])))
        .collect();
    rows[0].response_mask = Some(vec![7]);
    rows[1].outcome = "fine".into();
    rows[4].response_logprobs = Some(vec![5.0]);
    rows.remove(7);
    let sorted = sort_rows(rows);
    let told: Vec<String> = sorted.faults.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        [
            "episode a, segment 0: mask at 0 is 7, expected 0 or 1",
            "episode a, segment 1: `fine` is not an outcome",
            "episode c, segment 0: log-prob at 0 (mask 1) is 5",
            "episode d, segment 0: 1 rows for 2 segments; a shard is missing, or is given twice",
        ]
    );
    let names = |ids: Vec<&str>| ids.join(" ");
    assert_eq!(
        names(sorted.episodes.iter().map(|e| e.episode_id.0.as_str()).collect()),
        "b"
    );
    assert_eq!(
        names(sorted.faulty.iter().map(|row| row.episode_id.as_str()).collect()),
        "a c d"
    );
}

#[test]
fn the_last_try_at_an_episode_counts() {
    let failed = |attempt| Episode {
        attempt,
        reward: None,
        rewards: [].into(),
        outcome: Outcome::InfraError,
        drop_reason: Some("infra_error".into()),
        ..episode("e", 1, vec![])
    };
    let graded = Episode {
        attempt: 3,
        ..simple("e", 1)
    };
    let rows = |tries: &[Episode]| tries.iter().flat_map(episode_rows).collect::<Vec<_>>();
    for tries in [
        [failed(0), failed(2), graded.clone()],
        [graded.clone(), failed(0), failed(2)],
    ] {
        assert_eq!(group_episodes(rows(&tries)).unwrap(), std::slice::from_ref(&graded));
    }
    let lost = group_episodes(rows(&[graded, failed(4)])).unwrap_err().to_string();
    assert!(
        lost.contains("episode e") && lost.contains("try 3 was graded, yet there is try 4"),
        "{lost}"
    );
}
