//! Why a model cannot be had from its hub.

use std::io;
use std::path::{Path, PathBuf};

use lego_policy::WeightsError;

/// Why a model cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The endpoint is no address, or no client for it can be made.
    #[error("HF_ENDPOINT = `{endpoint}`: {reason}")]
    Endpoint {
        /// The address.
        endpoint: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The hub did not answer.
    #[error(
        "{name}: cannot reach {endpoint}: {reason}; look at the network, at HF_ENDPOINT, or write the folder of a \
         model that is here as `policy.model`"
    )]
    Unreachable {
        /// The model.
        name: String,
        /// The hub.
        endpoint: String,
        /// What went wrong, of the last try.
        reason: String,
    },
    /// `HF_HUB_OFFLINE` is set, and the model is not whole in the cache.
    #[error("{name} is not whole in the cache {} ({reason}), and HF_HUB_OFFLINE is set", cache.display())]
    Offline {
        /// The model.
        name: String,
        /// The folder that was looked in.
        cache: PathBuf,
        /// What is missing there.
        reason: String,
    },
    /// The hub wants to know who asks, which it also says of models that do not exist.
    #[error(
        "{name}: {endpoint} answers 401: there is no such model, or it is not public; check the name, or set HF_TOKEN"
    )]
    Unauthorised {
        /// The model.
        name: String,
        /// The hub.
        endpoint: String,
    },
    /// Who asks may not have it.
    #[error(
        "{name}: {endpoint} answers 403: the owner of the token may not have it; accept the model's terms on its page, \
         or set another HF_TOKEN"
    )]
    Forbidden {
        /// The model.
        name: String,
        /// The hub.
        endpoint: String,
    },
    /// No such model or revision.
    #[error("{name}: {endpoint} answers 404: no such {what}; check the name")]
    NotFound {
        /// The model.
        name: String,
        /// The hub.
        endpoint: String,
        /// What is not there.
        what: &'static str,
    },
    /// Another answer without success, after all tries.
    #[error("{name}: {url} answers {status}")]
    Status {
        /// The model.
        name: String,
        /// What was asked for.
        url: String,
        /// HTTP status.
        status: u16,
    },
    /// The repository lacks a file that is needed.
    #[error("{name} has no {file}{found}; take a model with {file}, or convert this one and write its folder")]
    NoFile {
        /// The model.
        name: String,
        /// What is needed.
        file: &'static str,
        /// What it has instead, for the message.
        found: String,
    },
    /// An answer that is not what a hub says.
    #[error("{name}: {url}: {reason}")]
    Answer {
        /// The model.
        name: String,
        /// What was asked for.
        url: String,
        /// What was expected and found.
        reason: String,
    },
    /// A file whose content is not what the hub says of it; it was removed.
    #[error("{name}: {file}: expected {expected}, found {found}; the file was removed, try again")]
    Damaged {
        /// The model.
        name: String,
        /// The file.
        file: String,
        /// Its size or hash by the hub.
        expected: String,
        /// As it came.
        found: String,
    },
    /// Another process downloads the file and gets nowhere.
    #[error("{}: another process holds it and has written nothing for {seconds} s; end that process, or remove the file", lock.display())]
    Locked {
        /// The lock.
        lock: PathBuf,
        /// Time without progress.
        seconds: u64,
    },
    /// The index of the weights cannot be read.
    #[error("{name}: {source}")]
    Index {
        /// The model.
        name: String,
        /// What is wrong with it.
        #[source]
        source: WeightsError,
    },
    /// The cache.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was tried.
        action: &'static str,
        /// On what.
        path: PathBuf,
        /// What it said.
        #[source]
        source: io::Error,
    },
}

impl HubError {
    /// Whether it is the network's, the hub's or the disk's doing, and not that of what was asked for.
    pub fn is_unavailable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. }
                | Self::Status { .. }
                | Self::Answer { .. }
                | Self::Damaged { .. }
                | Self::Locked { .. }
                | Self::Io { .. }
        )
    }
}

/// Names the action and the path of a file system error.
pub(super) fn io_error(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> HubError {
    let path = path.to_owned();
    move |source| HubError::Io { action, path, source }
}
