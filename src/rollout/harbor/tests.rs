//! What Harbor's classes of exception count as.

use super::failure::outcome;
use super::result::{HarborResult, with_exception};
use super::without_effect;
use crate::config::{HumanDuration, SandboxSection, ScaffoldSection};
use crate::proxy::SessionCapture;
use crate::rollout::outcome::Failure;
use crate::trajectory::Outcome;

fn called(change: fn(&mut SessionCapture)) -> SessionCapture {
    let mut capture = SessionCapture::default();
    capture.audit.num_calls = 3;
    change(&mut capture);
    capture
}

fn of(class: &str, reward: Option<f64>) -> Result<Outcome, (Outcome, bool)> {
    outcome(&with_exception(class, reward), &called(|_| {}), true)
        .map_err(|Failure { outcome, retry, .. }| (outcome, retry))
}

#[test]
fn each_class_is_whose_doing_harbor_says_it_is() {
    for class in [
        "",
        "NonZeroAgentExitCodeError",
        "AgentTimeoutError",
        "OutputLengthExceededError",
        "SomethingNew",
    ] {
        let graded = of(class, Some(1.0)).unwrap();
        assert!(graded.is_graded(), "{class}: {graded:?}");
        assert!(of(class, None).is_err(), "{class} without a reward");
    }
    assert_eq!(of("", Some(1.0)), Ok(Outcome::Completed));
    assert_eq!(of("AgentTimeoutError", Some(0.0)), Ok(Outcome::Timeout));
    assert_eq!(of("ContextWindowExceededError", Some(0.0)), Ok(Outcome::Overlong));
    assert_eq!(of("NonZeroAgentExitCodeError", Some(1.0)), Ok(Outcome::AgentError));
    // A reward does not make good what took the endpoint or the settings from the agent.
    assert_eq!(
        of("ApiInternalServerError", Some(1.0)),
        Err((Outcome::InfraError, true))
    );
    assert_eq!(of("AuthenticationError", Some(1.0)), Err((Outcome::InfraError, false)));
    assert_eq!(of("CancelledError", Some(1.0)), Err((Outcome::Cancelled, false)));
    assert_eq!(
        of("RewardFileNotFoundError", None),
        Err((Outcome::VerifierError, false))
    );
    assert_eq!(of("GKEExecStreamClosedError", None), Err((Outcome::InfraError, true)));
    // The agent ran, and can exhaust the memory to get out of a bad grade: the tests are asked without it.
    assert_eq!(
        of("SandboxLikelyOutOfMemoryError", None),
        Err((Outcome::VerifierError, false))
    );
    assert_eq!(of("", None), Err((Outcome::VerifierError, false)));
}

#[test]
fn what_failed_before_the_agent_is_tried_again() {
    for class in [
        "EnvironmentStartTimeoutError",
        "SandboxLikelyOutOfMemoryError",
        "RuntimeError",
    ] {
        let text = format!(r#"{{"exception_info": {{"exception_type": "{class}", "exception_message": "m"}}}}"#);
        let result: HarborResult = serde_json::from_str(&text).unwrap();
        let failure = outcome(&result, &SessionCapture::default(), true).unwrap_err();
        assert_eq!(
            (failure.outcome, failure.retry),
            (Outcome::EnvSetupFailed, true),
            "{class}"
        );
        assert_eq!(failure.reason, format!("{class}: m"));
    }
}

#[test]
fn the_proxy_knows_better_why_an_agent_ended() {
    let capped = called(|capture| capture.turn_cap_reached = true);
    let ended = |class: &str, capture: &SessionCapture| outcome(&with_exception(class, Some(1.0)), capture, true);
    assert_eq!(ended("ApiRateLimitError", &capped).unwrap(), Outcome::MaxTurnsReached);
    assert_eq!(ended("", &capped).unwrap(), Outcome::MaxTurnsReached);
    let silent = ended("", &SessionCapture::default()).unwrap_err();
    assert_eq!(silent.reason, "the agent ended without a model call");
    assert_eq!(
        outcome(&with_exception("", Some(0.0)), &SessionCapture::default(), false).unwrap(),
        Outcome::Completed
    );
}

#[test]
fn rewards_are_read_as_in_our_own_trials() {
    let read = |rewards: &str| {
        let text = format!(r#"{{"verifier_result": {{"rewards": {rewards}}}}}"#);
        let result: HarborResult = serde_json::from_str(&text).unwrap();
        result.verdict().map(|verdict| verdict.reward)
    };
    assert_eq!(read(r#"{"reward": 1, "style": 0.5}"#), Ok(1.0));
    assert_eq!(read(r#"{"accuracy": 0.25}"#), Ok(0.25));
    assert!(
        read(r#"{"a": 1, "b": 0}"#)
            .unwrap_err()
            .contains("none of them is named `reward`")
    );
    assert!(read("null").unwrap_err().contains("no reward"));
}

#[test]
fn settings_that_harbor_does_not_follow_are_named() {
    let mut sandbox = SandboxSection::default();
    let mut scaffold = ScaffoldSection::default();
    assert!(without_effect(&sandbox, &scaffold).is_empty());
    sandbox.pids = Some(100);
    sandbox.timeouts.setup = Some(HumanDuration::from_secs(1));
    scaffold.args = vec!["--verbose".to_owned()];
    assert_eq!(
        without_effect(&sandbox, &scaffold),
        ["sandbox.pids", "sandbox.timeouts.setup", "scaffold.args"]
    );
}
