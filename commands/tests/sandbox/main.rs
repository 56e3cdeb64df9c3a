//! Sandboxes and the verifier for real: each test runs in namespaces, in the fallback and (where `LEGO_TEST_IMAGE` names
//! an image of a container engine that runs) in containers, and, as root, once more as an unprivileged user.
#![expect(clippy::unwrap_used, reason = "tests")]

mod commands;
#[path = "../../../tests/peers/kubernetes/fake/mod.rs"]
#[expect(dead_code, reason = "the peers use more of it")]
mod fake;
mod folders;
mod isolation;
mod lifetime;
mod speed;
mod support;
mod verifier;

#[test]
fn all_of_it_as_an_unprivileged_user() {
    support::again_as_nobody();
}
