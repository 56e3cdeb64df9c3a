//! What an adapter is given and what it says.

use std::collections::BTreeMap;

use crate::sandbox::ExecOutput;
use crate::scaffold::AgentEnd;

/// Characters of an agent's last words that are kept with a failure.
const DETAIL: usize = 400;

/// How one agent is got, started and read.
pub(crate) trait Adapter: Send + Sync {
    /// Its name in run.toml.
    fn name(&self) -> &'static str;

    /// The program that has to be there.
    fn program(&self) -> &str;

    /// Arguments with which the program tells its version; `None`: it tells none.
    fn version_args(&self) -> Option<&'static [&'static str]> {
        Some(&["--version"])
    }

    /// The Python package that it is, where the program is Python itself; its version is the agent's.
    fn package(&self) -> Option<PythonPackage> {
        None
    }

    /// Further programs that it starts by name, under the names of their packages.
    fn also_needs(&self) -> &'static [&'static str] {
        &[]
    }

    /// How a person installs it, for the message where it is missing.
    fn install(&self) -> &'static str;

    /// How it is started on one task.
    fn launch(&self, endpoint: &Endpoint<'_>) -> Launch;

    /// How it ended, by its exit and what it printed. A time-out is known already.
    fn end(&self, output: &ExecOutput) -> AgentEnd {
        by_exit(output)
    }
}

/// An agent that is a library.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PythonPackage {
    /// As it is installed.
    pub(super) name: &'static str,
    /// A folder of it below `site-packages`.
    pub(super) folder: &'static str,
}

/// What an agent needs to know.
#[derive(Debug)]
pub(crate) struct Endpoint<'a> {
    /// Base URL of its session without `/v1`, as it is reached inside.
    pub(super) url: &'a str,
    pub(super) token: &'a str,
    /// Served model name.
    pub(super) model: &'a str,
    /// Prompt and answer together, in tokens.
    pub(super) window: usize,
    /// Tokens of one answer at most.
    pub(super) max_tokens: u32,
    /// Model calls at most.
    pub(super) max_turns: u32,
    /// The task.
    pub(super) instruction: &'a str,
    /// Folders as they are found inside.
    pub(super) workdir: String,
    pub(super) home: String,
    pub(super) logs: String,
}

impl Endpoint<'_> {
    /// Base URL as OpenAI clients want it.
    pub(super) fn v1(&self) -> String {
        format!("{}/v1", self.url)
    }
}

/// A command line and its surroundings.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Launch {
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    /// Files that are written first, by their paths inside.
    pub(super) files: Vec<(String, String)>,
    pub(super) stdin: Option<String>,
}

/// Pairs as an environment.
pub(super) fn env<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// Words as a command line.
pub(super) fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// Exit codes of a shell's programs that a signal ended are beyond this one.
const SIGNALLED: i32 = 128;

/// An exit code of 0 is the agent's own end, any other its failure.
pub(super) fn by_exit(output: &ExecOutput) -> AgentEnd {
    if output.exit_code == 0 {
        return AgentEnd::Completed;
    }
    let text = match output.output.trim() {
        "" => "it printed nothing",
        text => text,
    };
    let from = text.char_indices().rev().nth(DETAIL - 1).map_or(0, |(at, _)| at);
    AgentEnd::Failed {
        exit_code: Some(output.exit_code),
        detail: match output.exit_code - SIGNALLED {
            signal @ 1..=64 => format!("signal {signal} ended it; {}", &text[from..]),
            _ => text[from..].to_owned(),
        },
    }
}
