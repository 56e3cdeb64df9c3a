//! Harbor tasks on disk.

use std::path::PathBuf;

/// A task folder.
#[derive(Debug, Clone)]
pub struct Task {
    /// Where it is.
    pub dir: PathBuf,
    /// Its instance id.
    pub id: String,
}
