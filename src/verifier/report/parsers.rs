//! One parser for each kind of log. Status lines come split, reversed and in the middle of other output.

use std::sync::LazyLock;

use regex::Regex;
use serde_json::Value;

use super::{Parsed, Status};

type Parse = fn(&str) -> Parsed;

/// The parsers, by the name in the report.
pub(super) const FORMATS: [(&str, Parse); 5] = [
    ("pytest", pytest),
    ("unittest", unittest),
    ("go", go),
    ("cargo", cargo),
    ("jest", jest),
];

fn pattern(text: &str) -> Regex {
    #[expect(
        clippy::expect_used,
        reason = "a constant of this program; every one is compiled by a test"
    )]
    Regex::new(text).expect("a valid pattern")
}

fn word(status: &str) -> Status {
    match status {
        "PASSED" | "XFAIL" | "PASS" | "ok" | "expected failure" | "pass" => Status::Passed,
        "SKIPPED" | "SKIP" | "skipped" | "ignored" | "skip" => Status::Skipped,
        _ => Status::Failed,
    }
}

static PYTEST_FRONT: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:\[gw\d+\]\s+)?(?:\[\s*\d+%\]\s+)?(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED)\s+(\S.*)$")
});
static PYTEST_BACK: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(\S+::.*?)\s+(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED)(?:\s+\(.*\))?(?:\s+\[\s*\d+%\])?\s*$")
});
static PYTEST_OPEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^([\w./-]+\.py::\S+(?:\[.*\])?)(?:\s|$)"));
static PYTEST_ALONE: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"^(?:.*\s)?(PASSED|FAILED|ERROR|XFAIL|XPASS|SKIPPED)(?:\s+\[\s*\d+%\])?\s*$"));
static PYTEST_RAN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^=* ?\d+ (?:passed|failed|errors?|skipped|xfailed|xpassed)\b.* in \d"));
static PYTEST_SUMMARY: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^=+ short test summary info =+$"));

fn pytest(log: &str) -> Parsed {
    let mut parsed = Parsed {
        ran: PYTEST_RAN.is_match(log),
        ..Parsed::default()
    };
    // Behind the last heading of the summary the runner alone speaks; before it a program under test does too.
    let (before, summary) = match PYTEST_SUMMARY.find_iter(log).last() {
        Some(heading) => (&log[..heading.start()], &log[heading.end()..]),
        None => (log, log),
    };
    for line in summary.lines() {
        if let Some(found) = PYTEST_FRONT.captures(line)
            && let Some(name) = pytest_name(&found[2])
        {
            parsed.add(name, word(&found[1]));
        }
    }
    let mut open: Option<String> = None;
    for line in before.lines() {
        if let Some(found) = PYTEST_BACK.captures(line) {
            parsed.add(&found[1], word(&found[2]));
            open = None;
        } else if let Some(found) = PYTEST_OPEN.captures(line) {
            open = Some(found[1].to_owned());
        } else if let (Some(name), Some(found)) = (&open, PYTEST_ALONE.captures(line)) {
            parsed.add(name, word(&found[1]));
            open = None;
        }
    }
    parsed
}

/// The test in `tests/a.py::b[x - y] - AssertionError: …`; `None` where it names none.
fn pytest_name(rest: &str) -> Option<&str> {
    let mut name = rest;
    let mut from = 0;
    while let Some(at) = rest[from..].find(" - ") {
        let front = &rest[..from + at];
        if front.matches('[').count() <= front.matches(']').count() {
            name = front;
            break;
        }
        from += at + 3;
    }
    let name = name.trim();
    (name.contains("::") || std::path::Path::new(name).extension().is_some_and(|end| end == "py")).then_some(name)
}

static UNIT_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(\w+ \([\w.]+\))(?:.*?\.\.\. ?)(.*?)(ok|FAIL|ERROR|skipped|expected failure|unexpected success)?(?: ['\x22].*)?$",
    )
});
static UNIT_OPEN: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(\w+ \([\w.]+\))\s*$"));
static UNIT_ALONE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^(?:.*\.\.\. ?)?(?:.*\s)?(ok|FAIL|ERROR|skipped|expected failure|unexpected success)(?: ['\x22].*)?$")
});
static UNIT_BLOCK: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(FAIL|ERROR): (\w+ \([\w.]+\))"));
static UNIT_RAN: LazyLock<Regex> = LazyLock::new(|| pattern(r"(?m)^Ran [1-9]\d* tests? in "));

fn unittest(log: &str) -> Parsed {
    let mut parsed = Parsed {
        ran: UNIT_RAN.is_match(log),
        ..Parsed::default()
    };
    let mut open: Option<String> = None;
    for line in log.lines() {
        if let Some(found) = UNIT_BLOCK.captures(line) {
            parsed.add(&unittest_name(&found[2]), Status::Failed);
            open = None;
        } else if let Some(found) = UNIT_LINE.captures(line) {
            open = None;
            match found.get(3) {
                Some(status) => parsed.add(&unittest_name(&found[1]), word(status.as_str())),
                // Something was printed before the status.
                None => open = Some(found[1].to_owned()),
            }
        } else if let Some(found) = UNIT_OPEN.captures(line) {
            // A docstring follows.
            open = Some(found[1].to_owned());
        } else if let (Some(name), Some(found)) = (&open, UNIT_ALONE.captures(line)) {
            parsed.add(&unittest_name(name), word(&found[1]));
            open = None;
        }
    }
    parsed
}

/// `test_a (m.C)`, also where newer Pythons write `test_a (m.C.test_a)`.
pub(super) fn unittest_name(name: &str) -> String {
    let Some((test, place)) = name.split_once(" (") else {
        return name.to_owned();
    };
    let place = place.trim_end_matches(')');
    let place = place
        .strip_suffix(test)
        .and_then(|place| place.strip_suffix('.'))
        .unwrap_or(place);
    format!("{test} ({place})")
}

static GO_LINE: LazyLock<Regex> = LazyLock::new(|| pattern(r"--- (PASS|FAIL|SKIP): (\S+) \("));
static GO_RAN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^(?:ok\s+\S+\s+(?:[\d.]+s|\(cached\))|FAIL\s+\S+\s+[\d.]+s|PASS$)"));

fn go(log: &str) -> Parsed {
    let mut parsed = Parsed {
        ran: GO_RAN.is_match(log),
        ..Parsed::default()
    };
    for line in log.lines() {
        if let Some(found) = GO_LINE.captures(line) {
            parsed.add(&found[2], word(&found[1]));
        } else if line.starts_with('{')
            && let Ok(event) = serde_json::from_str::<Value>(line)
            && let (Some(action @ ("pass" | "fail" | "skip")), Some(test)) =
                (event["Action"].as_str(), event["Test"].as_str())
        {
            parsed.add(test, word(action));
        }
    }
    parsed
}

static CARGO_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"^test (\S.*?)(?: - should panic)? \.\.\. ?(.*?)(ok|FAILED|ignored(?:,.*)?)?(?: <[\d.]+s>)?$")
});
static CARGO_ALONE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:.*\s)?(ok|FAILED)$"));
static CARGO_RAN: LazyLock<Regex> =
    LazyLock::new(|| pattern(r"(?m)^test result: \w+\. (?:[1-9]\d* passed|0 passed; [1-9])"));

fn cargo(log: &str) -> Parsed {
    let mut parsed = Parsed {
        ran: CARGO_RAN.is_match(log),
        ..Parsed::default()
    };
    let mut open: Option<String> = None;
    for line in log.lines() {
        if let Some(found) = CARGO_LINE.captures(line) {
            open = None;
            match found.get(3) {
                Some(status) => parsed.add(&found[1], word(status.as_str().split(',').next().unwrap_or_default())),
                None => open = Some(found[1].to_owned()),
            }
        } else if let (Some(name), Some(found)) = (&open, CARGO_ALONE.captures(line)) {
            parsed.add(name, word(&found[1]));
            open = None;
        }
    }
    parsed
}

static JEST_LINE: LazyLock<Regex> = LazyLock::new(|| {
    pattern(
        r"^(\s*)([✓✔√✕✖×○✎]|\d+\)|not ok|ok)\s+(?:\d+ - )?(?:skipped |todo )?(.+?)(?:\s+\(?\d+(?:\.\d+)?\s*m?s\)?)?\s*$",
    )
});
static JEST_RAN: LazyLock<Regex> = LazyLock::new(|| {
    pattern(r"(?m)^(?:Tests:\s+.*\d+ total|\s*Tests\s+\d+|\s*\d+ passing|# tests [1-9]|ℹ tests [1-9])")
});
static JEST_FILE: LazyLock<Regex> = LazyLock::new(|| pattern(r"^(?:PASS|FAIL)\s+\S"));

fn jest(log: &str) -> Parsed {
    let mut parsed = Parsed {
        ran: JEST_RAN.is_match(log),
        ..Parsed::default()
    };
    // Names of the groups around a line, by how far they are indented.
    let mut groups: Vec<(usize, String)> = Vec::new();
    for line in log.lines() {
        let indent = line.chars().take_while(|c| *c == ' ').count();
        if JEST_FILE.is_match(line) {
            groups.clear();
        } else if let Some(found) = JEST_LINE.captures(line) {
            groups.retain(|(depth, _)| *depth < indent);
            let status = match &found[2] {
                "✓" | "✔" | "√" | "ok" => Status::Passed,
                "○" | "✎" => Status::Skipped,
                _ => Status::Failed,
            };
            let outer: Vec<&str> = groups.iter().map(|(_, name)| name.as_str()).collect();
            let name = found[3].trim();
            parsed.add(name, status);
            if !outer.is_empty() {
                parsed.add(&format!("{} {name}", outer.join(" ")), status);
                parsed.add(&format!("{} > {name}", outer.join(" > ")), status);
            }
        } else if !line.trim().is_empty() && indent > 0 {
            groups.retain(|(depth, _)| *depth < indent);
            groups.push((indent, line.trim().to_owned()));
        }
    }
    parsed
}
