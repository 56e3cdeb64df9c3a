//! `lego preflight`.

use crate::workspace::Workspace;

const GOOD: &str = "[run]\nname = \"first\"\n[policy]\nmodel = \"model\"\n[data]\ntrain = \"tasks/train.jsonl\"\n\
                    max_prompt_tokens = 1024\nmax_response_tokens = 3072\n";

fn work() -> Workspace {
    Workspace::new().model().file("run.toml", GOOD)
}

#[test]
fn a_good_run_passes() {
    insta::assert_snapshot!(work().lego(&["preflight", "run.toml", "--static", "--format", "table"]));
}

#[test]
fn a_pipe_gets_one_object_a_line() {
    insta::assert_snapshot!(work().lego(&["preflight", "--static", "--set", "rollout.group_size=2"]));
}

#[test]
fn a_fatal_is_last_and_the_answer_is_no() {
    insta::assert_snapshot!(work().lego(&[
        "preflight",
        "--static",
        "--format",
        "table",
        "--set",
        "rollout.group_size=1",
        "--set",
        "policy.max_model_len=2048",
    ]));
}

#[test]
fn training_refuses_what_preflight_refuses() {
    insta::assert_snapshot!(work().lego(&["train", "--set", "train.lr=0"]));
    insta::assert_snapshot!(work().lego(&["rollout", "-o", "s", "--set", "policy.model=nowhere"]));
}

#[test]
fn checks_can_be_named() {
    insta::assert_snapshot!(work().lego(&["preflight", "--static", "--only", "batch,schedule", "--format", "json"]));
    insta::assert_snapshot!(work().lego(&["preflight", "--only", "bach"]));
}

#[test]
fn the_whole_config_is_shown_with_origins() {
    let work = work();
    let mut command = work.command(&["preflight", "--show-config", "--set", "train.steps=5"]);
    command.env("LEGO_ROLLOUT__GROUP_SIZE", "16");
    insta::assert_snapshot!(work.session(command));
}

#[test]
fn a_starter_is_written_once() {
    let work = Workspace::new();
    insta::assert_snapshot!(work.lego(&["preflight", "--init"]));
    assert!(
        work.lego(&["preflight", "--show-config"]).starts_with("exit: 0"),
        "the starter loads"
    );
    insta::assert_snapshot!(work.lego(&["preflight", "--init"]));
    let written = std::fs::read_to_string(work.path().join("run.toml")).unwrap();
    assert!(work.lego(&["preflight", "--init", "-"]).contains(written.trim_end()));
}

#[test]
fn a_check_has_a_page() {
    insta::assert_snapshot!(work().lego(&["preflight", "--explain", "network"]));
    insta::assert_snapshot!(work().lego(&["preflight", "--explain", "netwrok"]));
}

#[test]
fn what_is_to_be_reached_is_dialled_from_here_and_from_inside_a_sandbox() {
    let preflight = |set: &[&str]| {
        let mut arguments = vec!["preflight", "--only", "network", "--format", "table"];
        arguments.extend(set.iter().flat_map(|value| ["--set", value]));
        work().lego(&arguments)
    };
    let good = preflight(&[]);
    assert!(
        good.starts_with("exit: 0") && good.contains("reached: the proxy from inside a sandbox"),
        "{good}"
    );
    // An address that is no machine's.
    let nowhere = preflight(&["proxy.listen=192.0.2.1:0"]);
    assert!(nowhere.starts_with("exit: 1") && nowhere.contains("FATAL"), "{nowhere}");
    assert!(nowhere.contains("proxy.listen = \"192.0.2.1:0\""), "{nowhere}");
    let hosted = preflight(&["engine.kind=openai", "engine.endpoints=[\"http://127.0.0.1:1/v1\"]"]);
    assert!(hosted.starts_with("exit: 3"), "{hosted}");
    assert!(
        hosted.contains("engine.endpoints: 127.0.0.1:1 is not reached from here: Connection refused"),
        "{hosted}"
    );
}

#[test]
fn the_config_may_come_from_stdin() {
    let work = work();
    let mut command = work.command(&["preflight", "-", "--static"]);
    command.stdin(std::fs::File::open(work.path().join("run.toml")).unwrap());
    assert!(work.session(command).starts_with("exit: 0"));
}
