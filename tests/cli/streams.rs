//! Data on stdout, talk on stderr; a closed pipe is no error.

use std::process::Stdio;

use crate::workspace::Workspace;

#[test]
fn quiet_leaves_data_alone() {
    let work = Workspace::new().model().file("run.toml", "policy.model = \"model\"\n");
    let text = work.lego(&["-q", "preflight", "--static", "--only", "schedule"]);
    assert!(text.ends_with("----- stderr -----\n\n"), "{text}");
    assert!(text.contains("\"check\":\"schedule\""), "{text}");
}

#[test]
fn a_closed_pipe_is_no_error() {
    let work = Workspace::new();
    for arguments in [
        &["preflight", "--reference"][..],
        &["generate", "completions", "bash"],
        &["generate", "man", "train"],
        &["train", "--help"],
    ] {
        for _ in 0..5 {
            let (reader, writer) = std::io::pipe().unwrap();
            drop(reader);
            let mut command = work.command(arguments);
            command.stdout(writer).stderr(Stdio::piped());
            let output = command.output().unwrap();
            assert_eq!(output.status.code(), Some(0), "{arguments:?}");
            assert!(
                output.stderr.is_empty(),
                "{arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }
}

#[test]
fn colours_only_where_asked() {
    let work = Workspace::new();
    assert!(!work.lego(&["balance"]).contains('\u{1b}'));
    assert!(work.lego(&["--color", "always", "balance"]).contains('\u{1b}'));
}
