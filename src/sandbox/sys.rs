//! The few system calls that no safe wrapper covers. Every `unsafe` of the sandbox is here.
//!
//! Nothing here decides anything: each function is one call, its arguments checked by its types.
#![expect(unsafe_code, reason = "system calls without a safe wrapper, one per function")]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::unistd::ForkResult;
use tokio::io::unix::AsyncFd;

/// Forks. Callers are single-threaded, so the child may allocate.
pub(in crate::sandbox) fn fork() -> nix::Result<ForkResult> {
    // SAFETY: only the init calls this, and it has one thread.
    unsafe { nix::unistd::fork() }
}

/// Ends this process without running destructors of the parent's objects.
pub(in crate::sandbox) fn exit_now(code: i32) -> ! {
    // SAFETY: `_exit` takes any integer and does not return.
    unsafe { libc::_exit(code) }
}

/// A handle on a process that becomes readable when it ends.
pub(in crate::sandbox) fn pidfd(pid: i32) -> io::Result<OwnedFd> {
    // SAFETY: the call takes two integers and returns a new descriptor or -1.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Takes ownership of descriptor 0 as it was handed over at start.
pub(in crate::sandbox) fn take_stdin() -> io::Result<OwnedFd> {
    let control = io::stdin().as_fd().try_clone_to_owned()?;
    let null = File::open("/dev/null")?;
    redirect(null.as_fd(), 0)?;
    Ok(control)
}

/// Makes `to` (0, 1 or 2) the same open file as `from`.
pub(in crate::sandbox) fn redirect(from: BorrowedFd<'_>, to: i32) -> io::Result<()> {
    // SAFETY: `from` is open for the length of the call; `to` is a standard stream that no object owns.
    if unsafe { libc::dup2(from.as_raw_fd(), to) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Marks every descriptor but the standard streams close-on-exec.
pub(in crate::sandbox) fn close_on_exec() {
    // SAFETY: integers only; 4 is CLOSE_RANGE_CLOEXEC. An old kernel refuses, and each is marked at its birth anyway.
    unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, 4) };
}

/// Makes reads and writes of this open file come back at once.
pub(in crate::sandbox) fn set_nonblocking(fd: BorrowedFd<'_>) -> nix::Result<()> {
    use nix::fcntl::{FcntlArg, OFlag, fcntl};
    fcntl(fd, FcntlArg::F_SETFL(OFlag::O_NONBLOCK)).map(drop)
}

/// Owns descriptors that `recvmsg` delivered.
pub(in crate::sandbox) fn own(raw: i32) -> OwnedFd {
    // SAFETY: the kernel installed it for this message; the caller passes each once.
    unsafe { OwnedFd::from_raw_fd(raw) }
}

/// Adds attributes (`MOUNT_ATTR_*`) to a mount, and to those below it if `recursive`.
pub(in crate::sandbox) fn mount_attributes(path: &Path, set: u64, recursive: bool) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let attr = libc::mount_attr {
        attr_set: set,
        attr_clr: 0,
        propagation: 0,
        userns_fd: 0,
    };
    let flags = if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: `path` is NUL-terminated and `attr` has the size given; both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            libc::AT_FDCWD,
            path.as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    };
    if done < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Switches the loopback interface of this network namespace on.
pub(in crate::sandbox) fn loopback_up() -> io::Result<()> {
    let socket = nix::sys::socket::socket(
        nix::sys::socket::AddressFamily::Inet,
        nix::sys::socket::SockType::Datagram,
        nix::sys::socket::SockFlag::SOCK_CLOEXEC,
        None,
    )?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    request.ifr_name[0] = b'l' as libc::c_char;
    request.ifr_name[1] = b'o' as libc::c_char;
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as i16;
    // SAFETY: SIOCSIFFLAGS reads an `ifreq`, which outlives the call.
    if unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Takes all capabilities but these (a bit each) out of the bounding set: no `exec` brings another one back.
pub(in crate::sandbox) fn limit_bounding_set(keep: u64) {
    for capability in (0..64).filter(|capability| keep >> capability & 1 == 0) {
        // SAFETY: integers only; numbers past the last capability are refused.
        if unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability, 0, 0, 0) } < 0 {
            break;
        }
    }
}

/// This process's permitted capabilities, a bit each.
pub(in crate::sandbox) fn capabilities() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapPrm:"));
    line.and_then(|line| u64::from_str_radix(line.trim(), 16).ok())
        .unwrap_or(0)
}

/// Makes these capabilities this process's own, permitted and effective, and no other.
pub(in crate::sandbox) fn set_capabilities(keep: u64) -> io::Result<()> {
    #[repr(C)]
    struct Header(u32, i32);
    let header = Header(0x2008_0522, 0);
    let (low, high) = (keep as u32, (keep >> 32) as u32);
    let sets = [low, low, 0, high, high, 0];
    // SAFETY: version 3 reads an 8-byte header and two 12-byte sets; both outlive the call.
    if unsafe { libc::syscall(libc::SYS_capset, &raw const header, sets.as_ptr()) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Whether an overlay's folder hides what is below it in the lower layer.
pub(in crate::sandbox) fn is_opaque(dir: BorrowedFd<'_>) -> bool {
    let mut value = 0u8;
    // SAFETY: the name is NUL-terminated, `value` is one byte and outlives the call.
    let read = unsafe {
        libc::fgetxattr(
            dir.as_raw_fd(),
            c"user.overlay.opaque".as_ptr(),
            (&raw mut value).cast(),
            1,
        )
    };
    read == 1 && value == b'y'
}

/// A descriptor that tasks can wait for.
pub(in crate::sandbox) fn watched(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    // SAFETY: an `OwnedFd` keeps its descriptor open and the same until it is dropped.
    Ok(unsafe { AsyncFd::register(fd) }?)
}

/// An anonymous file that holds `content`, rewound.
pub(in crate::sandbox) fn memory_file(content: &[u8]) -> io::Result<OwnedFd> {
    let fd = memfd_create(c"lego", MFdFlags::MFD_CLOEXEC)?;
    let mut file = File::from(fd);
    file.write_all(content)?;
    io::Seek::rewind(&mut file)?;
    Ok(file.into())
}
