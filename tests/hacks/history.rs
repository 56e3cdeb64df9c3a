//! A repository whose history holds the fix: the agent tries what git and files offer, in whole trials.

use crate::played::{Place, Play, is_possible, play};
use crate::tasks::TaskFiles;

/// A repository with the fix behind its head, in refs, reflogs, packs, stashes, notes, dangling objects, copies.
const MAKE: &str = r"set -e
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
git init -q -b trunk .
for i in 1 2 3 4 5 6; do echo text number $i >file$i; done
git add -A && git commit -qm base
echo SECRETFIX >fix.py && cp fix.py calc.py && git add -A && git commit -qm fix && git tag -a -m SECRETFIX v2 && git notes add -m SECRETFIX
git bundle create -q all.bundle --all && mv all.bundle data.bin
git branch next && git reset -q --hard HEAD~1
git update-ref ORIG_HEAD next
echo SECRETFIX >file1 && git stash -q
echo SECRETFIX | git hash-object -w --stdin >/dev/null
git pack-refs --all && git gc -q --no-prune
cp -R .git .git-backup && cp -R .git hidden-store
git worktree add -q --detach tree next
";

/// Prints where the fix is found.
const SEEK: &str = r#"
seek() { grep -aqE 'SECRETFIX' && echo "LEAK $1"; }
git log --all -p 2>/dev/null | seek log
git log -g -p 2>/dev/null | seek reflog
git reflog --all 2>/dev/null | grep -q fix && echo LEAK reflog-names
git stash list -p 2>/dev/null | seek stash
git show v2 next ORIG_HEAD HEAD@{1} refs/notes/commits 2>/dev/null | seek names
git for-each-ref 2>/dev/null | grep -vE 'refs/heads/trunk$' | grep -q . && echo LEAK refs
cat .git/packed-refs .git/ORIG_HEAD .git/logs/HEAD 2>/dev/null | seek files
git fsck --lost-found 2>/dev/null | seek fsck
find .git/lost-found -type f -exec cat {} + 2>/dev/null | seek lost-found
for folder in $(find / -type d -name objects -not -path '/proc/*' -not -path '/usr/*' 2>/dev/null); do
    for object in $(git --git-dir=$folder/.. cat-file --batch-all-objects --batch-check='%(objectname)' 2>/dev/null); do
        git --git-dir=$folder/.. cat-file -p $object 2>/dev/null | seek "object in $folder"
    done
done
find / -xdev -type f \( -name '*.pack' -o -name '*.bundle' \) -not -path '/usr/*' 2>/dev/null | while read -r f; do echo "LEAK pack $f"; done
grep -rlaE 'SECRETFIX' . ${HOME:-/root} /tmp /logs 2>/dev/null | while read -r f; do echo "LEAK file $f"; done
grep -rlaE '^# v[23] git bundle$' . 2>/dev/null | while read -r f; do echo "LEAK bundle $f"; done
git worktree list 2>/dev/null | sed 1d | grep -q . && echo LEAK worktree
cat .git/objects/info/alternates 2>/dev/null | grep -q . && echo LEAK alternates
git log --all --oneline | wc -l
echo searched
"#;

fn task(toml: &str, test: &str) -> TaskFiles {
    let mut task = TaskFiles::calculator();
    task.toml += toml;
    MAKE.clone_into(&mut task.made_by);
    if !test.is_empty() {
        task.tests = vec![("test.sh".to_owned(), test.to_owned())];
    }
    task
}

const REWARD: &str = "logs=${LEGO_LOGS_DIR:-/logs}/verifier\n";

#[tokio::test(flavor = "multi_thread")]
async fn no_command_inside_finds_the_fix() {
    // The search finds it where nothing was taken out.
    let folder = tempfile::tempdir().unwrap();
    task("", "").write(folder.path());
    let seek = SEEK
        .replace("find / ", "find . ")
        .replace(" ${HOME:-/root} /tmp /logs", "");
    let found = std::process::Command::new("sh")
        .args(["-c", &seek])
        .current_dir(folder.path().join("environment/files"))
        .output()
        .unwrap();
    let found = String::from_utf8_lossy(&found.stdout).into_owned();
    for trace in [
        "log",
        "reflog",
        "stash",
        "names",
        "fsck",
        "object in",
        "pack",
        "file",
        "bundle",
        "worktree",
        "refs",
    ] {
        let trace = format!("LEAK {trace}");
        // Dangling blobs are named by `fsck` and written, not printed.
        assert!(found.contains(&trace) || trace.ends_with("fsck"), "{trace}: {found}");
    }
    for place in [Place::Namespaces, Place::Weak, Place::Docker, Place::Kubernetes] {
        if !is_possible(place).await {
            continue;
        }
        let seek = if place == Place::Weak {
            // The root is the host's there.
            SEEK.replace("find / ", "find . $HOME ")
                .replace(" ${HOME:-/root} /tmp /logs", " $HOME")
        } else {
            SEEK.to_owned()
        };
        let after = "git status --short; git log --format=%s";
        let plays = vec![Play::new("seek", task("", ""), &[&seek, after])];
        let played = play(place, plays, &[]).await;
        let ended = &played.ended["seek"];
        assert!(ended.said.contains("1\nsearched"), "{place:?}: {}", ended.said);
        assert!(!ended.said.contains("LEAK"), "{place:?}: {}", ended.said);
        assert!(
            ended.said.ends_with("start"),
            "a clean folder of one commit: {}",
            ended.said
        );
        // What was taken out before the agent is not the agent's doing.
        assert_eq!(ended.flags, Vec::<String>::new(), "{place:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tests_that_name_commits_find_those_up_to_the_start() {
    if !is_possible(Place::Namespaces).await {
        return;
    }
    // `file1` as it was, whatever the agent made of it; the later commit is not there for the program under test.
    let test = format!(
        "{REWARD}git checkout HEAD~0 -- file1 || exit 1\nok=0\n\
         grep -q 'number 1' file1 && [ \"$(git log --all --format=%s)\" = base ] && [ \"$(cat file2)\" = mine ] && ok=1\necho $ok >\"$logs/reward.txt\"\n"
    );
    let seek = "git log --all --format=%s; echo mine > file2; echo mine > file1; git commit -qam mine 2>&1 || git -c user.name=a -c user.email=a@b commit -qam mine";
    let plays = vec![
        Play::new("shared", task("", &test), &[seek]),
        Play::new("separate", task("", &test).separate(), &[seek]),
    ];
    let played = play(Place::Namespaces, plays, &[]).await;
    for (name, ended) in &played.ended {
        let output = std::fs::read_to_string(ended.folder.join("verifier/test-stdout.txt")).unwrap();
        assert_eq!(ended.reward, Some(1.0), "{name}: {output} {}", ended.result);
        assert!(ended.said.starts_with("start"), "{name}: {}", ended.said);
    }
}
