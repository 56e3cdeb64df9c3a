//! Unified diffs: which files they change, which of these are tests, and whether the text is a diff at all.

use std::collections::BTreeSet;

use super::record::{Fault, fault, is_safe_path};

/// One file of a diff.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FilePatch {
    /// Its path behind the change, before it where the file is removed.
    pub(super) path: String,
    /// Its path before, where that is another.
    pub(super) old_path: Option<String>,
    /// Whether the file was there before.
    pub(super) existed: bool,
    /// Its lines of the diff.
    pub(super) text: String,
}

/// Folders of tests, by name.
const TEST_FOLDERS: [&str; 10] = [
    "test",
    "tests",
    "testing",
    "__tests__",
    "spec",
    "specs",
    "e2e",
    "testdata",
    "test_data",
    "fixtures",
];

/// Whether a path is that of a test or of what tests need.
pub(super) fn is_test_path(path: &str) -> bool {
    let lower = path.to_lowercase();
    let mut parts: Vec<&str> = lower.split('/').collect();
    let name = parts.pop().unwrap_or_default();
    let stem = name.rsplit_once('.').map_or(name, |(stem, _)| stem);
    let of_name = stem.starts_with("test_")
        || stem.ends_with("_test")
        || stem.ends_with("_tests")
        || stem.ends_with("_spec")
        || name.contains(".test.")
        || name.contains(".spec.")
        || stem == "conftest"
        || stem == "tests";
    // A class of tests in Java, C#, PHP: its own name says so, with a capital.
    let own = path.rsplit('/').next().unwrap_or_default();
    let own = own.rsplit_once('.').map_or(own, |(stem, _)| stem);
    let of_class = ["Test", "Tests", "TestCase", "IT"].iter().any(|end| {
        own.strip_suffix(end)
            .is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit()))
    });
    of_name || of_class || parts.iter().any(|part| TEST_FOLDERS.contains(part))
}

/// The files of a diff.
///
/// # Errors
/// `reason` with what is wrong with it and where: no diff at all, hunks whose lines are not as many as their head says,
/// paths that lead out of the repository, binary files without their content.
pub(super) fn files(field: &str, text: &str, reason: &'static str) -> Result<Vec<FilePatch>, Fault> {
    let wrong = |line: usize, what: &str| fault(reason, format!("`{field}`, line {}: {what}", line + 1));
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let mut found: Vec<FilePatch> = Vec::new();
    let mut at = 0;
    while at < lines.len() {
        let begins = lines[at].starts_with("diff --git ")
            || (lines[at].starts_with("--- ") && lines.get(at + 1).is_some_and(|next| next.starts_with("+++ ")));
        if !begins {
            // Mails and logs have text in front of the diff; behind its beginning every line has its place.
            at += 1;
            continue;
        }
        let first = at;
        let (file, next) = one_file(&lines, at).map_err(|(line, what)| wrong(line, &what))?;
        for path in [Some(&file.path), file.old_path.as_ref()].into_iter().flatten() {
            if !is_safe_path(path) || path.split('/').any(|part| part == ".git") {
                return Err(fault(
                    "unsafe_path",
                    format!(
                        "`{field}`, line {}: the path `{}` leads out of the repository",
                        first + 1,
                        path.escape_debug()
                    ),
                ));
            }
        }
        found.push(file);
        at = next;
    }
    if found.is_empty() {
        return Err(wrong(0, "expected a unified diff, found none"));
    }
    Ok(found)
}

/// The file that begins at a line, and the line behind it.
fn one_file(lines: &[&str], begin: usize) -> Result<(FilePatch, usize), (usize, String)> {
    let plain = |line: &str| line.trim_end_matches(['\n', '\r']).to_owned();
    let (mut old, mut new) = (None, None);
    let (mut existed, mut gone, mut content) = (true, false, false);
    let mut at = begin;
    if let Some(rest) = lines[at].strip_prefix("diff --git ") {
        let rest = plain(rest);
        // `a/x b/x`: the same path twice, but for renames, which say it again below.
        let half = rest.len() / 2;
        if rest.is_char_boundary(half) {
            let (front, back) = rest.split_at(half);
            let (front, back) = (front.trim(), back.trim());
            if let (Some(front), Some(back)) = (front.strip_prefix("a/"), back.strip_prefix("b/")) {
                old = Some(front.to_owned());
                new = Some(back.to_owned());
            }
        }
        at += 1;
    }
    while at < lines.len() {
        let line = lines[at];
        if line.starts_with("diff --git ") {
            break;
        } else if line.starts_with("new file mode") {
            existed = false;
        } else if line.starts_with("deleted file mode") {
            gone = true;
            content = true;
        } else if let Some(path) = line.strip_prefix("rename from ").or(line.strip_prefix("copy from ")) {
            old = Some(plain(path));
            content = true;
        } else if let Some(path) = line.strip_prefix("rename to ").or(line.strip_prefix("copy to ")) {
            new = Some(plain(path));
        } else if line.starts_with("old mode ") {
            content = true;
        } else if line.starts_with("GIT binary patch") {
            content = true;
            at += 1;
            while at < lines.len() && !lines[at].starts_with("diff --git ") {
                at += 1;
            }
            break;
        } else if line.starts_with("Binary files ") {
            return Err((at, "a binary file without its content".to_owned()));
        } else if let Some(path) = line.strip_prefix("--- ") {
            let Some(to) = lines.get(at + 1).and_then(|next| next.strip_prefix("+++ ")) else {
                return Err((at + 1, "expected `+++ ` behind `--- `".to_owned()));
            };
            let name = |text: &str, prefix: &str| {
                let text = plain(text);
                let text = text
                    .split('\t')
                    .next()
                    .unwrap_or_default()
                    .trim()
                    .trim_matches('"')
                    .to_owned();
                (text != "/dev/null").then(|| text.strip_prefix(prefix).unwrap_or(&text).to_owned())
            };
            match name(path, "a/") {
                Some(path) => old = Some(path),
                None => existed = false,
            }
            match name(to, "b/") {
                Some(path) => new = Some(path),
                None => gone = true,
            }
            at = hunks(lines, at + 2)?;
            content = true;
            break;
        } else if !(line.contains(' ') || line.trim().is_empty()) {
            break;
        }
        at += 1;
    }
    let (old, new) = (old.filter(|_| existed), new.filter(|_| !gone));
    let path = new
        .clone()
        .or_else(|| old.clone())
        .ok_or_else(|| (begin, "a file without a path".to_owned()))?;
    if !content && existed {
        return Err((begin, format!("`{path}` is named and nothing of it changes")));
    }
    let file = FilePatch {
        old_path: old.filter(|old| *old != path),
        path,
        existed,
        text: lines[begin..at].concat(),
    };
    Ok((file, at))
}

/// The line behind the hunks that begin here.
fn hunks(lines: &[&str], mut at: usize) -> Result<usize, (usize, String)> {
    let first = at;
    while at < lines.len() && lines[at].starts_with("@@ ") {
        let head = lines[at];
        let counts = head_counts(head).ok_or_else(|| (at, format!("`{}` is no head of a hunk", head.trim())))?;
        let (mut old, mut new) = counts;
        let head_at = at;
        at += 1;
        while old > 0 || new > 0 {
            let cut = || {
                (
                    head_at,
                    format!("the hunk ends {old} old and {new} new lines before its head says"),
                )
            };
            let line = lines.get(at).ok_or_else(cut)?;
            match line.bytes().next() {
                Some(b'+') if new > 0 => new -= 1,
                Some(b'-') if old > 0 => old -= 1,
                // Editors take the blank off an empty line.
                Some(b' ' | b'\n' | b'\r') if old > 0 && new > 0 => {
                    old -= 1;
                    new -= 1;
                }
                Some(b'\\') => {}
                _ => return Err(cut()),
            }
            at += 1;
        }
        while lines.get(at).is_some_and(|line| line.starts_with('\\')) {
            at += 1;
        }
    }
    if at == first {
        return Err((at, "expected `@@ `, the head of a hunk".to_owned()));
    }
    Ok(at)
}

/// `@@ -1,2 +3,4 @@` is 2 and 4.
fn head_counts(head: &str) -> Option<(usize, usize)> {
    let mut words = head.strip_prefix("@@ ")?.split(' ');
    let mut count = |sign: char| {
        let range = words.next()?.strip_prefix(sign)?;
        match range.split_once(',') {
            Some((start, count)) => start.parse::<usize>().ok().and(count.parse().ok()),
            None => range.parse::<usize>().ok().map(|_| 1),
        }
    };
    Some((count('-')?, count('+')?))
}

/// One diff as two: what changes the program, and what changes its tests.
pub(super) fn split(files: &[FilePatch]) -> (String, String) {
    let (tests, source): (Vec<&FilePatch>, Vec<&FilePatch>) = files.iter().partition(|file| is_test_path(&file.path));
    let text = |files: Vec<&FilePatch>| files.iter().map(|file| file.text.as_str()).collect();
    (text(source), text(tests))
}

/// Lines that a diff adds, without their sign.
pub(super) fn added_lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter(|line| line.starts_with('+') && !line.starts_with("+++ "))
        .map(|line| &line[1..])
}

/// Paths of all files, those before a renaming too.
pub(super) fn paths(files: &[FilePatch]) -> BTreeSet<&str> {
    files
        .iter()
        .flat_map(|file| [Some(file.path.as_str()), file.old_path.as_deref()])
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: &str = "diff --git a/src/a.py b/src/a.py\nindex 1..2 100644\n--- a/src/a.py\n+++ b/src/a.py\n@@ -1,2 +1,2 @@ def f\n x\n-y\n+z\n\
diff --git a/tests/test_a.py b/tests/test_a.py\nnew file mode 100644\n--- /dev/null\n+++ b/tests/test_a.py\n@@ -0,0 +1 @@\n+t\n\\ No newline at end of file\n";

    #[test]
    fn a_diff_is_told_from_its_tests() {
        let found = files("patch", TWO, "bad_patch").unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!((found[0].path.as_str(), found[0].existed), ("src/a.py", true));
        assert_eq!((found[1].path.as_str(), found[1].existed), ("tests/test_a.py", false));
        let (source, tests) = split(&found);
        assert_eq!(format!("{source}{tests}"), TWO);
        assert!(tests.starts_with("diff --git a/tests/"));
        assert_eq!(added_lines(&source).collect::<Vec<_>>(), ["z"]);
    }

    #[test]
    fn paths_of_tests() {
        for path in [
            "tests/a.py",
            "a/test_b.py",
            "pkg/x_test.go",
            "src/app.test.ts",
            "src/__tests__/a.js",
            "conftest.py",
            "core/src/FooTest.java",
            "spec/a_spec.rb",
        ] {
            assert!(is_test_path(path), "{path}");
        }
        for path in [
            "src/a.py",
            "src/latest.py",
            "contest.py",
            "src/attestation/x.go",
            "src/UNIT.java",
            "lib/spectrum.js",
        ] {
            assert!(!is_test_path(path), "{path}");
        }
    }

    #[test]
    fn what_is_no_diff_is_refused_with_its_line() {
        for (text, reason) in [
            ("not a diff\n", "bad_patch"),
            ("--- a/x\n+++ b/x\n", "bad_patch"),
            ("--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n x\n", "bad_patch"),
            ("--- a/x\n+++ b/x\n@@ one @@\n", "bad_patch"),
            ("--- a/../x\n+++ b/../x\n@@ -1 +1 @@\n-a\n+b\n", "unsafe_path"),
            (
                "--- a/.git/hooks/x\n+++ b/.git/hooks/x\n@@ -1 +1 @@\n-a\n+b\n",
                "unsafe_path",
            ),
            (
                "diff --git a/x.png b/x.png\nindex 1..2\nBinary files a/x.png and b/x.png differ\n",
                "bad_patch",
            ),
        ] {
            let refused = files("patch", text, "bad_patch").unwrap_err();
            assert_eq!(refused.reason, reason, "{text}: {}", refused.detail);
            assert!(refused.detail.contains("line "), "{}", refused.detail);
        }
    }

    #[test]
    fn renames_and_removals_have_both_paths() {
        let text = "diff --git a/tests/old.py b/tests/new.py\nsimilarity index 100%\nrename from tests/old.py\nrename to tests/new.py\n\
diff --git a/gone.py b/gone.py\ndeleted file mode 100644\nindex 1..0\n--- a/gone.py\n+++ /dev/null\n@@ -1 +0,0 @@\n-x\n";
        let found = files("patch", text, "bad_patch").unwrap();
        assert_eq!(found[0].old_path.as_deref(), Some("tests/old.py"));
        assert_eq!(found[1].path, "gone.py");
        assert_eq!(paths(&found).len(), 3);
    }
}
