//! `lego diagnose` and `lego dashboard`, without a browser; and variables of another system.

use crate::workspace::Workspace;

/// A log of another system whose learning rate came down to zero.
fn frozen() -> String {
    let line = |step: u32| {
        let lr = if step > 8 { "0.0" } else { "1e-06" };
        format!("(Runner pid=7) step:{step} - critic/score/mean:0.5 - actor/lr:{lr} - actor/grad_norm:0.8\n")
    };
    (1..=20).map(line).collect()
}

fn work() -> Workspace {
    Workspace::new()
        .file("logs/other.log", &frozen())
        .file("logs/notes.txt", "nothing\n")
}

#[test]
fn a_log_of_another_system_is_judged() {
    insta::assert_snapshot!(work().lego(&["diagnose", "run", "logs/other.log", "--format", "table"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "run", "logs/other.log", "--check", "--format", "jsonl"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "run", "logs/other.log", "--since", "2", "-q", "--json"]));
}

#[test]
fn what_cannot_be_judged_is_named() {
    insta::assert_snapshot!(work().lego(&["diagnose", "run", "logs/notes.txt"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "run", "logs"]));
    insta::assert_snapshot!(Workspace::new().lego(&["diagnose"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "trial", "logs"]));
}

#[test]
fn signatures_and_checks_have_pages() {
    insta::assert_snapshot!(work().lego(&["diagnose", "list", "--format", "table"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "explain", "frozen-model"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "explain", "tool-parser"]));
    insta::assert_snapshot!(work().lego(&["diagnose", "explain", "frozen-modle"]));
}

#[test]
fn a_page_in_one_file_goes_to_stdout() {
    let session = work().lego(&["dashboard", "logs", "--export", "-"]);
    assert!(
        session.contains("<!doctype html>") && session.contains("1 run in logs"),
        "{session}"
    );
    insta::assert_snapshot!(work().lego(&["dashboard", "logs", "--export", "b.html", "--run", "nobody"]));
    insta::assert_snapshot!(work().lego(&["dashboard", "nowhere"]));
    insta::assert_snapshot!(work().lego(&[
        "dashboard",
        "logs",
        "--listen",
        "127.0.0.1:0",
        "--base-path",
        "no/slash"
    ]));
    insta::assert_snapshot!(work().lego(&["dashboard", "logs", "--listen", "127.0.0.1:0", "--tunnel", "true"]));
}

#[test]
fn variables_of_another_system_become_a_file() {
    let work = Workspace::new().file(
        "old.env",
        "TRAIN_BSZ=32\nexport N_RESP=8\nADV_ESTIMATOR=grpo\nGEN_TP=4\nOTHER=1\n",
    );
    insta::assert_snapshot!(work.lego(&["preflight", "--import", "old.env"]));
    insta::assert_snapshot!(work.lego(&["preflight", "--import", "gone.env"]));
}

#[test]
fn a_tunnel_begins_and_ends_with_the_server() {
    use std::io::{BufRead as _, BufReader};
    use std::process::{Command, Stdio};
    let work = work();
    let pid = work.path().join("pid");
    let tunnel = format!(
        "sh -c 'echo $$ > {}; echo at https://board.example/{{port}} now; exec sleep 600'",
        pid.display()
    );
    let mut server = work
        .command(&["dashboard", "logs", "--listen", "127.0.0.1:0", "--tunnel", &tunnel])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut url = String::new();
    BufReader::new(server.stdout.take().unwrap())
        .read_line(&mut url)
        .unwrap();
    assert!(
        url.starts_with("https://board.example/") && url.contains("/?token="),
        "{url}"
    );
    let interrupt = |pid: &str| Command::new("kill").args(["-INT", pid]).status().unwrap();
    assert!(interrupt(&server.id().to_string()).success());
    assert_eq!(server.wait().unwrap().code(), Some(130));
    let pid = std::fs::read_to_string(pid).unwrap();
    assert!(
        !std::path::Path::new("/proc").join(pid.trim()).exists(),
        "the tunnel is still there"
    );
}
