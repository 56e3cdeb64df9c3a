//! What trials of a task say of it.

use super::validation::*;
use crate::trajectory::Outcome;

fn attempt(outcome: Outcome, reward: Option<f32>, log: &str) -> Attempt {
    Attempt {
        outcome,
        reward,
        failure: None,
        hack_flags: Vec::new(),
        verify_sec: 1.0,
        log: log.to_owned(),
        tests: None,
    }
}

#[test]
fn tests_that_never_ran_are_told_from_tests_that_fail() {
    let zero = attempt(Outcome::Completed, Some(0.0), "");
    let none = attempt(Outcome::VerifierError, None, "");
    let one = attempt(Outcome::Completed, Some(1.0), "");
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    let with = |of: &Attempt, ran: bool, failed: &[&str], missing: &[&str]| Attempt {
        tests: Some(ListedTests {
            ran,
            failed: names(failed),
            missing: names(missing),
        }),
        ..of.clone()
    };
    let said = |oracle: &[Attempt], network: &[Attempt]| {
        let row = judge("a", "sum", std::slice::from_ref(&zero), oracle, network).unwrap();
        (row.class.unwrap().name(), row.detail.unwrap())
    };
    for broken in [&zero, &none] {
        let (class, detail) = said(&[with(broken, false, &[], &["t::a", "t::b", "t::c", "t::d"])], &[]);
        assert_eq!(class, "tests_did_not_run");
        assert!(
            detail.ends_with("; not in the log: t::a, t::b, t::c and 1 more"),
            "{detail}"
        );
    }
    let unrun = with(&zero, false, &[], &["t::a"]);
    assert_eq!(said(&[unrun], std::slice::from_ref(&one)).0, "needs_network");
    let failing = with(&zero, true, &["t::a"], &[]);
    assert_eq!(
        said(std::slice::from_ref(&failing), &[]),
        ("oracle_fails", "reward 0; fails: t::a".to_owned())
    );
    assert_eq!(
        said(&[one, failing], &[]),
        (
            "flaky",
            "reward 0; with the solution 1 of 2 trials earn 1; fails: t::a".to_owned()
        )
    );
}

#[test]
fn trials_tell_what_a_task_is() {
    let done = |reward: f32| attempt(Outcome::Completed, Some(reward), "");
    let lost = attempt(Outcome::InfraError, None, "");
    let none = attempt(Outcome::VerifierError, None, "");
    let late = Attempt {
        failure: Some("the tests did not end within 3s and were killed".to_owned()),
        ..none.clone()
    };
    let unbuilt = attempt(Outcome::EnvSetupFailed, None, "");
    let unpatched = attempt(
        Outcome::VerifierError,
        None,
        "lego: the patch of the tests does not apply",
    );
    let (zero, one) = (done(0.0), done(1.0));
    let row = |nop: &[&Attempt], oracle: &[&Attempt], with_network: &[&Attempt]| {
        let [nop, oracle, with_network] =
            [nop, oracle, with_network].map(|attempts| attempts.iter().map(|one| (*one).clone()).collect::<Vec<_>>());
        judge("a", "sum", &nop, &oracle, &with_network)
    };
    let is = |nop: &[&Attempt], oracle: &[&Attempt], with_network: &[&Attempt], class: Option<InvalidClass>| {
        let found = row(nop, oracle, with_network).unwrap();
        assert_eq!(found.class, class, "{nop:?} {oracle:?}");
    };
    is(&[&zero, &zero], &[&one, &one], &[], None);
    is(&[&zero, &lost], &[&one, &one], &[], None);
    is(&[&one], &[&one], &[], Some(InvalidClass::PassesBeforeTheFix));
    is(&[&zero], &[&zero], &[], Some(InvalidClass::OracleFails));
    is(&[&zero], &[&zero], &[&one], Some(InvalidClass::NeedsNetwork));
    is(&[&zero], &[&zero], &[&zero], Some(InvalidClass::OracleFails));
    is(&[&zero, &one], &[&one], &[], Some(InvalidClass::Flaky));
    is(&[&zero], &[&one, &none], &[], Some(InvalidClass::Flaky));
    is(
        &[&unbuilt],
        &[&unbuilt],
        &[],
        Some(InvalidClass::EnvironmentDoesNotBuild),
    );
    is(&[&unpatched], &[&unpatched], &[], Some(InvalidClass::PatchDoesNotApply));
    is(&[&zero], &[&late], &[], Some(InvalidClass::Timeout));
    is(&[&none], &[&none], &[], Some(InvalidClass::NoReward));
    assert_eq!(row(&[&lost], &[&one], &[]), None, "asked again");
}
