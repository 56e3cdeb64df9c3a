//! Turns that are held: whose fault it is that nobody answered.

use super::*;
use crate::balance::hold::{HoldRule, HoldSettings};
use crate::balance::{Balancing, Replicas};

/// One session at a time fits, and an idle one keeps its place.
fn alone() -> Balancing {
    Balancing {
        hold: Some(HoldSettings {
            rule: HoldRule::Lease {
                lease: Duration::from_mins(10),
                tax: 0.05,
            },
            capacity: Some(1),
            max_hold: Duration::from_mins(10),
            idle_ttl: Duration::from_mins(10),
        }),
        ..Balancing::default()
    }
}

#[tokio::test]
async fn an_agent_that_gives_up_while_its_turn_is_held_was_failed_by_the_engine() {
    let mut balanced = None;
    let slow = Answer {
        hold_after: Some(1),
        ..Answer::from("one two")
    };
    let harness = Harness::over(quickstart(), vec![slow], |options| {
        let Source::Policy(policy) = &mut options.source else {
            return;
        };
        let engines = vec![("r".to_owned(), Arc::clone(&policy.engine))];
        let replicas = Arc::new(Replicas::balanced(engines, alone()));
        policy.engine = Arc::clone(&replicas) as _;
        balanced = Some(replicas);
    })
    .await;
    let balanced = balanced.unwrap();
    let held = || crate::inference::Engine::balanced(balanced.as_ref()).unwrap().held;
    let [runs, waits] = [harness.open(), harness.open()];
    let mut sent = Vec::new();
    for (ticket, expected) in [(&runs, 0), (&waits, 1)] {
        let post = harness.post(ticket, &request(&opening())).send();
        sent.push(tokio::spawn(post));
        let begun = || harness.engine.requests.lock().unwrap().len() == 1;
        eventually("it has come", || begun() && held() == expected).await;
    }
    // Their time is over. One was being answered, and the other was not let go.
    let capture = harness.proxy.close_session(&waits.key).await.unwrap();
    assert_eq!((capture.n_engine_errors, capture.ledger.total()), (1, 0));
    assert_eq!(held(), 0);
    let capture = harness.proxy.close_session(&runs.key).await.unwrap();
    assert_eq!(capture.n_engine_errors, 0);
    for request in sent {
        let _ = request.await.unwrap();
    }
}
