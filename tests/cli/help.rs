//! Help texts.

use crate::workspace::Workspace;

#[test]
fn alone_it_shows_short_help() {
    insta::assert_snapshot!(Workspace::new().lego(&[]));
}

#[test]
fn help_names_the_stages_in_their_order() {
    insta::assert_snapshot!(Workspace::new().lego(&["--help"]));
}

#[test]
fn every_stage_has_help_with_examples() {
    for stage in [
        "prepare",
        "preflight",
        "serve-proxy",
        "balance",
        "rollout",
        "train",
        "dashboard",
        "diagnose",
    ] {
        let text = Workspace::new().lego(&[stage, "--help"]);
        assert!(
            text.starts_with("exit: 0") && text.contains("Examples:\n"),
            "{stage}: {text}"
        );
        insta::assert_snapshot!(format!("help_{stage}"), text);
    }
}

#[test]
fn a_misspelt_stage_or_flag_is_refused_with_the_nearest() {
    insta::assert_snapshot!(Workspace::new().lego(&["trane"]));
    insta::assert_snapshot!(Workspace::new().lego(&["train", "--step", "3"]));
}
