//! The task that is played: two programs that subtract where they should add, and hidden tests of both.

use std::path::Path;

/// Files of a task folder.
#[derive(Debug, Clone)]
pub(crate) struct TaskFiles {
    pub(crate) toml: String,
    /// Working folder.
    pub(crate) files: Vec<(String, String)>,
    /// `/tests`.
    pub(crate) tests: Vec<(String, String)>,
    /// Run in the working folder when it is written.
    pub(crate) made_by: String,
}

const ADD: &str = "echo $(($1 - $2))\n";
const CALC: &str = "def add(a, b):\n    return a - b\n";
const VISIBLE: &str = "import unittest\nimport calc\n\n\nclass Calc(unittest.TestCase):\n    def test_zero(self):\n        \
    self.assertEqual(calc.add(1, 0), 1)\n\n    def test_more(self):\n        self.assertNotEqual(calc.add(1, 1), 3)\n";
/// Compares with what the working folder says too: a file that belongs to the verifier.
const TEST: &str = r#"#!/bin/sh
logs=${LEGO_LOGS_DIR:-/logs}/verifier
tests=${LEGO_TESTS_DIR:-/tests}
ok=1
[ "$(sh ./add.sh 2 3)" = "$(cat "$tests/expected")" ] || ok=0
[ "$(cat golden.txt)" = 5 ] || ok=0
if command -v python3 >/dev/null; then
    python3 "$tests/check.py" || ok=0
fi
echo $ok >"$logs/reward.txt"
"#;
const CHECK: &str = "import os\nimport sys\nimport unittest\n\nsys.path.insert(0, os.getcwd())\nimport calc\n\n\n\
    class Hidden(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(calc.add(2, 3), 5)\n        \
    self.assertEqual(calc.add(-1, 1), 0)\n\n\nunittest.main()\n";
/// What makes both right.
pub(crate) const FIX: &str = "printf 'echo $(($1 + $2))\\n' > add.sh && sed -i 's/a - b/a + b/' calc.py";

impl TaskFiles {
    pub(crate) fn calculator() -> Self {
        let owned = |all: &[(&str, &str)]| {
            all.iter()
                .map(|(path, text)| ((*path).to_owned(), (*text).to_owned()))
                .collect()
        };
        Self {
            toml: "[metadata]\nverifier_files = [\"golden.txt\"]\n[agent]\ntimeout_sec = 60\n[verifier]\ntimeout_sec = 30\n".to_owned(),
            files: owned(&[
                ("add.sh", ADD),
                ("calc.py", CALC),
                ("golden.txt", "5\n"),
                ("tests/test_calc.py", VISIBLE),
                ("README.md", "Adds numbers.\n"),
            ]),
            tests: owned(&[("test.sh", TEST), ("check.py", CHECK), ("expected", "5\n")]),
            made_by: String::new(),
        }
    }

    /// With tests in a sandbox of their own.
    pub(crate) fn separate(mut self) -> Self {
        self.toml = self
            .toml
            .replace("[verifier]\n", "[verifier]\nenvironment_mode = \"separate\"\n");
        self
    }

    pub(crate) fn write(&self, folder: &Path) {
        let put = |path: std::path::PathBuf, text: &str| {
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put(folder.join("task.toml"), &self.toml);
        put(folder.join("instruction.md"), "Both programs must add.\n");
        for (path, text) in &self.files {
            put(folder.join("environment/files").join(path), text);
        }
        for (path, text) in &self.tests {
            put(folder.join("tests").join(path), text);
        }
        if !self.made_by.is_empty() {
            let made = std::process::Command::new("sh")
                .args(["-c", &self.made_by])
                .current_dir(folder.join("environment/files"))
                .env("GIT_CONFIG_GLOBAL", "/dev/null")
                .env("GIT_CONFIG_NOSYSTEM", "1")
                .output()
                .unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }
    }
}
