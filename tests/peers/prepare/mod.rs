//! Repositories with a history to tasks: their issues are converted, tried without and with the solution, and looked over for
//! what would give the solution away.

mod images;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

use crate::docker::{docker, image};
use crate::{root, succeeds};

/// Repositories and records.
pub(crate) struct Made {
    folder: tempfile::TempDir,
}

impl Made {
    pub(crate) fn of(languages: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = root().join("tests/peers/prepare/repositories.py");
        succeeds(Command::new("python3").arg(script).arg(folder.path()).args(languages));
        Self { folder }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn prepare(&self, arguments: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command.current_dir(self.folder.path()).arg("prepare").args(arguments);
        let output = command.output().unwrap();
        assert!(
            output.status.success(),
            "{arguments:?}: {}\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        output
    }

    pub(crate) fn rows(&self, file: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.path(file)).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// Languages of which this machine has what their tests need, where a sandbox finds it.
fn languages_here() -> Vec<&'static str> {
    let tools = [
        ("python", "python3"),
        ("javascript", "node"),
        ("go", "go"),
        ("c", "ctest"),
    ];
    let has = |tool: &str| Path::new("/usr/bin").join(tool).exists();
    tools
        .iter()
        .filter(|(_, tool)| has(tool))
        .map(|(language, _)| *language)
        .collect()
}

#[test]
fn issues_of_local_repositories_become_valid_tasks_without_containers() {
    let languages = languages_here();
    assert!(languages.contains(&"python"));
    let made = Made::of(&languages);
    // What an API exports, with the change and its tests from the repository alone.
    let stages = [
        "--repo-cache",
        "repos",
        "--stage",
        "convert,index,validate",
        "--repeats",
        "1",
        "--format",
        "table",
    ];
    made.prepare(&[&["export.jsonl", "-o", "exported"], &stages[..]].concat());
    assert_eq!(made.rows("exported/invalid.jsonl"), Vec::<Value>::new());
    // Records as data sets have them.
    made.prepare(&[&["records.jsonl", "-o", "tasks"], &stages[..]].concat());
    let rows = made.rows("tasks/validation.jsonl");
    assert_eq!(rows.len(), languages.len());
    for row in rows {
        assert_eq!(
            (row["nop_reward"].as_f64(), row["oracle_reward"].as_f64()),
            (Some(0.0), Some(1.0)),
            "{row}"
        );
    }
    // Known by now: nothing runs again. Broken by hand, a task is tried again and told from the others.
    let broken = made.path("tasks/o__python-7/solution/solution.patch");
    std::fs::write(&broken, "").unwrap();
    let again = made.prepare(&[&["-o", "tasks", "--stage", "validate"], &stages[4..]].concat());
    let said = String::from_utf8_lossy(&again.stdout).into_owned();
    assert!(said.contains("oracle fails 1"), "{said}");
    assert_eq!(made.rows("tasks/invalid.jsonl")[0]["instance_id"], "o__python-7");
}

#[test]
fn images_of_tasks_hold_nothing_of_the_solution_and_validate() {
    let Some(base) = image() else { return };
    let all = std::env::var("LEGO_TEST_LANGUAGES").ok();
    let languages: &[&str] = if all.is_some() {
        &["python", "javascript", "go", "rust", "c"]
    } else {
        &["python"]
    };
    let base = all.unwrap_or(base);
    let made = Made::of(languages);
    let images: Vec<String> = languages
        .iter()
        .map(|language| format!("--base-image={language}={base}"))
        .collect();
    let mut arguments = vec![
        "records.jsonl",
        "-o",
        "tasks",
        "--repo-cache",
        "repos",
        "--stage",
        "convert,index,validate",
    ];
    arguments.extend(["--repeats", "1", "--backend", "docker", "--format", "table"]);
    arguments.extend(images.iter().map(String::as_str));
    made.prepare(&arguments);
    for row in made.rows("tasks/validation.jsonl") {
        assert_eq!(
            (row["nop_reward"].as_f64(), row["oracle_reward"].as_f64()),
            (Some(0.0), Some(1.0)),
            "{row}"
        );
    }
    for language in languages {
        cheat_scan(&made.path(&format!("tasks/o__{language}-7")), language);
    }
}

/// What an agent could find without working: later commits, lost objects, the tests, words of the solution.
fn cheat_scan(task: &Path, language: &str) {
    let name = format!("lego-test/scan-{language}-{}", std::process::id());
    docker(&["build", "-q", "-t", &name, task.join("environment").to_str().unwrap()]);
    let script = "cd /testbed; git log --all --oneline | wc -l; git fsck --lost-found 2>/dev/null | wc -l; git tag | wc -l; git remote | wc -l; \
                  git cat-file --batch-check --batch-all-objects | wc -l; git ls-files | wc -l; \
                  grep -rlI -e sum_of_two -e SumOfTwo -e 'sum of two' -e LATER.md / --exclude-dir=proc --exclude-dir=sys --exclude-dir=usr 2>/dev/null | wc -l; ls /tests /solution 2>/dev/null | wc -l";
    let output = Command::new("docker")
        .args(["run", "--rm", "--network", "none", &name, "sh", "-c", script])
        .output()
        .unwrap();
    let found: Vec<usize> = String::from_utf8_lossy(&output.stdout)
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    let _ = Command::new("docker").args(["rmi", "-f", &name]).output();
    let [commits, lost, tags, remotes, objects, files, words, folders] = found[..] else {
        panic!("{output:?}");
    };
    assert_eq!(
        (commits, lost, tags, remotes, words, folders),
        (1, 0, 0, 0, 0, 0),
        "{language}"
    );
    // The commit, its folders and its files, and no object beside them.
    assert!(
        objects <= 1 + files * 3,
        "{language}: {objects} objects of {files} files"
    );
    let instruction = std::fs::read_to_string(task.join("instruction.md")).unwrap();
    let solution = std::fs::read_to_string(task.join("solution/solution.patch")).unwrap();
    for line in solution
        .lines()
        .filter(|line| line.starts_with('+') && !line.starts_with("+++") && line.len() > 8)
    {
        assert!(!instruction.contains(line[1..].trim()), "{language}: {line}");
    }
}
