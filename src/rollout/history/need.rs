//! Whether a task's tests need commits of its repository.

use std::path::Path;

use crate::task::Task;

/// Key of `[metadata]` that decides it.
const KEY: &str = "git_history";
/// Commands that name a commit, or list them.
const COMMANDS: [&str; 13] = [
    "bisect",
    "blame",
    "checkout",
    "cherry-pick",
    "describe",
    "log",
    "merge-base",
    "reset",
    "restore",
    "rev-list",
    "rev-parse",
    "show",
    "worktree",
];
/// Largest file of the tests that is looked at.
const LARGEST: u64 = 1 << 20;

/// `metadata.git_history` of task.toml; where it says nothing, whether a script of the tests runs git on commits.
pub(in crate::rollout) fn tests_need_it(task: &Task, tests: &[std::path::PathBuf]) -> bool {
    let said = task.config.metadata.get(KEY).and_then(toml::Value::as_bool);
    said.unwrap_or_else(|| tests.iter().any(|folder| folder_needs_it(folder)))
}

fn folder_needs_it(folder: &Path) -> bool {
    let Ok(entries) = fs_err::read_dir(folder) else {
        return false;
    };
    entries.filter_map(Result::ok).any(|entry| {
        let path = entry.path();
        match entry.metadata() {
            Ok(meta) if meta.is_dir() => folder_needs_it(&path),
            Ok(meta) if meta.is_file() && meta.len() <= LARGEST => {
                fs_err::read(&path).is_ok_and(|bytes| text_needs_it(&String::from_utf8_lossy(&bytes)))
            }
            _ => false,
        }
    })
}

fn text_needs_it(text: &str) -> bool {
    text.lines().any(|line| {
        let mut words = line
            .split(|c: char| !(c.is_alphanumeric() || matches!(c, '-' | '_' | '/' | '.')))
            .filter(|word| !word.is_empty())
            .skip_while(|word| *word != "git" && !word.ends_with("/git"))
            .skip(1)
            // `git -C folder command`
            .skip_while(|word| word.starts_with('-') || word.starts_with('/') || *word == ".");
        words.next().is_some_and(|word| COMMANDS.contains(&word))
    })
}

#[cfg(test)]
mod tests {
    use super::text_needs_it;

    #[test]
    fn commands_that_name_commits_are_told_from_those_that_do_not() {
        for needs in [
            "git checkout 0123abc tests/test_a.py",
            "cd /app && git -C /app log --oneline",
            "subprocess.run(['git', 'show', 'HEAD~1'])",
            "/usr/bin/git rev-parse HEAD",
        ] {
            assert!(text_needs_it(needs), "{needs}");
        }
        for does_not in [
            "git apply /tests/test.patch",
            "git status",
            "git config --global --add safe.directory /app",
            "pip install git+https://example.com/x",
            "echo checkout the log",
        ] {
            assert!(!text_needs_it(does_not), "{does_not}");
        }
    }
}
