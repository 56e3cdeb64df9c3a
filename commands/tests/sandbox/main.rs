//! Local sandboxes and the verifier for real: each test runs in namespaces and in the fallback, and (as
//! root) once more as an unprivileged user.
#![expect(clippy::unwrap_used, reason = "tests")]

mod commands;
mod folders;
mod isolation;
mod lifetime;
mod support;
mod verifier;

#[test]
fn all_of_it_as_an_unprivileged_user() {
    support::again_as_nobody();
}
