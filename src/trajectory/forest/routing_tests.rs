//! Rows of experts along a path.

use super::tests::{call, export_all, ones};
use super::*;
use crate::trajectory::{Experts, RoutedRows};

#[test]
fn rows_of_experts_are_put_together_and_gaps_stay_gaps() {
    let experts = Experts {
        layers: 2,
        top_k: 1,
        count: 8,
    };
    let rows = |start: u32, values: &[u8]| RoutedRows {
        start,
        experts,
        rows: values.iter().flat_map(|&value| [value, value + 1]).collect(),
    };
    let mut forest = CallForest::default();
    // 4 tokens give 3 rows; the next call begins with the one that was missing.
    let first = [rows(0, &[0, 1, 2])];
    let record = |prompt: &[u32], output: &[u32], routing: &[RoutedRows], forest: &mut CallForest| {
        forest.record(CallRecord {
            routing,
            ..call(prompt, output, &ones(output))
        })
    };
    record(&[1, 2], &[10, 11], &first, &mut forest).unwrap();
    let second = [rows(3, &[3, 4, 5])];
    record(&[1, 2, 10, 11, 3, 4], &[20], &second, &mut forest).unwrap();
    // One whose engine said nothing of the prompt behind the last answer.
    let third = [rows(8, &[6])];
    record(&[1, 2, 10, 11, 3, 4, 20, 5], &[30, 31], &third, &mut forest).unwrap();
    let export = export_all(&forest);
    let segment = &export.segments[0];
    let runs: Vec<(u32, usize)> = segment.routing.iter().map(|run| (run.start, run.end())).collect();
    assert_eq!(runs, [(0, 3), (3, 6), (8, 9)]);
    assert_eq!(segment.routing[1].rows, [3, 4, 4, 5, 5, 6]);
    for wrong in [vec![rows(7, &[0, 0, 0])], vec![rows(0, &[0, 0]), rows(1, &[0])]] {
        let refused = record(&[1, 2, 10, 11, 3, 4, 20, 5], &[40], &wrong, &mut forest);
        assert_eq!(refused, Err(ForestError::Routing { total: 9 }));
    }
    let mut torn = rows(0, &[0]);
    torn.rows.pop();
    assert!(record(&[7], &[8], &[torn], &mut forest).is_err());
}
