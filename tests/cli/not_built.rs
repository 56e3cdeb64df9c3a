//! What is not built yet says so, and exits with 2.

use crate::workspace::Workspace;

#[test]
fn stages_that_are_not_built() {
    for stage in ["dashboard"] {
        insta::assert_snapshot!(format!("not_built_{stage}"), Workspace::new().lego(&[stage]));
    }
}

#[test]
fn asynchronous_training() {
    insta::assert_snapshot!(Workspace::new().lego(&["train", "--async"]));
}

#[test]
fn import_of_another_systems_variables() {
    insta::assert_snapshot!(Workspace::new().lego(&["preflight", "--import", "old.env"]));
}
