//! Files are short, say what they are for, and hold no leftovers.

use crate::{files, shown};

/// Lines of a file at most.
const LONGEST: usize = 400;

/// Names that say nothing.
const EMPTY_NAMES: [&str; 7] = ["util", "utils", "helper", "helpers", "common", "manager", "misc"];

/// Leftovers, spelt in two halves so that this file passes; with where else than everywhere they are meant.
const LEFTOVERS: [(&str, &str); 9] = [
    (concat!("TO", "DO"), ""),
    (concat!("FIX", "ME"), ""),
    (concat!("to", "do!("), ""),
    (concat!("unim", "plemented!("), ""),
    (concat!("#[ig", "nore"), ""),
    (concat!("#[al", "low("), ""),
    (concat!("db", "g!("), ""),
    (concat!("print", "ln!("), "src/"),
    (concat!("eprint", "ln!("), "src/"),
];

fn sources() -> Vec<std::path::PathBuf> {
    ["src", "commands", "tests"]
        .iter()
        .flat_map(|folder| files(folder, ".rs"))
        .collect()
}

/// Whether it is a test whose place says what it tests.
fn stands_beside_its_subject(file: &std::path::Path) -> bool {
    let name = shown(file);
    name.starts_with("src/")
        && ["/tests.rs", "_tests.rs", "/tests/"]
            .iter()
            .any(|part| name.contains(part))
}

#[test]
fn files_are_short_and_say_what_they_are_for() {
    let mut wrong = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).unwrap();
        let lines = text.lines().count();
        if lines >= LONGEST {
            wrong.push(format!("{}: {lines} lines, at most {}", shown(&file), LONGEST - 1));
        }
        if !text.starts_with("//!") && !stands_beside_its_subject(&file) {
            wrong.push(format!(
                "{}: the first line is no `//!` that says what the file is for",
                shown(&file)
            ));
        }
    }
    assert!(wrong.is_empty(), "untidy files:\n{}", wrong.join("\n"));
}

#[test]
fn nothing_is_left_over() {
    let mut wrong = Vec::new();
    for file in sources() {
        let text = std::fs::read_to_string(&file).unwrap();
        for (number, line) in text.lines().enumerate() {
            for (word, place) in LEFTOVERS {
                if line.contains(word) && shown(&file).starts_with(place) {
                    wrong.push(format!("{}:{}: `{word}`", shown(&file), number + 1));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "leftovers:\n{}", wrong.join("\n"));
}

#[test]
fn names_say_something() {
    let empty = |file: &std::path::PathBuf| {
        let path = shown(file);
        path.trim_end_matches(".rs")
            .split('/')
            .any(|part| EMPTY_NAMES.contains(&part))
    };
    let wrong: Vec<_> = sources()
        .iter()
        .filter(|file| empty(file))
        .map(|file| shown(file))
        .collect();
    assert!(wrong.is_empty(), "names that say nothing: {wrong:?}");
}
