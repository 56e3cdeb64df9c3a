//! Single entries of a folder inside, by way of the whole folder: what a backend does that knows no shorter way.

use std::io;
use std::path::{Component, Path};

use super::{Sandbox, SandboxError};

/// Downloads the folder beside `to` and moves the entries out of it.
pub(super) async fn by_folder<S: Sandbox + ?Sized>(
    sandbox: &S,
    root: &str,
    entries: &[String],
    to: &Path,
    limit: u64,
) -> Result<(), SandboxError> {
    let failed = |source: io::Error| SandboxError::Transfer {
        name: "entries".to_owned(),
        path: root.to_owned(),
        source,
    };
    fs_err::create_dir_all(to).map_err(failed)?;
    if entries.is_empty() {
        return Ok(());
    }
    let whole = tempfile::tempdir_in(to.parent().unwrap_or(to)).map_err(failed)?;
    let all = whole.path().join("all");
    sandbox.download_within(root, &all, limit).await?;
    for entry in entries {
        take(&all, entry, to).map_err(failed)?;
    }
    // Folders that the agent closed would stay otherwise.
    opened(&all).map_err(failed)?;
    Ok(())
}

/// Moves one entry, if it is there as a file or link in real folders.
fn take(all: &Path, entry: &str, to: &Path) -> io::Result<()> {
    let relative = Path::new(entry);
    if !relative.components().all(|part| matches!(part, Component::Normal(_))) {
        return Ok(());
    }
    let mut parents = relative.ancestors().skip(1).filter(|path| !path.as_os_str().is_empty());
    if !parents.all(|path| all.join(path).symlink_metadata().is_ok_and(|meta| meta.is_dir())) {
        return Ok(());
    }
    let from = all.join(relative);
    match from.symlink_metadata() {
        Ok(meta) if meta.is_file() || meta.is_symlink() => {}
        _ => return Ok(()),
    }
    let target = to.join(relative);
    if let Some(parent) = target.parent() {
        fs_err::create_dir_all(parent)?;
    }
    fs_err::rename(from, target)
}

/// Makes every folder one that its owner can remove.
fn opened(folder: &Path) -> io::Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    fs_err::set_permissions(folder, std::fs::Permissions::from_mode(0o700))?;
    for entry in fs_err::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            opened(&entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::take;

    #[test]
    fn no_entry_is_reached_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let (all, to) = (folder.path().join("all"), folder.path().join("to"));
        fs_err::create_dir_all(all.join("real")).unwrap();
        fs_err::create_dir_all(&to).unwrap();
        fs_err::write(folder.path().join("outside"), "secret").unwrap();
        fs_err::write(all.join("real/a"), "a").unwrap();
        std::os::unix::fs::symlink("..", all.join("up")).unwrap();
        std::os::unix::fs::symlink("real/a", all.join("link")).unwrap();
        for entry in ["real/a", "up/outside", "link", "../outside", "none", "real"] {
            take(&all, entry, &to).unwrap();
        }
        assert_eq!(fs_err::read_to_string(to.join("real/a")).unwrap(), "a");
        assert!(to.join("link").symlink_metadata().unwrap().is_symlink());
        assert!(!to.join("up").exists() && !to.join("outside").exists());
        assert!(folder.path().join("outside").exists());
    }
}
