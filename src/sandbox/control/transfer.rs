//! Files between the host and a sandbox: the streaming itself, on a blocking thread.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::stream::{self, Received, Target};

/// Longest silence of the other end.
const SILENCE: Duration = Duration::from_mins(1);

/// A stream for one transfer: ours, and the one that the init gets. It may be silent for this long beyond what a transfer
/// takes.
pub(in crate::sandbox) fn pair(beyond: Duration) -> io::Result<(UnixStream, UnixStream)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_read_timeout(Some(SILENCE + beyond))?;
    ours.set_write_timeout(Some(SILENCE + beyond))?;
    Ok((ours, theirs))
}

/// Sends the host's `from`; the other end says how it went.
pub(in crate::sandbox) fn upload(from: &Path, ours: &UnixStream) -> io::Result<()> {
    let source = File::open(from)?;
    let mut output = BufWriter::with_capacity(1 << 16, ours);
    let sent = stream::send(Ok(source.into()), &mut output).and_then(|()| output.flush());
    // Not flushed again when dropped: the other end may be gone.
    let _ = output.into_parts();
    let _ = ours.shutdown(Shutdown::Write);
    // Where the other end gave up, its reason says more than our broken pipe.
    match stream::outcome(&mut BufReader::new(ours)) {
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => sent.and(Err(error)),
        outcome => outcome,
    }
}

/// Receives into the host's `to`, at most `limit` bytes.
pub(in crate::sandbox) fn download(ours: &UnixStream, to: &Path, limit: u64) -> io::Result<Received> {
    let name = to.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_owned();
    let parent = to
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty())
        .unwrap_or(Path::new("."));
    fs_err::create_dir_all(parent)?;
    let parent = File::open(parent)?;
    let target = Target {
        parent: parent.as_fd(),
        name,
        folder: None,
        contained: true,
        limit,
    };
    stream::receive(&mut BufReader::with_capacity(1 << 16, ours), target)
}
