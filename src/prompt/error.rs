//! What can go wrong between messages and tokens.

use std::path::PathBuf;

/// A tokenizer or template that cannot be loaded or used.
#[derive(Debug, thiserror::Error)]
pub enum PromptError {
    /// A file could not be read.
    #[error("could not read `{}`: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// A file is not what it should be.
    #[error("`{}` is not usable: {reason}", path.display())]
    Malformed {
        /// The file.
        path: PathBuf,
        /// What was expected and what was found.
        reason: String,
    },
    /// No chat template anywhere.
    #[error("no chat template in `{}`; expected `chat_template` in tokenizer_config.json, or chat_template.jinja", .0.display())]
    NoTemplate(PathBuf),
    /// No token ends an answer.
    #[error("no end-of-turn token for `{}`; expected `eos_token` in tokenizer_config.json or `eos_token_id` in config.json", .0.display())]
    NoStopToken(PathBuf),
    /// The template refused the messages or failed on them.
    #[error("the chat template refused the messages: {0}")]
    Template(String),
    /// The tokenizer failed.
    #[error("text could not be encoded: {0}")]
    Encode(String),
    /// The template has no place where recorded tokens can be continued.
    #[error("recorded tokens cannot be continued with this template: {0}")]
    NotContinuable(&'static str),
}
