use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

use super::*;

fn target<'a>(parent: &'a File, name: &str) -> Target<'a> {
    Target {
        parent: parent.as_fd(),
        name: name.into(),
        folder: None,
        contained: true,
        limit: 1 << 20,
    }
}

fn packed(path: &Path) -> Vec<u8> {
    let mut bytes = Vec::new();
    send(File::open(path).map(OwnedFd::from), &mut bytes).unwrap();
    bytes
}

#[test]
fn a_tree_arrives_as_it_was_and_links_out_of_it_do_not() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir_all(from.join("a/b")).unwrap();
    fs::write(from.join("a/run.sh"), "echo").unwrap();
    fs::set_permissions(from.join("a/run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    symlink("../a/run.sh", from.join("a/good")).unwrap();
    symlink("../../etc", from.join("a/up")).unwrap();
    symlink("/etc/passwd", from.join("abs")).unwrap();
    symlink("b/../../..", from.join("a/sly")).unwrap();
    let parent = File::open(folder.path()).unwrap();
    let received = receive(&mut packed(&from).as_slice(), target(&parent, "to")).unwrap();
    assert_eq!(received, Received { links_left_out: 3 });
    let to = folder.path().join("to");
    assert_eq!(fs::read_to_string(to.join("a/good")).unwrap(), "echo");
    assert_eq!(
        fs::metadata(to.join("a/run.sh")).unwrap().permissions().mode() & 0o777,
        0o755
    );
    assert!(to.join("a/b").is_dir());
    for name in ["abs", "a/up", "a/sly"] {
        assert!(to.join(name).symlink_metadata().is_err(), "{name}");
    }
}

#[test]
fn a_planted_link_is_replaced_and_never_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let (from, to, host) = (
        folder.path().join("from"),
        folder.path().join("to"),
        folder.path().join("host"),
    );
    for dir in [&from.join("d"), &to, &host] {
        fs::create_dir_all(dir).unwrap();
    }
    fs::write(from.join("d/x"), "mine").unwrap();
    fs::write(from.join("y"), "mine").unwrap();
    symlink(&host, to.join("d")).unwrap();
    fs::write(host.join("y"), "host").unwrap();
    symlink(host.join("y"), to.join("y")).unwrap();
    let parent = File::open(folder.path()).unwrap();
    receive(&mut packed(&from).as_slice(), target(&parent, "to")).unwrap();
    assert_eq!(fs::read_to_string(host.join("y")).unwrap(), "host");
    assert!(!host.join("x").exists());
    assert_eq!(fs::read_to_string(to.join("d/x")).unwrap(), "mine");
}

#[test]
fn a_stream_that_climbs_or_floods_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let parent = File::open(folder.path()).unwrap();
    let mut climbing = Vec::new();
    header(&mut climbing, DIRECTORY, 0o755, 0, b"").unwrap();
    header(&mut climbing, FILE, 0o644, 1, b"../out").unwrap();
    climbing.push(b'!');
    let error = receive(&mut climbing.as_slice(), target(&parent, "to")).unwrap_err();
    assert!(error.to_string().contains("plain relative"), "{error}");
    assert!(!folder.path().join("out").exists());

    let mut huge = Vec::new();
    header(&mut huge, FILE, 0o644, 1 << 40, b"").unwrap();
    assert!(
        receive(&mut huge.as_slice(), target(&parent, "big"))
            .unwrap_err()
            .to_string()
            .contains("more bytes")
    );
    assert!(receive(&mut b"d".as_slice(), target(&parent, "cut")).is_err());
}

#[test]
fn the_senders_failure_keeps_its_number() {
    let folder = tempfile::tempdir().unwrap();
    let parent = File::open(folder.path()).unwrap();
    let mut bytes = Vec::new();
    send(Err(io::Error::from_raw_os_error(libc::ENOENT)), &mut bytes).unwrap();
    let error = receive(&mut bytes.as_slice(), target(&parent, "x")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn no_entry_is_reached_through_a_link() {
    let folder = tempfile::tempdir().unwrap();
    let from = folder.path().join("from");
    fs::create_dir_all(from.join("real/deep")).unwrap();
    fs::write(folder.path().join("outside"), "secret").unwrap();
    fs::write(from.join("real/deep/a"), "a").unwrap();
    fs::write(from.join("real/b"), "b").unwrap();
    symlink("..", from.join("up")).unwrap();
    symlink("real/b", from.join("link")).unwrap();
    let entries = [
        "link",
        "real/deep/a",
        "real/b",
        "up/outside",
        "../outside",
        "none",
        "real",
    ]
    .map(str::to_owned);
    let mut bytes = Vec::new();
    send_entries(File::open(&from).map(OwnedFd::from), &entries, &mut bytes).unwrap();
    let parent = File::open(folder.path()).unwrap();
    receive(&mut bytes.as_slice(), target(&parent, "to")).unwrap();
    let to = folder.path().join("to");
    assert_eq!(fs::read_to_string(to.join("real/deep/a")).unwrap(), "a");
    assert_eq!(fs::read_to_string(to.join("real/b")).unwrap(), "b");
    assert!(to.join("link").symlink_metadata().unwrap().is_symlink());
    assert!(!to.join("up").exists() && !to.join("outside").exists() && !to.join("none").exists());
}
