//! What is not built yet says so, and exits with 2.

use crate::workspace::Workspace;

#[test]
fn stages_that_are_not_built() {
    insta::assert_snapshot!("not_built_balance", Workspace::new().lego(&["balance"]));
}
