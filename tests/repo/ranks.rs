//! A module of the library imports only from ranks below its own.

use std::collections::BTreeMap;

use crate::{files, root, shown};

/// Ranks by ARCHITECTURE.md; rank 0 also holds `lego_policy`, a package of its own.
const RANKS: [&[&str]; 9] = [
    &["http_client", "http_server", "metrics", "task", "trajectory"],
    &["config", "run_dir", "shard"],
    &["prompt", "sandbox"],
    &["hub", "inference", "scaffold", "verifier"],
    &["balance", "buffer"],
    &["proxy"],
    &["diagnose", "rollout", "train"],
    &["dashboard", "preflight", "prepare"],
    &["pipeline"],
];

fn ranks() -> BTreeMap<&'static str, usize> {
    RANKS
        .iter()
        .enumerate()
        .flat_map(|(rank, modules)| modules.iter().map(move |module| (*module, rank)))
        .collect()
}

/// Modules that a line reaches through `crate::`.
fn reached(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("crate::")
        .filter(|(at, _)| !line[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_'))
        .flat_map(|(at, prefix)| {
            let rest = &line[at + prefix.len()..];
            // `crate::{a::B, c}` reaches each of its heads.
            let heads = match rest.strip_prefix('{') {
                Some(group) => group
                    .split('}')
                    .next()
                    .unwrap_or_default()
                    .split(',')
                    .collect::<Vec<_>>(),
                None => vec![rest],
            };
            heads.into_iter().map(|head| {
                head.trim()
                    .split(|c: char| !c.is_alphanumeric() && c != '_')
                    .next()
                    .unwrap_or_default()
            })
        })
}

#[test]
fn modules_import_only_from_lower_ranks() {
    let ranks = ranks();
    let mut wrong = Vec::new();
    for file in files("src", ".rs") {
        let name = shown(&file);
        let module = name.split('/').nth(1).unwrap_or_default();
        // The crate's root only declares; the policy package has no `crate::` of ours.
        if module.contains('.') || module == "policy" {
            continue;
        }
        let Some(own) = ranks.get(module) else {
            wrong.push(format!(
                "{name}: module `{module}` has no rank: give it one here and in ARCHITECTURE.md"
            ));
            continue;
        };
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for target in reached(line) {
                if target != module && ranks.get(target).is_some_and(|rank| rank >= own) {
                    wrong.push(format!(
                        "{name}:{}: rank {own} reaches `{target}` of rank {}",
                        number + 1,
                        ranks[target]
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the ranks:\n{}", wrong.join("\n"));
}

#[test]
fn the_check_sees_what_it_must_see() {
    let seen = |line: &str| reached(line).map(str::to_owned).collect::<Vec<_>>();
    assert_eq!(seen("use crate::rollout::Worker;"), ["rollout"]);
    assert_eq!(seen("use crate::{task, proxy::Session};"), ["task", "proxy"]);
    assert_eq!(
        seen("    let x = crate::train::step(crate::shard::Row);"),
        ["train", "shard"]
    );
    assert_eq!(seen("use super::rollout;"), [""; 0]);
}

#[test]
fn the_policy_package_knows_nothing_of_ours() {
    let manifest = std::fs::read_to_string(root().join("src/policy/Cargo.toml")).unwrap();
    let depends = manifest
        .lines()
        .any(|line| line.starts_with("lego.") || line.starts_with("lego =") || line.starts_with("lego="));
    assert!(!depends, "src/policy/Cargo.toml depends on `lego`");
}
