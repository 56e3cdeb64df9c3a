//! The agent's work as a patch, kept in the trial's folder: what is judged can be judged again without a model.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::sandbox::{ExecRequest, Sandbox, SandboxError};
use crate::scaffold::WORK_PATCH;
use crate::verifier::Changes;

/// Where it passes through inside.
const PASSAGE: &str = "/logs/artifacts/lego-work.patch";
/// Largest that is kept.
const LARGEST: u64 = 64 << 20;
/// Text files of more are left out where there is no git.
const LARGEST_FILE: u64 = 4 << 20;
/// The difference from the repository's first commit, in an index of its own: the agent's stays as it is.
const DIFF: &str = r#"
rm -rf "$1"
cd "$LEGO_WORKDIR" || exit 4
command -v git >/dev/null || exit 4
export GIT_CONFIG_COUNT=4 GIT_CONFIG_KEY_0=safe.directory GIT_CONFIG_VALUE_0='*' GIT_CONFIG_KEY_1=core.fsmonitor GIT_CONFIG_VALUE_1=false
export GIT_CONFIG_KEY_2=core.hooksPath GIT_CONFIG_VALUE_2=/dev/null GIT_CONFIG_KEY_3=core.quotePath GIT_CONFIG_VALUE_3=false GIT_NO_REPLACE_OBJECTS=1
[ "$(git rev-parse --show-toplevel 2>/dev/null)" = "$(pwd -P)" ] || exit 4
first=$(git rev-list --max-parents=0 HEAD | tail -n 1)
[ -n "$first" ] || exit 4
index=$(mktemp -u) || exit 5
export GIT_INDEX_FILE="$index"
git read-tree "$first" && git add -A . && git diff --cached --binary --no-color --no-ext-diff --no-textconv "$first" >"$1"
code=$?
rm -f "$index"
exit $code
"#;

/// Writes the patch to `folder`. Without a repository it is made of `originals`, the host folders that the working folder
/// began as; without either there is none.
///
/// Whatever goes wrong inside is the agent's own doing, or costs no more than the patch: it is warned of.
pub(super) async fn keep(
    sandbox: &dyn Sandbox,
    folder: &Path,
    changes: &Changes,
    originals: &[PathBuf],
) -> Result<(), SandboxError> {
    let to = folder.join(WORK_PATCH);
    let mut request = ExecRequest::as_root(DIFF);
    request.argv.extend(["diff".to_owned(), sandbox.path(PASSAGE)]);
    request.timeout = Duration::from_mins(2);
    let ran = sandbox.exec(request).await?;
    let made = match ran.exit_code {
        0 => match sandbox.download_within(PASSAGE, &to, LARGEST).await {
            Ok(()) => true,
            Err(error) if error.is_too_large() => false,
            Err(SandboxError::NotFound { .. }) => false,
            Err(error) => return Err(error),
        },
        _ => false,
    };
    let mut clear = ExecRequest::as_root("rm -rf \"$0\"");
    clear.argv.push(sandbox.path(PASSAGE));
    sandbox.exec(clear).await?;
    if !made {
        let text = originals
            .last()
            .filter(|_| changes.is_whole())
            .map(|original| of_files(changes, original));
        let written = match text {
            Some(text) => fs_err::write(&to, text),
            None => Ok(()),
        };
        if let Err(error) = written {
            tracing::warn!(error = %error, "the agent's patch was not kept");
        }
    }
    Ok(())
}

/// Every changed text file as one hunk that replaces all of it.
fn of_files(changes: &Changes, original: &Path) -> String {
    let mut patch = String::new();
    for path in changes.paths() {
        let old = fs_err::read_to_string(original.join(path)).ok();
        let new = changes.text_of(path, LARGEST_FILE);
        if old == new || (old.is_none() && new.is_none()) {
            continue;
        }
        let side = |sign: &str, text: &Option<String>| match text {
            Some(_) => format!("{sign}/{path}"),
            None => "/dev/null".to_owned(),
        };
        let _ = writeln!(patch, "diff --git a/{path} b/{path}");
        match (&old, &new) {
            (None, _) => patch += "new file mode 100644\n",
            (_, None) => patch += "deleted file mode 100644\n",
            _ => {}
        }
        let count = |text: &Option<String>| text.as_deref().map_or(0, |text| text.lines().count());
        let range = |count: usize| {
            if count == 0 {
                "0,0".to_owned()
            } else {
                format!("1,{count}")
            }
        };
        if count(&old) + count(&new) == 0 {
            continue;
        }
        let _ = writeln!(patch, "--- {}\n+++ {}", side("a", &old), side("b", &new));
        let _ = writeln!(patch, "@@ -{} +{} @@", range(count(&old)), range(count(&new)));
        for (sign, text) in [('-', &old), ('+', &new)] {
            let Some(text) = text else { continue };
            for line in text.split_inclusive('\n') {
                patch.push(sign);
                patch += line;
                if !line.ends_with('\n') {
                    patch += "\n\\ No newline at end of file\n";
                }
            }
        }
    }
    patch
}
