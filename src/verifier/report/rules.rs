//! Reads logs of test runners by the table in rules.tsv. Status lines come split, reversed and in the middle of other
//! output; a program under test prints status lines too, which is why the worse of two words counts.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use super::{Parsed, Status};

const TABLE: &str = include_str!("rules.tsv");
const GRADE: &str = include_str!("grade.awk");

/// The same reading for a script inside a sandbox: a program for any awk, which reads the table of one format.
pub fn grade_awk() -> &'static str {
    GRADE
}

/// The rows of the table for one format; `None` where there is no such format.
pub fn log_rules(format: &str) -> Option<String> {
    let rows = TABLE.lines().filter(|row| row.split('\t').next() == Some(format));
    let rows: String = rows.flat_map(|row| [row, "\n"]).collect();
    (!rows.is_empty()).then_some(rows)
}

/// The formats that are known, in the order of the table.
pub fn log_formats() -> impl Iterator<Item = &'static str> {
    FORMATS.iter().map(|format| format.name)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Test,
    Last,
    Anchor,
    Both,
    Open,
    Close,
    Ran,
    Suite,
    Member,
    Leaf,
    Group,
    Reset,
    Ask,
    Answer,
}

#[derive(Debug)]
struct Rule {
    kind: Kind,
    status: Status,
    when: Regex,
    front: Option<Regex>,
    back: Option<Regex>,
    instead: &'static str,
}

/// The rules of one format.
#[derive(Debug)]
pub(super) struct Format {
    pub(super) name: &'static str,
    rules: Vec<Rule>,
}

pub(super) static FORMATS: LazyLock<Vec<Format>> = LazyLock::new(|| {
    let mut formats: Vec<Format> = Vec::new();
    for row in TABLE.lines().filter(|row| !row.starts_with('#')) {
        let mut cells = row.split('\t');
        let name = cells.next().unwrap_or_default();
        if formats.last().is_none_or(|format| format.name != name) {
            formats.push(Format {
                name,
                rules: Vec::new(),
            });
        }
        if let (Some(format), Some(rule)) = (formats.last_mut(), rule(cells)) {
            format.rules.push(rule);
        }
    }
    formats
});

fn rule(mut cells: std::str::Split<'static, char>) -> Option<Rule> {
    let kind = match cells.next()? {
        "test" => Kind::Test,
        "last" => Kind::Last,
        "anchor" => Kind::Anchor,
        "both" => Kind::Both,
        "open" => Kind::Open,
        "close" => Kind::Close,
        "ran" => Kind::Ran,
        "suite" => Kind::Suite,
        "member" => Kind::Member,
        "leaf" => Kind::Leaf,
        "group" => Kind::Group,
        "reset" => Kind::Reset,
        "ask" => Kind::Ask,
        "answer" => Kind::Answer,
        _ => return None,
    };
    let status = match cells.next()? {
        "passed" => Status::Passed,
        "skipped" => Status::Skipped,
        _ => Status::Failed,
    };
    let when = Regex::new(cells.next()?).ok()?;
    let mut cut = || {
        cells
            .next()
            .filter(|text| !text.is_empty())
            .and_then(|text| Regex::new(text).ok())
    };
    Some(Rule {
        kind,
        status,
        when,
        front: cut(),
        back: cut(),
        instead: cells.next().unwrap_or_default(),
    })
}

/// What is known while a log is read.
#[derive(Default)]
struct Reading {
    parsed: Parsed,
    /// From behind the last anchor.
    last: BTreeMap<String, Status>,
    open: Option<String>,
    suite: String,
    asked: Vec<String>,
    answered: Vec<Status>,
    /// Indents and names of the groups around a line.
    groups: Vec<(usize, String)>,
}

impl Format {
    /// Reads a log without escapes.
    pub(super) fn parse(&self, log: &str) -> Parsed {
        let mut reading = Reading {
            // What the public graders call it where none is named.
            suite: "None".to_owned(),
            ..Reading::default()
        };
        for line in log.lines() {
            let line = line.replace('\t', " ");
            reading.line(&self.rules, &line);
        }
        let answers = std::mem::take(&mut reading.asked)
            .into_iter()
            .zip(std::mem::take(&mut reading.answered));
        for (name, status) in std::mem::take(&mut reading.last).into_iter().chain(answers) {
            reading.parsed.add(&name, status);
        }
        reading.parsed
    }
}

impl Reading {
    fn line(&mut self, rules: &[Rule], line: &str) {
        let parsed = &mut self.parsed;
        parsed.ran |= rules
            .iter()
            .any(|rule| rule.kind == Kind::Ran && rule.when.is_match(line));
        let fits = |rule: &&Rule| match rule.kind {
            Kind::Ran => false,
            Kind::Close => self.open.is_some() && rule.when.is_match(line),
            _ => rule.when.is_match(line),
        };
        let Some(rule) = rules.iter().find(fits) else { return };
        let name = rule.name(line);
        let indent = line.len() - line.trim_start_matches(' ').len();
        match rule.kind {
            Kind::Ran => {}
            Kind::Anchor => self.last.clear(),
            Kind::Last => {
                let known = self.last.entry(unittest_name(&name)).or_insert(rule.status);
                *known = (*known).max(rule.status);
            }
            Kind::Open => self.open = Some(name),
            Kind::Close => parsed.add(&self.open.take().unwrap_or_default(), rule.status),
            Kind::Both => {
                parsed.add(&name, rule.status);
                parsed.add(&self.open.take().unwrap_or_default(), rule.status);
            }
            Kind::Test => {
                parsed.add(&name, rule.status);
                self.open = None;
            }
            Kind::Suite => self.suite = name,
            Kind::Member => parsed.add(&format!("{} > {name}", self.suite), rule.status),
            Kind::Reset => {
                parsed.add(&name, rule.status);
                self.groups.clear();
            }
            Kind::Ask => self.asked.push(name),
            Kind::Answer => self.answered.push(rule.status),
            Kind::Group => {
                self.groups.retain(|(depth, _)| *depth < indent);
                self.groups.push((indent, name));
            }
            Kind::Leaf => {
                self.groups.retain(|(depth, _)| *depth < indent);
                parsed.add(&name, rule.status);
                if let Some((_, inner)) = self.groups.last() {
                    let outer: Vec<&str> = self.groups.iter().map(|(_, name)| name.as_str()).collect();
                    parsed.add(&format!("{} {name}", outer.join(" ")), rule.status);
                    parsed.add(&format!("{} > {name}", outer.join(" > ")), rule.status);
                    parsed.add(&format!("{inner}.{name}"), rule.status);
                }
            }
        }
    }
}

impl Rule {
    fn name(&self, line: &str) -> String {
        let mut name = line.to_owned();
        if let Some(front) = &self.front {
            name = front.replace(&name, "").into_owned();
        }
        if let Some(back) = &self.back {
            name = back.replace(&name, self.instead).into_owned();
        }
        name.trim().to_owned()
    }
}

/// `test_a (m.C)`, also where newer Pythons write `test_a (m.C.test_a)`.
pub(super) fn unittest_name(name: &str) -> String {
    let Some((test, place)) = name.split_once(" (") else {
        return name.to_owned();
    };
    let Some(place) = place.strip_suffix(')').filter(|_| !test.is_empty()) else {
        return name.to_owned();
    };
    let place = place
        .strip_suffix(test)
        .and_then(|place| place.strip_suffix('.'))
        .unwrap_or(place);
    format!("{test} ({place})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_row_of_the_table_is_understood() {
        let rows = TABLE.lines().filter(|row| !row.starts_with('#'));
        for row in rows.clone() {
            let (_, rest) = row.split_once('\t').unwrap();
            let rule = rule(rest.split('\t')).unwrap_or_else(|| panic!("{row}"));
            let cells = row.split('\t').skip(4).take(2).filter(|cell| !cell.is_empty()).count();
            let understood = usize::from(rule.front.is_some()) + usize::from(rule.back.is_some());
            assert_eq!(understood, cells, "{row}");
            // What some awk does not know.
            let plain = row.replace("\\(", "x");
            for word in ["\\s", "\\d", "\\w", "\\b", "*?", "+?", "(?", "[:", "\\t"] {
                assert!(!plain.contains(word), "{word} in {row}");
            }
        }
        assert_eq!(
            FORMATS.iter().map(|format| format.rules.len()).sum::<usize>(),
            rows.count()
        );
    }
}
