//! A task folder, opened.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;

use super::stages::tests_image;
use super::{SchemaWarning, TaskConfig, TaskError, folder_checksum, parse_task_toml};

/// Time for the verifier and for an image build where task.toml names none (the format's own defaults).
const DEFAULT_TIMEOUT: Duration = Duration::from_mins(10);

/// A task folder that has what a task needs: an instruction and tests.
#[derive(Debug, Clone)]
pub struct Task {
    /// Where it is.
    pub dir: PathBuf,
    /// Its instance id: the folder's name.
    pub id: String,
    /// task.toml, or its defaults where there is none.
    pub config: TaskConfig,
    /// Its image by digest, as `name@sha256:…`, where it was opened by an index that pins it.
    pub pinned: Option<String>,
    /// What in task.toml is not understood.
    pub warnings: Vec<SchemaWarning>,
    instruction: String,
}

impl Task {
    /// Opens a task folder.
    ///
    /// A folder without `instruction.md` or `tests/test.sh` (in a task of several steps: in one of the
    /// steps) is an error that names the folder and the file. Tests that have an image of their own may be there only. task.toml may be absent.
    pub fn load(dir: &Path) -> Result<Self, TaskError> {
        let folder = fs::canonicalize(dir)?;
        let id = folder
            .file_name()
            .and_then(|name| name.to_str())
            .ok_or_else(|| TaskError::Name { dir: dir.to_owned() })?
            .to_owned();
        let manifest = dir.join("task.toml");
        let (config, warnings) = match fs::read_to_string(&manifest) {
            Ok(text) => parse_task_toml(&manifest, &text)?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => (TaskConfig::default(), Vec::new()),
            Err(error) => return Err(error.into()),
        };
        let missing = |file: String, what: &'static str| TaskError::Missing {
            dir: dir.to_owned(),
            file,
            what,
        };
        let shared_tests = dir.join("tests/test.sh").is_file();
        for step in &config.steps {
            let folder = format!("steps/{}", step.name);
            if !dir.join(&folder).join("instruction.md").is_file() {
                return Err(missing(
                    format!("{folder}/instruction.md"),
                    "what the agent is told in this step",
                ));
            }
            if !shared_tests
                && tests_image(dir, &config, Some(step)).is_none()
                && !dir.join(&folder).join("tests/test.sh").is_file()
            {
                return Err(missing(
                    format!("{folder}/tests/test.sh"),
                    "the script that writes the step's reward",
                ));
            }
        }
        if config.steps.is_empty() && !shared_tests && tests_image(dir, &config, None).is_none() {
            return Err(missing("tests/test.sh".to_owned(), "the script that writes the reward"));
        }
        let instruction = match config.steps.first() {
            Some(step) => dir.join("steps").join(&step.name).join("instruction.md"),
            None => dir.join("instruction.md"),
        };
        if !instruction.is_file() {
            return Err(missing("instruction.md".to_owned(), "what the agent is told"));
        }
        let instruction = fs::read_to_string(&instruction)?;
        Ok(Self {
            dir: dir.to_owned(),
            id,
            config,
            pinned: None,
            warnings,
            instruction,
        })
    }

    /// What the agent is told; of a task with several steps, what it is told first.
    pub fn instruction(&self) -> &str {
        &self.instruction
    }

    /// Folder with the verifier; enters the sandbox only at verification, as `/tests`.
    pub fn tests_dir(&self) -> PathBuf {
        self.dir.join("tests")
    }

    /// Folder with the oracle, if there is one; enters a sandbox only for the oracle, as `/solution`.
    pub fn solution_dir(&self) -> Option<PathBuf> {
        Some(self.dir.join("solution")).filter(|dir| dir.join("solve.sh").is_file())
    }

    /// Folder whose content the `local` backend makes the working folder: `environment/files`, if there is one.
    ///
    /// A Dockerfile written by `prepare` copies the same folder, so that both backends start alike.
    pub fn local_source(&self) -> Option<PathBuf> {
        Some(self.dir.join("environment/files")).filter(|dir| dir.is_dir())
    }

    /// Working folder inside: task.toml's, else the last `WORKDIR` of the Dockerfile; else the image's own counts.
    pub fn workdir(&self) -> Option<String> {
        let dockerfile = || fs::read_to_string(self.dir.join("environment/Dockerfile")).ok();
        self.config
            .environment
            .workdir
            .clone()
            .or_else(|| dockerfile().and_then(|text| last_workdir(&text)))
    }

    /// Time for the agent, if the task limits it.
    pub fn agent_timeout(&self) -> Option<Duration> {
        self.config.agent.timeout_sec.map(super::Seconds::duration)
    }

    /// Time for the verifier.
    pub fn verifier_timeout(&self) -> Duration {
        self.config
            .verifier
            .timeout_sec
            .map_or(DEFAULT_TIMEOUT, super::Seconds::duration)
    }

    /// Time to build the image.
    pub fn build_timeout(&self) -> Duration {
        self.config
            .environment
            .build_timeout_sec
            .map_or(DEFAULT_TIMEOUT, super::Seconds::duration)
    }

    /// SHA-256 over the folder's paths and contents.
    pub fn checksum(&self) -> Result<String, TaskError> {
        folder_checksum(&self.dir)
    }
}

/// The last absolute `WORKDIR` of a Dockerfile that holds no variable.
fn last_workdir(dockerfile: &str) -> Option<String> {
    dockerfile
        .lines()
        .filter_map(|line| line.trim().split_once(char::is_whitespace))
        .filter(|(word, _)| word.eq_ignore_ascii_case("workdir"))
        .map(|(_, path)| path.trim().trim_matches('"'))
        .rfind(|path| path.starts_with('/') && !path.contains('$'))
        .map(str::to_owned)
}
