//! `--format`.

use std::io::IsTerminal as _;

/// How data is written to stdout.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// A table on a terminal, JSON lines elsewhere
    #[default]
    Auto,
    /// For people
    Table,
    /// One JSON document
    Json,
    /// One JSON object a line
    Jsonl,
}

impl Format {
    /// What `auto` means here.
    pub(crate) fn chosen(self) -> Self {
        match self {
            Self::Auto if std::io::stdout().is_terminal() => Self::Table,
            Self::Auto => Self::Jsonl,
            chosen => chosen,
        }
    }
}

/// `--format`, as every command that writes data takes it.
#[derive(Debug, Clone, Copy, clap::Args)]
pub(crate) struct FormatArg {
    /// How data is written to stdout; auto is a table on a terminal and JSON lines elsewhere
    #[arg(long, value_enum, default_value = "auto", value_name = "auto|table|json|jsonl")]
    #[arg(hide_possible_values = true)]
    pub(crate) format: Format,
}
