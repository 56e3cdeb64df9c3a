use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

#[test]
fn a_copy_is_equal_and_every_kind_of_change_is_found() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to) = (folder.path().join("from"), folder.path().join("to"));
    fs::create_dir_all(from.join("sub/deep")).unwrap();
    fs::create_dir(&to).unwrap();
    for name in ["keep", "edit", "gone", "mode", "sub/deep/x", "sub/y"] {
        fs::write(from.join(name), "one").unwrap();
    }
    symlink("keep", from.join("link")).unwrap();
    copy(&from, &to, None).unwrap();
    assert_eq!(compare(&from, &to).unwrap(), Vec::<String>::new());

    // Same size, and the time set back: the content tells.
    let old = fs::metadata(to.join("edit")).unwrap().modified().unwrap();
    fs::write(to.join("edit"), "two").unwrap();
    File::options()
        .append(true)
        .open(to.join("edit"))
        .unwrap()
        .set_modified(old)
        .unwrap();
    fs::remove_file(to.join("gone")).unwrap();
    fs::set_permissions(to.join("mode"), fs::Permissions::from_mode(0o777)).unwrap();
    fs::remove_dir_all(to.join("sub")).unwrap();
    symlink("/etc", to.join("sub")).unwrap();
    fs::remove_file(to.join("link")).unwrap();
    symlink("edit", to.join("link")).unwrap();
    fs::create_dir(to.join("new")).unwrap();
    fs::write(to.join("new/file"), "").unwrap();
    assert_eq!(
        compare(&from, &to).unwrap(),
        ["edit", "gone", "link", "mode", "new/file", "sub", "sub/deep/x", "sub/y"]
    );
}

#[test]
fn closed_folders_are_removed_and_links_are_not_followed() {
    let folder = tempfile::tempdir().unwrap();
    let (doomed, host) = (folder.path().join("doomed"), folder.path().join("host"));
    fs::create_dir_all(doomed.join("closed/in")).unwrap();
    fs::create_dir(&host).unwrap();
    fs::write(host.join("file"), "").unwrap();
    symlink(&host, doomed.join("closed/in/link")).unwrap();
    fs::set_permissions(doomed.join("closed/in"), fs::Permissions::from_mode(0o000)).unwrap();
    fs::set_permissions(doomed.join("closed"), fs::Permissions::from_mode(0o000)).unwrap();
    let parent = File::open(folder.path()).unwrap();
    remove(parent.as_fd(), OsStr::new("doomed")).unwrap();
    remove(parent.as_fd(), OsStr::new("doomed")).unwrap();
    assert!(!doomed.exists());
    assert!(host.join("file").exists());
}

#[test]
fn size_is_measured_up_to_its_limits() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("a"), vec![0; 1000]).unwrap();
    fs::write(folder.path().join("b"), vec![0; 1000]).unwrap();
    assert!(!is_larger(folder.path(), 2000, 2).unwrap());
    assert!(is_larger(folder.path(), 1999, 2).unwrap());
    assert!(is_larger(folder.path(), 2000, 1).unwrap());
}

#[test]
fn a_deep_nest_is_compared_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (before, now) = (folder.path().join("before"), folder.path().join("now"));
    fs::create_dir(&before).unwrap();
    fs::create_dir(&now).unwrap();
    let mut at = std::os::fd::OwnedFd::from(File::open(&now).unwrap());
    for _ in 0..700 {
        mkdirat(&at, "d", Mode::S_IRWXU).unwrap();
        at = open_dir(at.as_fd(), OsStr::new("d")).unwrap();
    }
    drop(at);
    assert_eq!(compare(&before, &now).unwrap().len(), 1);
    let parent = File::open(folder.path()).unwrap();
    remove(parent.as_fd(), OsStr::new("now")).unwrap();
    assert_eq!(names(parent.as_fd()).unwrap(), ["before"]);
}
