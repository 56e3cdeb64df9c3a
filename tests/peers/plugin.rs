//! The skills for coding agents: valid for the real client, and over commands that are really there.

use std::process::Command;

use super::{peers, root, succeeds};

#[test]
fn the_client_accepts_the_plugin() {
    let home = tempfile::tempdir().unwrap();
    let client = peers("npm/agents").join("node_modules/.bin/claude");
    let output = succeeds(
        Command::new(client)
            .args(["plugin", "validate"])
            .arg(root().join("examples/agent-plugin"))
            .env("HOME", home.path())
            .env("DISABLE_AUTOUPDATER", "1"),
    );
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("Validation passed"), "{said}");
}

#[test]
fn the_skills_name_commands_that_work() {
    let folder = tempfile::tempdir().unwrap();
    let lego = |arguments: &[&str]| {
        succeeds(
            Command::new(env!("CARGO_BIN_EXE_lego"))
                .args(arguments)
                .current_dir(folder.path()),
        )
    };
    let quickstart = root().join("examples/quickstart/run.toml").display().to_string();
    let rows: serde_json::Value = serde_json::from_slice(&lego(&["preflight", &quickstart, "--json"]).stdout).unwrap();
    assert!(
        rows.as_array()
            .unwrap()
            .iter()
            .all(|row| row["check"].is_string() && row["status"] != "fatal"),
        "{rows}"
    );
    assert!(!lego(&["preflight", &quickstart, "--show-config"]).stdout.is_empty());
    let log = folder.path().join("runs.log");
    std::fs::write(&log, "step:1 - critic/score/mean:0.5\nstep:2 - critic/score/mean:0.6\n").unwrap();
    let report: serde_json::Value =
        serde_json::from_slice(&lego(&["diagnose", "run", "runs.log", "--json"]).stdout).unwrap();
    for key in ["verdict", "steps", "findings", "recommendations", "looked_at"] {
        assert!(!report[key].is_null(), "{key}: {report}");
    }
    lego(&["dashboard", ".", "--export", "board.html", "--run", "runs"]);
    // Every skill's commands are among these.
    for skill in ["check", "run", "status", "dashboard"] {
        let text =
            std::fs::read_to_string(root().join(format!("examples/agent-plugin/skills/{skill}/SKILL.md"))).unwrap();
        for part in text.split("`lego ").skip(1) {
            let stage = part.split(|c: char| !c.is_ascii_lowercase()).next().unwrap();
            lego(&[stage, "--help"]);
        }
    }
}
