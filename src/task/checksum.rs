//! The checksum of a task: which task it is, whatever the folder is called.

use std::path::{Path, PathBuf};

use fs_err as fs;
use sha2::{Digest as _, Sha256};

use super::TaskError;

/// SHA-256 in lower-case hexadecimal.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&Sha256::digest(bytes))
}

/// The same of a file, which is read piece by piece.
pub fn sha256_of_file(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let (mut file, mut hasher) = (fs::File::open(path)?, Sha256::new());
    let mut piece = vec![0; 1 << 20];
    loop {
        match file.read(&mut piece)? {
            0 => return Ok(hex(&hasher.finalize())),
            read => hasher.update(&piece[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes
        .iter()
        .fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
}

/// SHA-256 over the files of a folder: for each, in the order of its relative path, the path, its length and its content.
///
/// Links count by their target and are not followed. Modes, times and empty folders do not count, so
/// that a copy has the checksum of the original.
pub fn folder_checksum(dir: &Path) -> Result<String, TaskError> {
    let mut files = Vec::new();
    collect(dir, Path::new(""), &mut files)?;
    files.sort();
    let mut hasher = Sha256::new();
    for relative in files {
        let path = dir.join(&relative);
        let content = if path.is_symlink() {
            fs::read_link(&path)?.into_os_string().into_encoded_bytes()
        } else {
            fs::read(&path)?
        };
        let name = relative.as_os_str().as_encoded_bytes();
        hasher.update((name.len() as u64).to_le_bytes());
        hasher.update(name);
        hasher.update((content.len() as u64).to_le_bytes());
        hasher.update(&content);
    }
    Ok(hex(&hasher.finalize()))
}

fn collect(root: &Path, relative: &Path, files: &mut Vec<PathBuf>) -> Result<(), TaskError> {
    for entry in fs::read_dir(root.join(relative))? {
        let entry = entry?;
        let path = relative.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            collect(root, &path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_checksum_follows_paths_and_contents_only() {
        let dir = tempfile::tempdir().unwrap();
        let (a, b) = (dir.path().join("a"), dir.path().join("b"));
        for root in [&a, &b] {
            fs::create_dir_all(root.join("sub")).unwrap();
        }
        fs::write(a.join("x"), "1").unwrap();
        fs::write(a.join("sub/y"), "2").unwrap();
        fs::write(b.join("sub/y"), "2").unwrap();
        fs::write(b.join("x"), "1").unwrap();
        let first = folder_checksum(&a).unwrap();
        assert_eq!(first, folder_checksum(&b).unwrap());
        assert_eq!(first.len(), 64);
        fs::write(b.join("sub/y"), "3").unwrap();
        assert_ne!(first, folder_checksum(&b).unwrap());
    }

    #[test]
    fn sha256_of_the_empty_string() {
        assert!(sha256_hex(b"").starts_with("e3b0c44298fc1c149afbf4c8996fb924"));
    }
}
