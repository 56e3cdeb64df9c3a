//! The lock file: one writer a run directory.
//!
//! The kernel's lock on the open file decides, so that a killed process never leaves a run locked; the
//! file's content says who it is, for messages and for those who watch.

use std::io::{Read as _, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use fs_err as fs;
use jiff::Timestamp;
use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};

use super::RunDirError;

const LOCK_FILE: &str = "lock";
/// How long is waited for a holder that may just be ending, and for one that has: the kernel takes its time to let go of
/// what a process of many threads had open.
const ENDING: Duration = Duration::from_secs(1);
const ENDED: Duration = Duration::from_secs(10);
const LOOK: Duration = Duration::from_millis(50);

/// Who writes a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockHolder {
    /// Its process.
    pub pid: u32,
    /// Its machine.
    pub host: String,
    /// When the process started, in the kernel's ticks since boot; tells a reused pid from the holder.
    pub process_start: u64,
    /// When it took the lock.
    pub since: Timestamp,
}

impl LockHolder {
    fn this_process() -> Self {
        let pid = std::process::id();
        Self {
            pid,
            host: host(),
            process_start: process_start(pid).unwrap_or(0),
            since: Timestamp::now(),
        }
    }

    /// Whether the process lives on this machine; `None` where it ran on another.
    pub fn is_alive(&self) -> Option<bool> {
        (self.host == host()).then(|| process_start(self.pid) == Some(self.process_start))
    }
}

/// The lock, held. Dropping it releases the run.
#[derive(Debug)]
pub struct RunLock {
    file: Flock<std::fs::File>,
}

impl RunLock {
    /// Takes the lock, also over a holder of this machine that died. Waits a moment for one that is ending.
    pub(super) fn take(dir: &Path) -> Result<Self, RunDirError> {
        let path = dir.join(LOCK_FILE);
        let open = || {
            fs::OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&path)
        };
        let began = Instant::now();
        let mut file = loop {
            match Flock::lock(open()?.into_parts().0, FlockArg::LockExclusiveNonblock) {
                Ok(file) => break file,
                Err((mut file, nix::errno::Errno::EWOULDBLOCK)) => {
                    let holder = read(&path, &mut file)?;
                    let dead = holder.as_ref().is_some_and(|holder| holder.is_alive() == Some(false));
                    if began.elapsed() >= if dead { ENDED } else { ENDING } {
                        return Err(locked(dir, holder));
                    }
                    std::thread::sleep(LOOK);
                }
                Err((_, errno)) => return Err(std::io::Error::from(errno).into()),
            }
        };
        if let Some(LockHolder { pid, host, .. }) = read(&path, &mut file)?.filter(|found| found.host != host()) {
            return Err(RunDirError::ForeignLock {
                dir: dir.to_owned(),
                pid,
                host,
            });
        }
        let text = serde_json::to_string(&LockHolder::this_process()).map_err(std::io::Error::from)?;
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(Self { file })
    }
}

fn locked(dir: &Path, holder: Option<LockHolder>) -> RunDirError {
    let (pid, host, since) = match holder {
        Some(LockHolder { pid, host, since, .. }) => (pid, host, since.to_string()),
        // Between its lock and its first write.
        None => (0, "this machine".to_owned(), "just now".to_owned()),
    };
    RunDirError::Locked {
        dir: dir.to_owned(),
        pid,
        host,
        since,
    }
}

impl Drop for RunLock {
    fn drop(&mut self) {
        // An empty file tells other machines that the run was released; the kernel's lock goes with the file.
        let _ = self.file.set_len(0);
    }
}

/// Who holds the lock of a run directory: the process named in the file, unless it is known to be dead.
pub(super) fn holder(dir: &Path) -> Result<Option<LockHolder>, RunDirError> {
    let path = dir.join(LOCK_FILE);
    match fs::File::open(&path) {
        Ok(file) => Ok(read(&path, &mut file.into_parts().0)?.filter(|holder| holder.is_alive() != Some(false))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read(path: &Path, file: &mut std::fs::File) -> Result<Option<LockHolder>, RunDirError> {
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    if text.trim().is_empty() {
        return Ok(None);
    }
    let damaged = |error: serde_json::Error| RunDirError::Damaged {
        path: PathBuf::from(path),
        reason: format!("not a lock of a run ({error}); delete it if no process uses the run"),
    };
    serde_json::from_str(&text).map(Some).map_err(damaged)
}

/// The name of this machine.
pub(super) fn host() -> String {
    nix::unistd::gethostname().map_or_else(|_| "localhost".into(), |name| name.to_string_lossy().into_owned())
}

/// When a process started (field 22 of /proc/<pid>/stat); `None` for one that is gone or is a zombie.
fn process_start(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, which may hold spaces and parentheses.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?;
    if state == "Z" {
        None
    } else {
        fields.nth(18)?.parse().ok()
    }
}
