//! An empty folder to run `lego` in, and a session as text.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A folder of its own.
pub(crate) struct Workspace {
    folder: tempfile::TempDir,
}

impl Workspace {
    pub(crate) fn new() -> Self {
        Self {
            folder: tempfile::tempdir().unwrap(),
        }
    }

    /// Writes a file into it.
    pub(crate) fn file(self, name: &str, text: &str) -> Self {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
        self
    }

    /// Files that make every static check pass.
    pub(crate) fn model(self) -> Self {
        let policy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/quickstart/policy");
        let read = |name: &str| std::fs::read(policy.join(name)).unwrap();
        let config = String::from_utf8(read("config.json")).unwrap();
        let work = self
            .file(
                "model/config.json",
                &config.replace("\"max_position_embeddings\": 512", "\"max_position_embeddings\": 8192"),
            )
            .file("tasks/train.jsonl", "{}\n");
        for name in ["model.safetensors", "tokenizer.json", "tokenizer_config.json"] {
            std::fs::write(work.path().join("model").join(name), read(name)).unwrap();
        }
        work
    }

    pub(crate) fn path(&self) -> PathBuf {
        std::fs::canonicalize(self.folder.path()).unwrap()
    }

    /// A command that knows nothing of this machine's environment.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_lego"));
        command
            .args(arguments)
            .current_dir(self.path())
            .env_clear()
            .stdin(Stdio::null());
        command
    }

    /// Runs it and writes down what a person would see.
    pub(crate) fn lego(&self, arguments: &[&str]) -> String {
        self.session(self.command(arguments))
    }

    /// The same for a command that a test prepared.
    pub(crate) fn session(&self, mut command: Command) -> String {
        let output = command.output().unwrap();
        let mut text = String::new();
        let code = output
            .status
            .code()
            .map_or_else(|| "signal".to_owned(), |code| code.to_string());
        writeln!(text, "exit: {code}").unwrap();
        for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
            writeln!(
                text,
                "----- {name} -----\n{}",
                String::from_utf8_lossy(bytes).trim_end()
            )
            .unwrap();
        }
        redact(&text, &self.path())
    }
}

/// What differs from machine to machine, in one place: the folder's path, how far it pushes a remark, and memory.
fn redact(text: &str, folder: &Path) -> String {
    let remark_moved = |line: &str| match line.split_once("  # ").filter(|_| line.contains("[FOLDER]")) {
        Some((value, remark)) => format!("{}  # {}", value.trim_end(), remark.trim_start()),
        None => line.to_owned(),
    };
    let memory = |line: String| match (line.find("about "), line.find(" here")) {
        (Some(from), Some(to)) if line.contains("at most:") => format!("{}[MEMORY]{}", &line[..from], &line[to..]),
        _ => line,
    };
    let text = text.replace(&folder.display().to_string(), "[FOLDER]");
    text.lines()
        .map(remark_moved)
        .map(memory)
        .collect::<Vec<_>>()
        .join("\n")
        + "\n"
}
