//! What an agent is told: a template filled in, and looked over for what would give the solution away.

use std::collections::BTreeSet;

use super::patch::added_lines;
use super::record::{Fault, fault};
use super::swe::Repair;

/// The usual template.
pub const TEMPLATE: &str = "\
You are in the repository {repo}, in {workdir}. Solve this issue by changing its files:

<issue>
{problem_statement}
</issue>
{hints}
Tests that you cannot see will judge your change. Nothing but the repository and this machine can be reached.
";

/// What an instruction may give away where it is asked for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Lines of the solution.
    pub patch: bool,
    /// The commit that holds it.
    pub commit: bool,
    /// Names of the tests that are to pass.
    pub tests: bool,
}

/// Lines of the solution, one after the other, that are no chance.
const LINES: usize = 3;
/// Characters of a line or of a name that are no chance.
const TELLING: usize = 10;

/// Fills the template in; `hints` says whether those of the record are shown.
///
/// # Errors
/// `leak_patch`, `leak_commit` or `leak_tests` where the record's own text gives the solution away.
pub(super) fn instruction(
    repair: &Repair,
    workdir: &str,
    template: &str,
    hints: bool,
    allowed: Allowed,
) -> Result<String, Fault> {
    let shown = repair
        .hints
        .as_deref()
        .map(str::trim)
        .filter(|text| hints && !text.is_empty());
    let shown = shown.map_or_else(String::new, |text| format!("\n<hints>\n{text}\n</hints>\n"));
    let mut filled = String::with_capacity(template.len() + repair.statement.len() + shown.len());
    let mut rest = template;
    // Not by one replacement after the other: the record's text may hold the names of fields.
    while let Some(at) = rest.find('{') {
        filled.push_str(&rest[..at]);
        let fields = [
            ("{problem_statement}", repair.statement.trim()),
            ("{hints}", shown.as_str()),
            ("{repo}", repair.repo.as_str()),
            ("{workdir}", workdir),
            ("{version}", repair.version.as_deref().unwrap_or_default()),
        ];
        if let Some((name, value)) = fields.iter().find(|(name, _)| rest[at..].starts_with(name)) {
            filled.push_str(value);
            rest = &rest[at + name.len()..];
        } else {
            filled.push('{');
            rest = &rest[at + 1..];
        }
    }
    filled.push_str(rest);
    // What the template itself says is the user's own.
    let said = format!("{}\n{shown}", repair.statement);
    check(&said, repair, allowed)?;
    Ok(filled)
}

fn check(said: &str, repair: &Repair, allowed: Allowed) -> Result<(), Fault> {
    if !allowed.patch {
        let leak = |what: String| {
            fault(
                "leak_patch",
                format!("the text holds {what}; --allow-leaks patch takes it all the same"),
            )
        };
        if let Some(path) = patched_path(said, &repair.patch) {
            return Err(leak(format!("a diff of {path}, which the solution changes")));
        }
        let mut run: Vec<&str> = Vec::new();
        let (mut all, mut held) = (0, 0);
        let lines: BTreeSet<&str> = said
            .lines()
            .map(|line| line.trim().trim_start_matches('+').trim())
            .collect();
        for line in added_lines(&repair.patch).map(str::trim) {
            // Short lines (brackets, `else`) neither make nor break a run.
            if line.len() < TELLING {
                continue;
            }
            all += 1;
            if lines.contains(line) {
                held += 1;
                run.push(line);
            } else {
                run.clear();
            }
            if run.len() >= LINES {
                return Err(leak(format!("lines of the solution, such as `{}`", run[0])));
            }
        }
        // Of a short solution all there is.
        if all > 0 && held == all {
            return Err(leak(format!("all lines of the solution, such as `{}`", run[0])));
        }
    }
    if let Some(commit) = repair.fix_commit.as_ref().filter(|_| !allowed.commit)
        && said.contains(&commit[..commit.len().min(10)])
    {
        return Err(fault(
            "leak_commit",
            format!("the text names the commit of the solution, {commit}; --allow-leaks commit takes it all the same"),
        ));
    }
    if !allowed.tests {
        for test in repair.fail_to_pass.iter().flatten() {
            let last = test.rsplit("::").next().unwrap_or(test);
            let name = last.split(['[', ' ', '(']).next().unwrap_or(last);
            if name.len() >= TELLING && names(said, name) {
                return Err(fault(
                    "leak_tests",
                    format!(
                        "the text names the test `{name}` that is to pass; --allow-leaks tests takes it all the same"
                    ),
                ));
            }
        }
    }
    Ok(())
}

/// A file that a patch changes and of which the text holds a diff.
fn patched_path<'a>(said: &str, patch: &'a str) -> Option<&'a str> {
    let heads = |text: &'a str| text.lines().filter_map(|line| line.strip_prefix("+++ b/"));
    let told: BTreeSet<&str> = said
        .lines()
        .filter_map(|line| line.trim().strip_prefix("+++ "))
        .map(|path| path.trim().trim_start_matches("b/"))
        .collect();
    heads(patch).map(str::trim).find(|path| told.contains(path))
}

/// Whether a text holds a word that looks like a test's name.
fn names(text: &str, name: &str) -> bool {
    let of_name = |c: char| c.is_alphanumeric() || c == '_';
    // A word of the language alone is no name of a test.
    if !name.contains('_') && !name.contains(char::is_uppercase) {
        return false;
    }
    text.match_indices(name)
        .any(|(at, _)| !text[..at].ends_with(of_name) && !text[at + name.len()..].starts_with(of_name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn repair(statement: &str) -> Repair {
        Repair {
            repo: "o/n".to_owned(),
            statement: statement.to_owned(),
            hints: Some("look at f".to_owned()),
            patch: "--- a/x\n+++ b/x\n@@ -1 +1,4 @@\n+def first(one):\n+    return one + 1\n+\n+def second(two):\n-x\n"
                .to_owned(),
            fix_commit: Some("0123456789abcdef0123456789abcdef01234567".to_owned()),
            fail_to_pass: Some(vec!["tests/a.py::TestA::test_adds_well[1-2]".to_owned()]),
            ..Repair::default()
        }
    }

    fn told(statement: &str, hints: bool, allowed: Allowed) -> Result<String, &'static str> {
        instruction(&repair(statement), "/testbed", TEMPLATE, hints, allowed).map_err(|fault| fault.reason)
    }

    #[test]
    fn the_template_is_filled_in_once() {
        let text = told("It says {repo} and {x}.", true, Allowed::default()).unwrap();
        assert!(text.contains("<issue>\nIt says {repo} and {x}.\n</issue>"), "{text}");
        assert!(text.contains("repository o/n, in /testbed"), "{text}");
        assert!(text.contains("look at f"));
        assert!(!told("x", false, Allowed::default()).unwrap().contains("look at f"));
    }

    #[test]
    fn a_solution_of_one_line_is_given_away_by_it() {
        let short = |statement: &str| {
            let repair = Repair {
                patch: "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-    return one\n+    return one + 1\n".to_owned(),
                ..repair(statement)
            };
            instruction(&repair, "/testbed", TEMPLATE, false, Allowed::default()).map_err(|fault| fault.reason)
        };
        assert_eq!(short("It must be\n    return one + 1\nI think."), Err("leak_patch"));
        assert!(short("It must not be\n    return one\n").is_ok());
    }

    #[test]
    fn what_gives_the_solution_away_is_refused_unless_allowed() {
        let all = Allowed {
            patch: true,
            commit: true,
            tests: true,
        };
        for (text, reason) in [
            (
                "try\n```\ndef first(one):\n    return one + 1\n\ndef second(two):\n```",
                "leak_patch",
            ),
            ("try this\n  --- a/x\n  +++ b/x\n  @@ -1 +1 @@", "leak_patch"),
            ("mended by 0123456789ab", "leak_commit"),
            ("test_adds_well fails", "leak_tests"),
        ] {
            assert_eq!(told(text, false, Allowed::default()), Err(reason));
            assert!(told(text, false, all).is_ok());
        }
        for text in ["def first(one): is wrong", "see commit 999", "my_test_adds_well2 fails"] {
            assert!(told(text, false, Allowed::default()).is_ok(), "{text}");
        }
    }
}
