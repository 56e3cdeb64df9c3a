//! The init's one loop: requests from the host, deaths of children, deadlines, memory.
//!
//! It ends when the host closes the socket or the sandbox's lifetime is over; everything inside ends with it.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;

use super::Failure;
use super::command::{self, Command};
use super::confine::Fence;
use super::folders::{self, Place};
use super::host::{Heard, Host};
use super::nowhere::Nowhere;
use super::processes::Reach;
use super::user::Account;
use super::{listing, processes};
use crate::sandbox::control::wire::{Mode, Reply, Request, Setup};

/// How often memory is measured while commands run.
const MEMORY_TICK: Duration = Duration::from_millis(100);
/// A transfer that takes longer is ended.
const TRANSFER: Duration = Duration::from_mins(10);

struct Running {
    /// Of the request; `None` for a transfer, whose end its own stream shows.
    id: Option<u64>,
    pid: Pid,
    deadline: Option<Instant>,
    timed_out: bool,
    out_of_memory: bool,
}

struct Server<'a> {
    setup: &'a Setup,
    fence: Fence,
    host: &'a mut dyn Host,
    running: Vec<Running>,
    /// The network that leads nowhere, where there is one.
    nowhere: Option<Nowhere>,
    /// When it began to serve, as the file system has times.
    began: (i64, i64),
    /// Processes that the container's memory limit has ended so far.
    killed_for_memory: u64,
}

/// Says that the sandbox is ready, then serves until its end.
pub(super) fn serve(
    setup: &Setup,
    fence: Fence,
    host: &mut dyn Host,
    mut listeners: Vec<OwnedFd>,
    owner: Option<BorrowedFd<'_>>,
) -> Result<(), Failure> {
    let fail = |error: io::Error| Failure::new("serve", error);
    let made = setup.nowhere.then(|| Nowhere::make(setup)).transpose();
    let (nowhere, open) = match made {
        Ok(made) => (
            made.map(|(nowhere, own)| {
                listeners.extend(own);
                nowhere
            }),
            None,
        ),
        Err(reason) => (None, Some(reason)),
    };
    let mut server = Server {
        setup,
        fence,
        host,
        running: Vec::new(),
        nowhere,
        began: listing::now(),
        killed_for_memory: 0,
    };
    let signals = server.start(listeners, open).map_err(fail)?;
    let served = server.run(&signals, owner);
    // In namespaces the kernel would do this; without, nobody else does.
    let _ = processes::kill_all(reach(setup), |_| {});
    // The host is gone or told: there is nobody to report to.
    drop(served);
    Ok(())
}

/// Where the host comes by streams, what carries them is spared.
fn reach(setup: &Setup) -> Reach {
    match setup.mode {
        Mode::Weak => Reach::Descendants,
        Mode::Container if setup.nowhere => Reach::NamespaceAtLast,
        Mode::Container | Mode::Namespaces => Reach::Namespace,
    }
}

impl Server<'_> {
    fn start(&mut self, listeners: Vec<OwnedFd>, open: Option<String>) -> io::Result<SignalFd> {
        let mut children = SigSet::empty();
        children.add(Signal::SIGCHLD);
        children.thread_block()?;
        let signals = SignalFd::with_flags(&children, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
        let ready = Reply::Ready {
            landlock: self.fence.has_landlock(),
            open,
        };
        self.host.reply(ready, listeners)?;
        Ok(signals)
    }

    fn run(&mut self, signals: &SignalFd, owner: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let end = Instant::now().checked_add(Duration::from_millis(self.setup.lifetime_ms));
        let mut measured = Instant::now();
        loop {
            let now = Instant::now();
            if end.is_some_and(|end| end <= now) {
                return Ok(());
            }
            self.end_overdue(now);
            if let Some(limit) = self.setup.memory
                && now.duration_since(measured) >= MEMORY_TICK
            {
                measured = now;
                if processes::enforce_memory(limit) {
                    self.running.iter_mut().for_each(|running| running.out_of_memory = true);
                }
            }
            let mut fds = vec![PollFd::new(signals.as_fd(), PollFlags::POLLIN)];
            fds.extend(owner.map(|owner| PollFd::new(owner, PollFlags::POLLIN)));
            let own = fds.len();
            fds.extend(self.host.wanted());
            match poll(&mut fds, self.patience(now, end)) {
                Ok(_) | Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
            let ready: Vec<PollFlags> = fds
                .iter()
                .map(|fd| fd.revents().unwrap_or(PollFlags::empty()))
                .collect();
            if owner.is_some() && !ready[1].is_empty() {
                return Ok(());
            }
            if !ready[0].is_empty() {
                while let Ok(Some(_)) = signals.read_signal() {}
                self.reap()?;
            }
            match self.host.hear(&ready[own..])? {
                Some(Heard::Request(request, extra)) => self.handle(request, extra)?,
                Some(Heard::Gone) => return Ok(()),
                None => {}
            }
        }
    }

    fn patience(&self, now: Instant, end: Option<Instant>) -> PollTimeout {
        let mut next = self
            .running
            .iter()
            .filter_map(|running| running.deadline)
            .chain(end)
            .chain(self.host.deadline())
            .min();
        if self.setup.memory.is_some() {
            // Also where only background processes are left.
            let tick = now + MEMORY_TICK;
            next = Some(next.map_or(tick, |next| next.min(tick)));
        }
        let left = next.map(|next| next.saturating_duration_since(now) + Duration::from_millis(1));
        left.map_or(PollTimeout::NONE, |left| {
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        })
    }

    fn end_overdue(&mut self, now: Instant) {
        for running in &mut self.running {
            if running.deadline.is_some_and(|deadline| deadline <= now) {
                running.deadline = None;
                running.timed_out = true;
                processes::kill_command(running.pid);
            }
        }
    }

    fn reap(&mut self) -> io::Result<()> {
        loop {
            match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(()),
                Ok(status) => self.ended(status)?,
                Err(nix::Error::EINTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn ended(&mut self, status: WaitStatus) -> io::Result<()> {
        let (pid, code) = match status {
            WaitStatus::Exited(pid, code) => (pid, code),
            WaitStatus::Signaled(pid, signal, _) => (pid, 128 + signal as i32),
            _ => return Ok(()),
        };
        let Some(at) = self.running.iter().position(|running| running.pid == pid) else {
            return Ok(());
        };
        let Running {
            id,
            timed_out,
            out_of_memory,
            ..
        } = self.running.swap_remove(at);
        let Some(id) = id else { return Ok(()) };
        let killed = if self.setup.mode == Mode::Container {
            processes::killed_for_memory()
        } else {
            0
        };
        let out_of_memory = out_of_memory || killed > self.killed_for_memory;
        self.killed_for_memory = killed;
        let exited = Reply::Exited {
            id,
            code,
            timed_out,
            out_of_memory,
        };
        self.host.reply(exited, Vec::new())
    }

    fn answer(&mut self, id: u64, outcome: Result<usize, String>) -> io::Result<()> {
        let reply = match outcome {
            Ok(count) => Reply::Done { id, count },
            Err(reason) => Reply::Error { id, reason },
        };
        self.host.reply(reply, Vec::new())
    }

    fn handle(&mut self, request: Request, extra: Option<OwnedFd>) -> io::Result<()> {
        match request {
            Request::Setup(_) => Ok(()),
            Request::Exec {
                id,
                argv,
                env,
                cwd,
                user,
                timeout_ms,
                nowhere,
            } => {
                let command = Command {
                    argv,
                    env,
                    cwd,
                    stdin: extra,
                    account: None,
                    nowhere,
                };
                match self.start_command(command, user.as_deref()) {
                    Ok((pid, output)) => {
                        let deadline = Instant::now().checked_add(Duration::from_millis(timeout_ms));
                        self.track(Some(id), pid, deadline);
                        self.host.reply(Reply::Started { id }, vec![output])
                    }
                    Err(reason) => self.answer(id, Err(reason)),
                }
            }
            Request::Kill { id } => {
                let pid = self
                    .running
                    .iter()
                    .find(|running| running.id == Some(id))
                    .map(|running| running.pid);
                if let Some(pid) = pid {
                    processes::kill_command(pid);
                }
                Ok(())
            }
            Request::Receive { id, base, path } => self.transfer(id, extra, |to| Place { base, path }.receive(to)),
            Request::Send { id, base, path } => self.transfer(id, extra, |to| Place { base, path }.send(to)),
            Request::SendEntries {
                id,
                base,
                path,
                entries,
            } => self.transfer(id, extra, |to| Place { base, path }.send_entries(&entries, to)),
            Request::List { id, path, changed } => {
                let since = changed.then_some(self.began);
                self.transfer(id, extra, |to| listing::write(&path, since, to))
            }
            Request::EndProcesses { id } => {
                let mut statuses = Vec::new();
                let commands = self.running.len();
                let ended = processes::kill_all(reach(self.setup), |status| statuses.push(status));
                for status in statuses {
                    self.ended(status)?;
                }
                // A command that the host itself is waiting for is not a leftover.
                self.answer(id, ended.map(|count| count.saturating_sub(commands)))
            }
            Request::ResetDir { id, path } => self.answer(id, folders::reset(self.setup, &path).map(|()| 0)),
        }
    }

    /// As `user`, else as who the setup names.
    fn start_command(&self, mut command: Command, user: Option<&str>) -> Result<(Pid, OwnedFd), String> {
        // Where there is one user, root inside is that one.
        let own = |name: &&str| self.setup.mode == Mode::Container || !matches!(*name, "root" | "0");
        if let Some(name) = user.or(self.setup.user.as_deref()).filter(own) {
            if self.setup.mode != Mode::Container {
                return Err(format!(
                    "a command as user `{name}` needs a backend with several users, such as `docker`"
                ));
            }
            let account = Account::find(name)?;
            command
                .env
                .entry("HOME".to_owned())
                .or_insert_with(|| account.home.clone());
            command.account = Some(account);
        }
        command::start(&command, &self.fence, self.nowhere.as_ref())
    }

    fn transfer(
        &mut self,
        id: u64,
        stream: Option<OwnedFd>,
        work: impl FnOnce(OwnedFd) -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(stream) = stream else {
            return self.answer(id, Err("a transfer without a stream".to_owned()));
        };
        match command::start_inside(&self.fence, || work(stream)) {
            Ok(pid) => {
                self.track(None, pid, Some(Instant::now() + TRANSFER));
                self.answer(id, Ok(0))
            }
            Err(reason) => self.answer(id, Err(reason)),
        }
    }

    fn track(&mut self, id: Option<u64>, pid: Pid, deadline: Option<Instant>) {
        self.running.push(Running {
            id,
            pid,
            deadline,
            timed_out: false,
            out_of_memory: false,
        });
    }
}
