//! What the examples write is what the loader reads.

use lego::config::{Layers, load};

use crate::{files_if_any, root, shown};

#[test]
fn run_configs_of_examples_load() {
    for file in files_if_any("examples", "/run.toml") {
        if let Err(error) = load(&Layers::file(&file)) {
            panic!("{}: {error}", shown(&file));
        }
    }
}

#[test]
fn commands_in_the_readme_exist() {
    let text = std::fs::read_to_string(root().join("README.md")).unwrap();
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
        assert!(
            text.contains(&format!("`lego {stage}`")),
            "README.md does not name `lego {stage}`"
        );
    }
}
