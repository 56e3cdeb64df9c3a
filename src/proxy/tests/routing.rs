//! Rows of experts: asked for where the run wants them, each position's once, and none where the engine said nothing.

use super::*;
use crate::config::{BuilderName, CaptureScope};

/// The positions that a segment's rows stand for, each of which must name itself.
fn positions(segment: &Segment) -> Vec<usize> {
    let mut positions = Vec::new();
    for run in &segment.routing {
        let named: Vec<usize> = run
            .rows
            .chunks(2)
            .map(|at| u16::from_le_bytes([at[0], at[1]]).into())
            .collect();
        assert_eq!(named, (run.start as usize..run.end()).collect::<Vec<_>>());
        positions.extend(named);
    }
    positions
}

async fn start(answers: Vec<Answer>) -> Harness {
    Harness::with(answers, |options| {
        if let Source::Policy(policy) = &mut options.source {
            policy.routing = true;
        }
    })
    .await
}

#[tokio::test]
async fn every_position_but_the_last_has_its_row_once() {
    let harness = start(vec![tool_call("ls").as_str().into(), "done".into()]).await;
    let (ticket, log, _folder) = harness.open_logged();
    let answer = harness.chat(&ticket, &request(&opening())).await;
    let mut messages = opening();
    messages.push(assistant(&answer));
    messages.push(tool_result(&answer, 0, "a"));
    harness.chat(&ticket, &request(&messages)).await;
    let asked: Vec<Option<u32>> = {
        let requests = harness.engine.requests.lock().unwrap();
        requests.iter().map(|request| request.routing_from).collect()
    };
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert_eq!(capture.segments.len(), 1);
    let segment = &capture.segments[0];
    assert_eq!(positions(segment), (0..segment.total_tokens() - 1).collect::<Vec<_>>());
    // The second call tells only what the first could not.
    let first = segment.routing[0].end() as u32;
    assert_eq!(asked, [Some(0), Some(first)]);
    let again = recover(&log)
        .unwrap()
        .capture(CaptureScope::Main, BuilderName::Segments);
    assert_eq!(again.segments, capture.segments);
}

#[tokio::test]
async fn what_a_lost_engine_sampled_has_no_rows() {
    let mut lost: Answer = "one two three four".into();
    lost.lose_after = Some(2);
    let harness = start(vec![lost, " three four".into()]).await;
    let ticket = harness.open();
    harness.chat(&ticket, &request(&opening())).await;
    let prompt = harness.engine.prompts()[0].len();
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    let segment = &capture.segments[0];
    // The scripted engine tells what it had fed before it was lost; a server tells nothing then.
    let rows = positions(segment);
    assert!(rows.contains(&(prompt + 1)) && !rows.contains(&(segment.total_tokens() - 1)));
    assert_eq!(rows.len(), rows.iter().collect::<std::collections::BTreeSet<_>>().len());
}

#[tokio::test]
async fn nothing_is_asked_where_the_run_does_not_want_it() {
    let harness = Harness::new(&["a"]).await;
    let ticket = harness.open();
    harness.chat(&ticket, &request(&opening())).await;
    assert_eq!(harness.engine.requests.lock().unwrap()[0].routing_from, None);
    let capture = harness.proxy.close_session(&ticket.key).await.unwrap();
    assert!(capture.segments[0].routing.is_empty());
}
