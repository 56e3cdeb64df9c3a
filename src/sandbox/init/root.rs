//! The file system inside: read-only programs of the host, a minimal `/etc`, fresh `/proc` and `/dev`,
//! the working folder, and memory elsewhere. Nothing else of the host is there.
//!
//! The root itself is read-only, so that what lies in it (`/etc`, the mount points `/tests` and
//! `/logs/verifier`) cannot be replaced by the agent.

use std::fs::{self, File};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use nix::fcntl::{OFlag, open};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sys::stat::Mode;
use nix::unistd::{chdir, pivot_root, sethostname};

use super::Failure;
use super::namespaces::{STAGE, by_descriptor};
use crate::sandbox::control::wire::Setup;
use crate::sandbox::sys;

/// Memory that the sandbox may fill with files where no disk limit is set.
const MEMORY_FILES: u64 = 1 << 30;
/// Read-only files of the host's /etc that programs need and that say nothing about the host.
const ETC: &[&str] = &[
    "alternatives",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "ssl/certs",
    "localtime",
    "magic",
];
const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const GROUP: &str = "root:x:0:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost\n::1 localhost\n";
const NSSWITCH: &str = "passwd: files\ngroup: files\nshadow: files\nhosts: files\n";

const PLAIN: MsFlags = MsFlags::MS_NOSUID.union(MsFlags::MS_NODEV);

/// A path as a descriptor that is good for mounting only.
pub(super) fn handle(path: &Path) -> Result<OwnedFd, Failure> {
    open(path, OFlag::O_PATH | OFlag::O_CLOEXEC, Mode::empty()).map_err(|error| Failure::new(path.display(), error))
}

/// Binds an opened path, with all below it, onto another.
pub(super) fn bind_handle(source: &OwnedFd, target: &Path) -> Result<(), Failure> {
    bind(Path::new(&by_descriptor(source)), target)
}

fn bind(source: &Path, target: &Path) -> Result<(), Failure> {
    let none = None::<&str>;
    mount(Some(source), target, none, MsFlags::MS_BIND | MsFlags::MS_REC, none)
        .map_err(|error| Failure::refused(format_args!("bind onto {}", target.display()), error))
}

fn restrict(path: &Path, attributes: u64, recursive: bool) -> Result<(), Failure> {
    sys::mount_attributes(path, attributes, recursive)
        .map_err(|error| Failure::refused(format_args!("restrict {}", path.display()), error))
}

fn file_system(kind: &str, target: &Path, flags: MsFlags, options: &str) -> Result<(), Failure> {
    mount(Some("lego"), target, Some(kind), flags, Some(options))
        .map_err(|error| Failure::refused(format_args!("mount {kind} on {}", target.display()), error))
}

/// A fresh memory file system, for a folder that nothing inside has touched.
pub(super) fn fresh(target: &Path, bytes: u64) -> nix::Result<()> {
    // The one before it, if any.
    let _ = umount2(target, MntFlags::MNT_DETACH);
    let options = format!("mode=755,size={bytes}");
    mount(Some("lego"), target, Some("tmpfs"), PLAIN, Some(options.as_str()))
}

/// Bytes of files in memory that a sandbox may hold.
pub(super) fn memory_files(setup: &Setup) -> u64 {
    setup.disk.unwrap_or(MEMORY_FILES).min(setup.memory.unwrap_or(u64::MAX))
}

fn make_dir(path: &Path) -> Result<(), Failure> {
    fs::create_dir_all(path).map_err(|error| Failure::new(path.display(), error))
}

/// Builds the root and enters it.
pub(super) fn build(setup: &Setup) -> Result<(), Failure> {
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
        .map_err(|error| Failure::refused("private mounts", error))?;
    let work = handle(&setup.scratch)?;
    let lower = setup.lower.as_deref().map(handle).transpose()?;
    let extra = setup
        .read_only
        .iter()
        .map(|mount| Ok((&mount.at, handle(&mount.from)?)))
        .collect::<Result<Vec<_>, Failure>>()?;

    let root = Path::new(STAGE);
    file_system("tmpfs", root, PLAIN, "mode=755,size=16m")?;
    programs(root)?;
    etc(root, setup)?;
    devices(root)?;
    make_dir(&root.join("proc"))?;
    file_system("proc", &root.join("proc"), PLAIN | MsFlags::MS_NOEXEC, "")?;
    for name in ["sys", "sysrq-trigger", "irq", "bus"] {
        let path = root.join("proc").join(name);
        if path.exists() {
            bind(&path, &path)?;
            restrict(&path, libc::MOUNT_ATTR_RDONLY, true)?;
        }
    }
    memory(root, setup)?;
    for (path, source) in &extra {
        let target = root.join(path.strip_prefix("/").unwrap_or(path));
        make_dir(&target)?;
        bind_handle(source, &target)?;
        restrict(
            &target,
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
            true,
        )?;
    }
    working_folder(root, setup, &work, lower.as_ref())?;
    enter(root, setup)
}

fn programs(root: &Path) -> Result<(), Failure> {
    for name in ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "nix", "gnu"] {
        let (host, target) = (Path::new("/").join(name), root.join(name));
        let Ok(meta) = fs::symlink_metadata(&host) else {
            continue;
        };
        if meta.is_symlink() {
            let link = fs::read_link(&host).map_err(|error| Failure::new(host.display(), error))?;
            symlink(link, &target).map_err(|error| Failure::new(target.display(), error))?;
        } else if meta.is_dir() {
            make_dir(&target)?;
            bind(&host, &target)?;
            restrict(
                &target,
                libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
                true,
            )?;
        }
    }
    Ok(())
}

fn etc(root: &Path, setup: &Setup) -> Result<(), Failure> {
    let etc = root.join("etc");
    make_dir(&etc)?;
    let hostname = format!("{}\n", setup.name);
    for (name, text) in [
        ("passwd", PASSWD),
        ("group", GROUP),
        ("hosts", HOSTS),
        ("nsswitch.conf", NSSWITCH),
        ("resolv.conf", ""),
        ("hostname", hostname.as_str()),
    ] {
        let path = etc.join(name);
        fs::write(&path, text).map_err(|error| Failure::new(path.display(), error))?;
    }
    for name in ETC {
        let (host, target) = (Path::new("/etc").join(name), etc.join(name));
        let Ok(meta) = fs::metadata(&host) else { continue };
        if meta.is_dir() {
            make_dir(&target)?;
        } else {
            File::create(&target).map_err(|error| Failure::new(target.display(), error))?;
        }
        bind(&host, &target)?;
        restrict(
            &target,
            libc::MOUNT_ATTR_RDONLY | libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV,
            true,
        )?;
    }
    Ok(())
}

fn devices(root: &Path) -> Result<(), Failure> {
    let dev = root.join("dev");
    make_dir(&dev.join("pts"))?;
    make_dir(&dev.join("shm"))?;
    for name in ["null", "zero", "full", "random", "urandom", "tty"] {
        let target = dev.join(name);
        File::create(&target).map_err(|error| Failure::new(target.display(), error))?;
        bind(&Path::new("/dev").join(name), &target)?;
    }
    for (link, name) in [
        ("/proc/self/fd", "fd"),
        ("fd/0", "stdin"),
        ("fd/1", "stdout"),
        ("fd/2", "stderr"),
    ] {
        symlink(link, dev.join(name)).map_err(|error| Failure::new(name, error))?;
    }
    // Terminals are for the few programs that open one; where they are refused the sandbox is still whole.
    if file_system(
        "devpts",
        &dev.join("pts"),
        MsFlags::MS_NOSUID | MsFlags::MS_NOEXEC,
        "newinstance,ptmxmode=0666",
    )
    .is_ok()
    {
        symlink("pts/ptmx", dev.join("ptmx")).map_err(|error| Failure::new("ptmx", error))?;
    }
    Ok(())
}

/// One memory file system, bounded as a whole, behind every writable folder but the working one.
fn memory(root: &Path, setup: &Setup) -> Result<(), Failure> {
    let pool = root.join("pool");
    make_dir(&pool)?;
    file_system("tmpfs", &pool, PLAIN, &format!("mode=755,size={}", memory_files(setup)))?;
    for (folder, mode) in [
        ("tmp", 0o1777),
        ("run", 0o755),
        ("var/tmp", 0o1777),
        ("dev/shm", 0o1777),
        ("root", 0o700),
        ("logs/agent", 0o755),
        ("logs/verifier", 0o755),
        ("logs/artifacts", 0o755),
    ] {
        let (behind, target) = (pool.join(folder.replace('/', "-")), root.join(folder));
        make_dir(&behind)?;
        fs::set_permissions(&behind, fs::Permissions::from_mode(mode))
            .map_err(|error| Failure::new(behind.display(), error))?;
        make_dir(&target)?;
        bind(&behind, &target)?;
    }
    umount2(&pool, MntFlags::MNT_DETACH).map_err(|error| Failure::refused("detach the pool", error))?;
    fs::remove_dir(&pool).map_err(|error| Failure::new("the pool", error))?;
    for empty in ["tests", "solution"] {
        make_dir(&root.join(empty))?;
    }
    Ok(())
}

fn working_folder(root: &Path, setup: &Setup, scratch: &OwnedFd, lower: Option<&OwnedFd>) -> Result<(), Failure> {
    let plain = Path::new(&setup.workdir).strip_prefix("/").ok().filter(|path| {
        path.components().next().is_some() && path.components().all(|part| matches!(part, Component::Normal(_)))
    });
    let Some(plain) = plain else {
        return Err(Failure::new(
            "workdir",
            format_args!("`{}` is not an absolute path below /", setup.workdir),
        ));
    };
    let target = root.join(plain);
    make_dir(&target)?;
    let scratch = PathBuf::from(by_descriptor(scratch));
    let Some(lower) = lower else {
        return bind(&scratch.join("work"), &target);
    };
    // Names without the characters that overlay's options give a meaning to.
    let (below, above) = (root.join("lower"), root.join("scratch"));
    make_dir(&below)?;
    make_dir(&above)?;
    bind_handle(lower, &below)?;
    bind(&scratch, &above)?;
    let options = format!(
        "lowerdir={0}/lower,upperdir={0}/scratch/upper,workdir={0}/scratch/overlay,userxattr",
        root.display()
    );
    file_system("overlay", &target, PLAIN, &options)?;
    for path in [below, above] {
        umount2(&path, MntFlags::MNT_DETACH).map_err(|error| Failure::refused("detach", error))?;
        fs::remove_dir(&path).map_err(|error| Failure::new(path.display(), error))?;
    }
    Ok(())
}

fn enter(root: &Path, setup: &Setup) -> Result<(), Failure> {
    let fail = |error: nix::Error| Failure::refused("enter the root", error);
    restrict(root, libc::MOUNT_ATTR_RDONLY, false)?;
    chdir(root).map_err(fail)?;
    pivot_root(".", ".").map_err(fail)?;
    umount2(".", MntFlags::MNT_DETACH).map_err(fail)?;
    chdir("/").map_err(fail)?;
    sethostname(&setup.name).map_err(fail)
}
