//! Schemas, the reference, completions and man pages are those that the code would write now.

use std::path::Path;
use std::process::Command;

use crate::{files, root, shown};

/// Set to write the files instead of comparing them.
const UPDATE: &str = "LEGO_UPDATE";

/// Everything that is generated: its path and its content.
fn generated() -> Vec<(String, String)> {
    let mut all = vec![
        ("schemas/run.reference.md".to_owned(), lego::config::reference()),
        ("schemas/run.schema.json".to_owned(), pretty(lego::config::run_schema())),
    ];
    let modules = [
        lego::task::schemas(),
        lego::balance::schemas(),
        lego::diagnose::schemas(),
        lego::metrics::schemas(),
        lego::shard::schemas(),
        lego::run_dir::schemas(),
        lego::buffer::schemas(),
        lego::prepare::schemas(),
        lego::preflight::schemas(),
    ];
    for (name, schema) in modules.into_iter().flatten() {
        all.push((format!("schemas/{name}.schema.json"), pretty(schema.as_value())));
    }
    for (shell, name) in [
        ("bash", "lego.bash"),
        ("zsh", "_lego"),
        ("fish", "lego.fish"),
        ("powershell", "_lego.ps1"),
    ] {
        all.push((format!("completions/{name}"), lego(&["generate", "completions", shell])));
    }
    all.push(("completions/man/lego.1".to_owned(), lego(&["generate", "man"])));
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
        all.push((
            format!("completions/man/lego-{stage}.1"),
            lego(&["generate", "man", stage]),
        ));
    }
    all
}

fn pretty(schema: &serde_json::Value) -> String {
    serde_json::to_string_pretty(schema).unwrap() + "\n"
}

fn lego(arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_lego"))
        .args(arguments)
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "lego {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn generated_files_are_fresh() {
    let all = generated();
    let mut stale = Vec::new();
    for (name, content) in &all {
        let path = root().join(name);
        if std::fs::read_to_string(&path).ok().as_ref() == Some(content) {
            continue;
        }
        if std::env::var_os(UPDATE).is_some() {
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("."))).unwrap();
            std::fs::write(&path, content).unwrap();
        } else {
            stale.push(name.clone());
        }
    }
    for file in ["schemas", "completions"].iter().flat_map(|folder| files(folder, "")) {
        let name = shown(&file);
        if !all.iter().any(|(known, _)| *known == name) {
            stale.push(format!("{name} (nothing generates it)"));
        }
    }
    assert!(
        stale.is_empty(),
        "out of date: {}; run `{UPDATE}=1 cargo test -p lego-cli --test repo`",
        stale.join(", ")
    );
}
