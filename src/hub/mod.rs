//! Models by name: from `hf:org/name@revision` to a folder in the cache that Hugging Face's own clients share.
//!
//! Knows names, routes and the cache's layout, and nothing of what a model is used for. What is downloaded is what the
//! policy reads: config.json, safetensors, and the tokenizer's files.

mod cache;
mod client;
mod download;
mod error;
mod name;
mod settings;

pub use cache::{Need, Snapshot};
pub use download::{HubEvent, cached, fetch};
pub use error::HubError;
pub use name::{ModelName, PREFIX};
pub use settings::HubSettings;
