//! Where things are: paths as commands see them, and the environment that tells them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::wire::Mode;
use crate::sandbox::PATH;

/// Paths of one sandbox.
#[derive(Debug, Clone)]
pub(in crate::sandbox) struct Layout {
    pub(in crate::sandbox) mode: Mode,
    pub(in crate::sandbox) scratch: PathBuf,
    pub(in crate::sandbox) workdir: String,
}

impl Layout {
    /// A base that is safe to resolve below, and the rest of an absolute path inside.
    ///
    /// In namespaces the base is the sandbox's own root. Without, it is the host folder that stands for
    /// the path's first part; another path stays what it is, as the host's.
    pub(in crate::sandbox) fn split(&self, inside: &str) -> (PathBuf, PathBuf) {
        let below = |path: &str, prefix: &str| Path::new(path).strip_prefix(prefix).ok().map(Path::to_owned);
        if self.mode == Mode::Weak {
            let known = [(self.workdir.as_str(), "work"), ("/logs", "logs"), ("/tests", "tests")];
            let known = known
                .into_iter()
                .chain([("/solution", "solution"), ("/tmp", "tmp"), ("/root", "home")]);
            for (prefix, folder) in known {
                if let Some(rest) = below(inside, prefix) {
                    return (self.scratch.join(folder), rest);
                }
            }
        }
        (
            PathBuf::from("/"),
            below(inside, "/").unwrap_or_else(|| PathBuf::from(inside)),
        )
    }

    /// The path by which a command finds `inside`.
    pub(in crate::sandbox) fn path(&self, inside: &str) -> String {
        let (base, rest) = self.split(inside);
        if base == Path::new("/") || rest.as_os_str().is_empty() {
            return if base == Path::new("/") {
                inside.to_owned()
            } else {
                base.to_string_lossy().into_owned()
            };
        }
        base.join(rest).to_string_lossy().into_owned()
    }

    /// Environment of every command, before the task's own.
    pub(in crate::sandbox) fn environment(&self) -> BTreeMap<String, String> {
        let mut env = BTreeMap::from([
            ("PATH".to_owned(), PATH.to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("LEGO_WORKDIR".to_owned(), self.path(&self.workdir)),
            ("LEGO_LOGS_DIR".to_owned(), self.path("/logs")),
            ("LEGO_TESTS_DIR".to_owned(), self.path("/tests")),
        ]);
        if self.mode != Mode::Container {
            env.insert("HOME".to_owned(), self.path("/root"));
        }
        if self.mode == Mode::Weak {
            env.insert("TMPDIR".to_owned(), self.path("/tmp"));
        }
        env
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_their_own_in_namespaces_and_mapped_without() {
        let mut layout = Layout {
            mode: Mode::Namespaces,
            scratch: "/s".into(),
            workdir: "/app".to_owned(),
        };
        assert_eq!(layout.path("/logs/verifier"), "/logs/verifier");
        assert_eq!(layout.split("/app/x"), ("/".into(), "app/x".into()));
        layout.mode = Mode::Weak;
        assert_eq!(layout.path("/logs/verifier"), "/s/logs/verifier");
        assert_eq!(layout.path("/app"), "/s/work");
        assert_eq!(layout.path("/application"), "/application");
        assert_eq!(layout.split("/tests/test.sh"), ("/s/tests".into(), "test.sh".into()));
        assert_eq!(layout.environment()["LEGO_TESTS_DIR"], "/s/tests");
    }
}
