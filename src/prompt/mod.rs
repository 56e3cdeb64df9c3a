//! From messages to prompt tokens, and from sampled tokens back to messages.
//!
//! The tokenizer, the model's chat template, prompts as recorded tokens + rendered delta, and incremental
//! parsers of tool calls and thinking. This module keeps no conversation and records nothing; and it never
//! encodes text that a policy has sampled.

mod answer;
mod builder;
#[cfg(test)]
mod builder_tests;
mod decode;
mod encode_cache;
mod error;
mod message;
mod python_text;
mod template;
mod template_functions;
mod template_shape;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
pub(crate) mod testing;
mod thinking;
mod tokenizer;
mod tool_parser;

pub use answer::{AnswerEvent, AnswerParser, new_call_id};
pub use builder::{Continuation, PromptBuilder};
pub use decode::DecodeStream;
pub use error::PromptError;
pub use message::{FunctionCall, Message, Role, ToolCall, same_value};
pub use template::{ChatTemplate, Rendering};
pub use thinking::Thinking;
pub use tokenizer::{StopToken, TOKENIZER_FILES, Tokenizer};
pub use tool_parser::{ParseEvent, ParsedCall, ToolFormat, ToolParser, ToolSchemas};
