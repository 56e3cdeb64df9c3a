//! Tool calls in sampled text, found while it is being sampled.
//!
//! Every format is an incremental parser whose result does not depend on where the text was cut. What looks
//! like a call and is none stays text and is reported: nothing is dropped and nothing is an error.

mod balance;
#[cfg(test)]
mod chunking_tests;
mod format;
mod json_calls;
mod lenient_json;
mod marked_calls;
mod opening;
mod python_literal;
mod pythonic_calls;
mod running;
mod schema;
#[cfg(test)]
mod tests;

pub use format::ToolFormat;
pub use running::ToolParser;
pub use schema::ToolSchemas;

/// A call, parsed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ParsedCall {
    /// What is called.
    pub name: String,
    /// JSON text of an object, as the policy wrote it (control characters escaped).
    pub arguments: String,
    /// The name that the policy gave the call, in formats that have one (`kimi_k2`, newer `mistral`).
    pub id: Option<String>,
}

/// What a parser found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ParseEvent {
    /// Text outside calls.
    Text(String),
    /// One whole call.
    Call(ParsedCall),
    /// The text before it was meant as a call and is none; it was also given out as `Text`.
    Malformed {
        /// Why.
        reason: String,
    },
}
