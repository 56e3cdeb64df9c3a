//! Carries bytes between its standard streams and the init's socket. It knows nothing of what it carries, and ends
//! when either end does.

use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::thread;

use crate::sandbox::control::remote::SOCKET;

const PIECE: usize = 64 * 1024;

pub(super) fn run() -> io::Result<()> {
    let socket = UnixStream::connect_addr(&SocketAddr::from_abstract_name(SOCKET)?)?;
    let to_init = socket.try_clone()?;
    thread::spawn(move || {
        let carried = carry(&mut io::stdin().lock(), &mut &to_init);
        // Where one direction ends, so does the other.
        let _ = to_init.shutdown(Shutdown::Both);
        carried
    });
    carry(&mut &socket, &mut io::stdout().lock())
}

/// Every piece goes on as it comes.
fn carry(from: &mut impl Read, to: &mut impl Write) -> io::Result<()> {
    let mut buffer = vec![0; PIECE];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                to.write_all(&buffer[..n])?;
                to.flush()?;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
