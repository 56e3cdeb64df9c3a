//! Run configs that cannot be used, each with its place.

use crate::workspace::Workspace;

fn said(run: &str, arguments: &[&str]) -> String {
    Workspace::new().model().file("run.toml", run).lego(arguments)
}

#[test]
fn a_misspelt_key() {
    insta::assert_snapshot!(said("\n[rollout]\ngroup_sise = 4\n", &["train"]));
}

#[test]
fn a_misspelt_choice_and_a_wrong_type_together() {
    insta::assert_snapshot!(said(
        "[train]\nalgorithm = \"grppo\"\nsteps = \"ten\"\n",
        &["preflight"]
    ));
}

#[test]
fn no_toml() {
    insta::assert_snapshot!(said("[run]\nname = first\n", &["train"]));
}

#[test]
fn a_part_that_is_not_built() {
    insta::assert_snapshot!(said(
        "[sandbox]\nbackend = \"harbor\"\n[engine]\nweight_sync = \"lora\"\n",
        &["rollout", "-o", "s"]
    ));
}

#[test]
fn a_flag_that_sets_nonsense() {
    insta::assert_snapshot!(said(
        "",
        &["train", "--set", "train.stepz=3", "--set", "rollout.group_size=many"]
    ));
}

#[test]
fn a_variable_that_sets_nonsense() {
    let work = Workspace::new().file("run.toml", "");
    let mut command = work.command(&["train"]);
    command.env("LEGO_ROLLOUT__GROUP_SISE", "4");
    insta::assert_snapshot!(work.session(command));
}

#[test]
fn no_file() {
    insta::assert_snapshot!(Workspace::new().lego(&["train"]));
}

#[test]
fn a_base_file_that_is_missing() {
    insta::assert_snapshot!(said("extends = [\"base.toml\"]\n", &["train"]));
}

#[test]
fn a_missing_model() {
    insta::assert_snapshot!(said(
        "[policy]\nmodel = \"modle\"\n[data]\ntrain = \"tasks/train.jsonl\"\n",
        &["train"]
    ));
}

#[test]
fn a_cuda_device_that_is_misspelt() {
    insta::assert_snapshot!(said("", &["train", "--device", "gpu"]));
}
