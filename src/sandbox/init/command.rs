//! Starts one command: a session of its own, its output into one pipe, confined, then replaced by the program.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};

use nix::fcntl::{OFlag, open};
use nix::sys::signal::{SigHandler, SigSet, Signal, signal};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, chdir, execve, pipe2, setsid};

use super::confine::Fence;
use super::nowhere::Nowhere;
use super::user::Account;
use crate::sandbox::sys;

/// Exit code of a shell where a program is not there.
const NOT_FOUND: i32 = 127;
/// And where it cannot be run.
const NOT_RUNNABLE: i32 = 126;

/// What to run.
pub(super) struct Command {
    pub(super) argv: Vec<String>,
    pub(super) env: BTreeMap<String, String>,
    pub(super) cwd: String,
    pub(super) stdin: Option<OwnedFd>,
    /// Who runs it; `None` is the init's own user.
    pub(super) account: Option<Account>,
    /// Whether it runs in the network that leads nowhere.
    pub(super) nowhere: bool,
}

/// Starts it. Gives its process and the reading end of its output.
///
/// A program or folder that is not there is the command's own failure: it exits 126 or 127 with a line of text.
///
/// # Errors
/// When the process could not be made or confined.
pub(super) fn start(command: &Command, fence: &Fence, nowhere: Option<&Nowhere>) -> Result<(Pid, OwnedFd), String> {
    let prepared = Prepared::new(command).map_err(|error| error.to_string())?;
    let text = |error: nix::Error| error.to_string();
    // Made here, so that they belong to the user inside and `/dev/stdout` can be opened there.
    let (output, write) = pipe2(OFlag::O_CLOEXEC).map_err(text)?;
    let (fault, report) = pipe2(OFlag::O_CLOEXEC).map_err(text)?;
    match sys::fork().map_err(text)? {
        ForkResult::Child => {
            let code = match prepare(command, fence, nowhere, &write) {
                Ok(()) => prepared.run(&command.cwd),
                Err(reason) => {
                    let _ = File::from(report).write_all(reason.as_bytes());
                    1
                }
            };
            sys::exit_now(code)
        }
        ForkResult::Parent { child } => {
            drop((write, report));
            let mut reason = String::new();
            File::from(fault)
                .read_to_string(&mut reason)
                .map_err(|error| error.to_string())?;
            if reason.is_empty() {
                Ok((child, output))
            } else {
                Err(reason)
            }
        }
    }
}

/// Runs `work` in a confined child, with a stream of its own. Gives its process.
pub(super) fn start_inside(fence: &Fence, work: impl FnOnce() -> io::Result<()>) -> Result<Pid, String> {
    match sys::fork().map_err(|error| error.to_string())? {
        ForkResult::Child => {
            let done = restore_signals()
                .and_then(|()| fence.apply().map_err(io::Error::other))
                .and_then(|()| work());
            sys::exit_now(i32::from(done.is_err()))
        }
        ForkResult::Parent { child } => Ok(child),
    }
}

fn restore_signals() -> io::Result<()> {
    SigSet::empty().thread_set_mask()?;
    reset(Signal::SIGPIPE)?;
    nix::sys::prctl::set_pdeathsig(Signal::SIGKILL)?;
    Ok(())
}

#[expect(unsafe_code, reason = "the default action is always sound")]
fn reset(which: Signal) -> io::Result<()> {
    // SAFETY: no handler is installed, the default one is restored.
    unsafe { signal(which, SigHandler::SigDfl) }?;
    Ok(())
}

fn prepare(command: &Command, fence: &Fence, nowhere: Option<&Nowhere>, output: &OwnedFd) -> Result<(), String> {
    let plumb = || -> io::Result<()> {
        restore_signals()?;
        setsid()?;
        let null;
        let input = if let Some(input) = &command.stdin {
            input.as_fd()
        } else {
            null = open("/dev/null", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())?;
            null.as_fd()
        };
        sys::redirect(input, 0)?;
        sys::redirect(output.as_fd(), 1)?;
        sys::redirect(output.as_fd(), 2)?;
        sys::close_on_exec();
        Ok(())
    };
    plumb().map_err(|error| error.to_string())?;
    fence.apply()?;
    if command.nowhere {
        nowhere.ok_or("there is no network that leads nowhere")?.enter()?;
    }
    command.account.as_ref().map_or(Ok(()), Account::assume)
}

/// The command in the form the kernel takes.
struct Prepared {
    candidates: Vec<CString>,
    argv: Vec<CString>,
    env: Vec<CString>,
}

impl Prepared {
    fn new(command: &Command) -> io::Result<Self> {
        let program = command
            .argv
            .first()
            .ok_or_else(|| io::Error::other("an empty command line"))?;
        let candidates = if program.contains('/') {
            vec![CString::new(program.as_str())?]
        } else {
            let path = command.env.get("PATH").map_or("/usr/bin:/bin", String::as_str);
            let each = path
                .split(':')
                .map(|folder| CString::new(format!("{folder}/{program}")));
            each.collect::<Result<_, _>>()?
        };
        let argv = command
            .argv
            .iter()
            .map(|text| CString::new(text.as_str()))
            .collect::<Result<_, _>>()?;
        let env = command
            .env
            .iter()
            .map(|(key, value)| CString::new(format!("{key}={value}")));
        Ok(Self {
            candidates,
            argv,
            env: env.collect::<Result<_, _>>()?,
        })
    }

    /// Becomes the program; comes back with an exit code where that failed.
    fn run(&self, cwd: &str) -> i32 {
        if let Err(error) = chdir(cwd) {
            return complain(cwd, error);
        }
        let mut worst = nix::Error::ENOENT;
        for candidate in &self.candidates {
            let Err(error) = execve(candidate, &self.argv, &self.env);
            if !matches!(error, nix::Error::ENOENT | nix::Error::ENOTDIR) {
                worst = error;
            }
        }
        complain(&self.argv[0].to_string_lossy(), worst)
    }
}

fn complain(what: &str, error: nix::Error) -> i32 {
    let _ = writeln!(io::stderr(), "cannot run `{what}`: {}", error.desc());
    if error == nix::Error::ENOENT {
        NOT_FOUND
    } else {
        NOT_RUNNABLE
    }
}
