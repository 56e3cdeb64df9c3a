//! Harbor's process: started, bounded, and ended so that it can remove what it made.

use std::fs::File;
use std::io::{self, Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::process::{Child, Command};
use tokio_util::sync::CancellationToken;

/// Time to remove its environment after an interrupt. What is killed before that leaves its containers behind.
const PATIENCE: Duration = Duration::from_mins(3);
/// The same after it was told once more.
const LAST: Duration = Duration::from_secs(20);
/// Bytes of its log that an error quotes.
const WORDS: u64 = 2000;

/// How it ended.
#[derive(Debug)]
pub(super) enum End {
    /// By itself.
    Exited(ExitStatus),
    /// Its time was over.
    OutOfTime,
    /// We ended it.
    Cancelled,
}

/// Runs it to its end; what it prints goes to the end of `log`.
///
/// It is in a process group of its own, so that a terminal's interrupt reaches us alone. Where this process is killed, it
/// goes on to the end of its trial, which is near once the proxy is gone, and removes its environment itself.
pub(super) async fn run(
    mut command: Command,
    log: &Path,
    limit: Duration,
    cancel: &CancellationToken,
) -> io::Result<End> {
    let out = fs_err::OpenOptions::new()
        .create(true)
        .append(true)
        .open(log)?
        .into_parts()
        .0;
    command
        .stdin(Stdio::null())
        .stdout(out.try_clone()?)
        .stderr(out)
        .process_group(0);
    let mut running = Running(command.spawn()?);
    let early = tokio::select! {
        status = running.0.wait() => return Ok(End::Exited(status?)),
        () = tokio::time::sleep(limit) => End::OutOfTime,
        () = cancel.cancelled() => End::Cancelled,
    };
    for (signal, patience) in [(Signal::SIGINT, PATIENCE), (Signal::SIGTERM, LAST)] {
        running.tell(signal);
        if let Ok(status) = tokio::time::timeout(patience, running.0.wait()).await {
            status?;
            return Ok(early);
        }
    }
    tracing::warn!("Harbor did not end within {PATIENCE:?} of its interrupt: what its trial made may be left");
    if let Some(group) = running.pid() {
        let _ = killpg(group, Signal::SIGKILL);
    }
    running.0.wait().await?;
    Ok(early)
}

/// A started process. Dropped before its end, it is interrupted.
struct Running(Child);

impl Running {
    /// `None` once its end was seen.
    fn pid(&self) -> Option<Pid> {
        Some(Pid::from_raw(self.0.id()?.try_into().ok()?))
    }

    fn tell(&self, signal: Signal) {
        if let Some(pid) = self.pid() {
            let _ = kill(pid, signal);
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tell(Signal::SIGINT);
    }
}

/// The end of its log.
pub(super) fn last_words(log: &Path) -> String {
    let read = || -> io::Result<Vec<u8>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(WORDS)))?;
        let mut bytes = Vec::new();
        file.take(WORDS).read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let bytes = read().unwrap_or_default();
    String::from_utf8_lossy(&bytes).trim().to_owned()
}
