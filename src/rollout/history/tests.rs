//! The scripts by themselves, on a place where a fix lies in every store that git knows.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::{REMOVE, RESTORE};

const LEAKY: &str = include_str!("leaky.sh");

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let place = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        ended(&place.script(LEAKY, &[], ""));
        place
    }

    fn path(&self, below: &str) -> PathBuf {
        self.folder.path().canonicalize().unwrap().join(below)
    }

    fn script(&self, script: &str, arguments: &[&Path], cwd: &str) -> Output {
        Command::new("sh")
            .args(["-c", script, "sh"])
            .args(arguments)
            .current_dir(self.path(cwd))
            .env("HOME", self.path("home"))
            .env("TMPDIR", self.path("tmp"))
            .output()
            .unwrap()
    }

    fn git(&self, below: &str, arguments: &str) -> String {
        let ran = self.script(&format!("git {arguments}"), &[], below);
        String::from_utf8_lossy(&ran.stdout).into_owned()
    }

    /// What still tells of the fix: files with its text, and objects of any store that hold it.
    fn leaks(&self) -> Vec<String> {
        let script = "grep -rlE 'SECRETFIX|SUBFIX' . 2>/dev/null
            find . -type d -name objects -o -type d -name store -o -type d -path '*/modules/*' -name objects | while read -r store; do
                for object in $(GIT_DIR=$PWD/empty GIT_OBJECT_DIRECTORY=$store git cat-file --batch-all-objects --batch-check='%(objectname)' 2>/dev/null); do
                    GIT_DIR=$PWD/empty GIT_OBJECT_DIRECTORY=$store git cat-file -p $object 2>/dev/null | grep -qE 'SECRETFIX' && echo $store $object
                done
            done
            find . -type f \\( -name '*.pack' -o -name '*.idx' \\) -path '*tmp*'
            find . -type f -exec grep -lE '^# v[23] git bundle$' {} +";
        ended(&self.script("git init -q --bare empty", &[], ""));
        let found = String::from_utf8(self.script(script, &[], "").stdout).unwrap();
        found.lines().map(str::to_owned).collect()
    }

    fn remove(&self, keep: &Path) {
        let ran = self.script(REMOVE, &[&self.path("work"), keep, &self.path("")], "");
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "{said}{}", String::from_utf8_lossy(&ran.stderr));
        assert!(said.contains(&format!("top {}", self.path("work").display())), "{said}");
    }
}

fn ended(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn no_store_keeps_the_fix_and_what_is_not_its_history_stays() {
    let place = Place::new();
    let before = place.leaks();
    for trace in [
        "work/.git",
        "store",
        "home/clone",
        "tmp/renamed",
        "work/inner/f1",
        "outer/f1",
        "tmp/lone.pack",
        ".cache/pip",
    ] {
        assert!(before.iter().any(|leak| leak.contains(trace)), "{trace}: {before:?}");
    }
    let tracked = place.git("work", "ls-files");
    place.remove(Path::new(""));
    assert_eq!(place.leaks(), Vec::<String>::new());

    assert_eq!(place.git("work", "log --all --format=%s"), "start\n");
    assert_eq!(place.git("work", "ls-files"), tracked);
    assert_eq!(place.git("work", "symbolic-ref --short HEAD"), "trunk\n");
    assert_eq!(
        place.git("work", "status --porcelain"),
        "?? new\n",
        "`build/` stays ignored, `build/keep` tracked"
    );
    assert!(place.git("work", "ls-files -s f1 link").starts_with("100755 "));
    for nothing in [
        "reflog -n 5 --format=%gs ORIG_HEAD",
        "stash list",
        "tag",
        "notes list",
        "worktree list --porcelain -z x",
        "fsck --lost-found",
    ] {
        assert_eq!(place.git("work", nothing), "", "{nothing}");
    }
    assert_eq!(place.git("work/lib/sub", "log --all --format=%s"), "start\n");
    assert_eq!(
        place.git("work", "submodule status --cached").len(),
        place.git("work", "submodule status").len()
    );
    assert_eq!(
        std::fs::read_to_string(place.path("work/f1")).unwrap(),
        "file 1 with some words\n"
    );
    assert_eq!(place.git("other/project", "log --format=%s"), "mine\n");
    // The same folder gives the same commit: an agent's prompt does not depend on when.
    let again = Place::new();
    again.remove(Path::new(""));
    assert_eq!(again.git("work", "rev-parse HEAD"), place.git("work", "rev-parse HEAD"));
}

#[test]
fn tests_get_the_commits_up_to_the_start_and_none_after_it() {
    let place = Place::new();
    let head = place.git("work", "rev-parse HEAD");
    let keep = place.path("kept");
    place.remove(&keep);
    assert!(keep.join("history.pack").is_file());
    // The agent commits, and leaves a hook and settings that run programs.
    ended(&place.script(
        "echo done >f3 && git -c user.name=a -c user.email=a@b commit -qam mine && mkdir -p .git/hooks && echo 'touch hooked' >.git/hooks/post-checkout &&
         chmod +x .git/hooks/post-checkout && git config core.fsmonitor 'touch ran'",
        &[],
        "work",
    ));
    ended(&place.script(RESTORE, &[&place.path("work"), &keep], ""));
    assert_eq!(place.git("work", "rev-parse HEAD"), head);
    assert_eq!(place.git("work", "log --all --format=%s"), "submodule\nbase\n");
    assert!(
        place.git("work", "status --porcelain").contains(" M f3\n"),
        "its work stays"
    );
    place.git("work", "checkout -q HEAD -- f4");
    assert!(!place.path("work/hooked").exists() && !place.path("work/ran").exists());
    let leaks: Vec<String> = place
        .leaks()
        .into_iter()
        .filter(|leak| !leak.contains("kept"))
        .collect();
    assert_eq!(leaks, Vec::<String>::new());
}

#[test]
fn what_an_agent_set_up_in_the_repository_does_not_run_for_the_tests() {
    let place = Place::new();
    place.remove(Path::new(""));
    ended(&place.script(
        "mkdir -p .git/hooks && echo 'touch hooked' >.git/hooks/post-checkout && chmod +x .git/hooks/post-checkout &&
         git config core.fsmonitor 'touch ran' && git config alias.x '!touch aliased'",
        &[],
        "work",
    ));
    ended(&place.script(RESTORE, &[&place.path("work"), Path::new("")], ""));
    place.git("work", "status");
    place.git("work", "checkout -q HEAD -- f4");
    place.git("work", "x");
    for trace in ["hooked", "ran", "aliased"] {
        assert!(!place.path("work").join(trace).exists(), "{trace}");
    }
    assert_eq!(place.git("work", "log --format=%s"), "start\n");
}

#[test]
fn a_repository_under_another_name_is_found_where_none_is_in_place() {
    let place = Place::new();
    ended(&place.script(
        "rm -rf .git inner ../outer lib .gitmodules && mv .git-old stored",
        &[],
        "work",
    ));
    place.remove(Path::new(""));
    assert_eq!(place.leaks(), Vec::<String>::new());
    assert!(place.path("work/f1").exists() && place.path("home/unrelated.git").exists());
}

#[test]
fn a_folder_without_a_repository_stays_as_it_is() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a"), "a").unwrap();
    let place = Place { folder };
    ended(&place.script("mkdir home tmp work; mv a work", &[], ""));
    let ran = place.script(REMOVE, &[&place.path("work"), Path::new(""), &place.path("")], "");
    assert!(ran.status.success() && ran.stdout.is_empty());
    assert!(!place.path("work/.git").exists());
}

#[test]
fn a_repository_below_the_working_folder_keeps_its_files() {
    let folder = tempfile::tempdir().unwrap();
    let make = "mkdir -p app/sub home tmp && cd app/sub && git init -q . && echo one > f && git add f \
        && git -c user.name=a -c user.email=a@b commit -qm one && echo SECRETFIX > f && git add f \
        && git -c user.name=a -c user.email=a@b commit -qm fix && git reset -q --hard HEAD~1 && echo new > untracked";
    let run = |script: &str, arguments: &[&Path]| {
        let ran = Command::new("sh")
            .args(["-c", script, "sh"])
            .args(arguments)
            .current_dir(folder.path())
            .env("HOME", folder.path().join("home"))
            .env("TMPDIR", folder.path().join("tmp"))
            .output()
            .unwrap();
        String::from_utf8_lossy(&ran.stdout).into_owned()
    };
    run(make, &[]);
    let app = folder.path().join("app");
    run(REMOVE, &[&app, Path::new("")]);
    let left = run(
        "cd app/sub && ls && cat f && git log --all --format=%s && git fsck --lost-found && git reflog",
        &[],
    );
    assert_eq!(left, "f\nuntracked\none\nstart\n");
}
