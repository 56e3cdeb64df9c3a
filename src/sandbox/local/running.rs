//! A running local sandbox, as the rest of the library sees it.

use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::process::Child;
use tokio::task::JoinHandle;

use super::super::{ExecOutput, ExecRequest, Isolation, Sandbox, SandboxError, SandboxSpec};
use super::layout::Layout;
use super::link::{Link, PATIENCE, Replies};
use super::output::Bounded;
use super::wire::{Mode, Reply, Request};
use super::{owner, sys, transfer, tree};

/// Exit code of a command that its time-out ended.
const TIMED_OUT: i32 = 124;
/// Bytes that may still be in a pipe when its command has ended.
const LEFT_IN_PIPE: usize = 1 << 20;
/// How long an init may take to end, with all that is inside.
const ENDING: Duration = Duration::from_secs(10);
/// Bytes that one download may have where the sandbox has no disk limit.
const DOWNLOAD: u64 = 4 << 30;

/// One sandbox. Dropping it destroys it.
pub(super) struct LocalSandbox {
    spec: SandboxSpec,
    layout: Layout,
    lower: Option<PathBuf>,
    link: Arc<Link>,
    child: Mutex<Option<Child>>,
    forwarder: Option<JoinHandle<()>>,
    isolation: Isolation,
    proxy_url: Option<String>,
}

impl LocalSandbox {
    #[expect(
        clippy::too_many_arguments,
        reason = "called once, by what has just made each of them"
    )]
    pub(super) fn new(
        spec: SandboxSpec,
        layout: Layout,
        lower: Option<PathBuf>,
        link: Arc<Link>,
        child: Child,
        forwarder: Option<JoinHandle<()>>,
        isolation: Isolation,
        proxy_url: Option<String>,
    ) -> Self {
        Self {
            spec,
            layout,
            lower,
            link,
            child: Mutex::new(Some(child)),
            forwarder,
            isolation,
            proxy_url,
        }
    }

    fn exec_error(&self, reason: impl std::fmt::Display) -> SandboxError {
        SandboxError::Exec {
            name: self.spec.name.clone(),
            reason: reason.to_string(),
        }
    }

    async fn request(
        &self,
        make: impl FnOnce(u64) -> Request,
        extra: Option<std::os::fd::BorrowedFd<'_>>,
    ) -> Result<Replies, SandboxError> {
        match self.link.request(make, extra).await {
            None => Err(SandboxError::Gone(self.spec.name.clone())),
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => {
                Err(SandboxError::Gone(self.spec.name.clone()))
            }
            Some(sent) => sent.map_err(|error| self.exec_error(error)),
        }
    }

    fn silent(&self, error: &io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => SandboxError::Gone(self.spec.name.clone()),
            _ => self.exec_error(format_args!("its init did not answer within {PATIENCE:?}")),
        }
    }

    /// A request with one answer.
    async fn ask(
        &self,
        make: impl FnOnce(u64) -> Request,
        extra: Option<std::os::fd::BorrowedFd<'_>>,
    ) -> Result<usize, SandboxError> {
        let mut replies = self.request(make, extra).await?;
        let answer = replies.next(PATIENCE).await.map_err(|error| self.silent(&error))?;
        replies.finished = true;
        match answer.0 {
            Reply::Done { count, .. } => Ok(count),
            Reply::Error { reason, .. } => Err(self.exec_error(reason)),
            other => Err(self.exec_error(format_args!("its init answered {other:?}"))),
        }
    }

    fn transfer_error(&self, path: &str, source: io::Error) -> SandboxError {
        let (name, path) = (self.spec.name.clone(), path.to_owned());
        SandboxError::Transfer { name, path, source }
    }
}

/// Removes a sandbox's folder; what cannot be removed is left to `reap` and said.
pub(super) fn remove(path: &Path) {
    if let Err(error) = owner::remove(path) {
        tracing::warn!(path = %path.display(), %error, "a sandbox's folder could not be removed");
    }
}

/// Waits until the init is gone, then removes the folder.
fn tear_down(mut child: Child, folder: &Path) -> io::Result<()> {
    let start = Instant::now();
    let mut killed = false;
    while child.try_wait()?.is_none() {
        if start.elapsed() > ENDING {
            if killed {
                return Err(io::Error::other("its init does not end"));
            }
            killed = true;
            child.start_kill()?;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    owner::remove(folder)
}

#[async_trait]
impl Sandbox for LocalSandbox {
    async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError> {
        let start = Instant::now();
        let stdin = request
            .stdin
            .as_ref()
            .map(|text| sys::memory_file(text.as_bytes()))
            .transpose();
        let stdin = stdin.map_err(|error| self.exec_error(error))?;
        let mut env = self.layout.environment();
        env.extend(self.spec.env.clone());
        env.extend(request.env);
        let cwd = self.layout.path(request.cwd.as_deref().unwrap_or(&self.spec.workdir));
        let timeout_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let argv = request.argv;
        let make = |id| Request::Exec {
            id,
            argv,
            env,
            cwd,
            timeout_ms,
        };
        let mut replies = self.request(make, stdin.as_ref().map(AsFd::as_fd)).await?;
        let mut output = match replies.next(PATIENCE).await.map_err(|error| self.silent(&error))? {
            (Reply::Started { .. }, Some(output)) => {
                pipe::Receiver::from_owned_fd(output).map_err(|error| self.exec_error(error))?
            }
            (Reply::Error { reason, .. }, _) => {
                replies.finished = true;
                return Err(self.exec_error(reason));
            }
            (other, _) => return Err(self.exec_error(format_args!("its init answered {other:?}"))),
        };
        let mut kept = Bounded::new(request.output_limit);
        let mut buffer = vec![0; 64 * 1024];
        let mut open = true;
        let patience = request.timeout.saturating_add(PATIENCE);
        let exited = {
            let exited = replies.next(patience);
            tokio::pin!(exited);
            loop {
                tokio::select! {
                    exited = &mut exited => break exited,
                    read = output.read(&mut buffer), if open => match read {
                        Ok(n) if n > 0 => kept.push(&buffer[..n]),
                        _ => open = false,
                    },
                }
            }
        };
        let (code, timed_out, out_of_memory) = match exited.map_err(|error| self.silent(&error))?.0 {
            Reply::Exited {
                code,
                timed_out,
                out_of_memory,
                ..
            } => (code, timed_out, out_of_memory),
            other => return Err(self.exec_error(format_args!("its init answered {other:?}"))),
        };
        replies.finished = true;
        let mut drained = 0;
        // Processes left behind may hold the pipe open: what was written is taken, nothing is waited for.
        // Read directly: the runtime may not have heard yet that there is something.
        while drained < LEFT_IN_PIPE
            && let Ok(n) = nix::unistd::read(&output, &mut buffer)
            && n > 0
        {
            kept.push(&buffer[..n]);
            drained += n;
        }
        let (mut text, truncated) = kept.finish();
        if out_of_memory {
            text.push_str("\n[processes were killed: the memory limit of the sandbox was reached]\n");
        }
        let exit_code = if timed_out { TIMED_OUT } else { code };
        Ok(ExecOutput {
            exit_code,
            output: text,
            truncated,
            timed_out,
            duration: start.elapsed(),
        })
    }

    async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let (ours, theirs) = transfer::pair().map_err(|error| self.transfer_error(to, error))?;
        let (base, path) = self.layout.split(to);
        self.ask(|id| Request::Receive { id, base, path }, Some(theirs.as_fd()))
            .await?;
        drop(theirs);
        let from = from.to_owned();
        let done = tokio::task::spawn_blocking(move || transfer::upload(&from, &ours)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| self.transfer_error(to, error))
    }

    async fn download_within(&self, from: &str, to: &Path, limit: u64) -> Result<(), SandboxError> {
        let (ours, theirs) = transfer::pair().map_err(|error| self.transfer_error(from, error))?;
        let (base, path) = self.layout.split(from);
        self.ask(|id| Request::Send { id, base, path }, Some(theirs.as_fd()))
            .await?;
        drop(theirs);
        let (to, limit) = (to.to_owned(), limit.min(self.spec.limits.disk.unwrap_or(DOWNLOAD)));
        let done = tokio::task::spawn_blocking(move || transfer::download(&ours, &to, limit)).await;
        match done.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(received) => {
                if received.links_left_out > 0 {
                    let links = received.links_left_out;
                    tracing::warn!(
                        sandbox = self.spec.name,
                        from,
                        links,
                        "links that lead elsewhere were left out"
                    );
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SandboxError::NotFound {
                name: self.spec.name.clone(),
                path: from.to_owned(),
            }),
            Err(error) => Err(self.transfer_error(from, error)),
        }
    }

    async fn end_processes(&self) -> Result<usize, SandboxError> {
        self.ask(|id| Request::EndProcesses { id }, None).await
    }

    async fn reset_dir(&self, path: &str) -> Result<(), SandboxError> {
        if !super::super::RESERVED.contains(&path) {
            return Err(self.exec_error(format_args!("`{path}` is not one of {:?}", super::super::RESERVED)));
        }
        let path = match self.layout.mode {
            Mode::Namespaces => PathBuf::from(path),
            Mode::Weak => {
                let host = self.layout.path(path);
                Path::new(&host)
                    .strip_prefix(&self.layout.scratch)
                    .unwrap_or(Path::new(&host))
                    .to_owned()
            }
        };
        self.ask(|id| Request::ResetDir { id, path }, None).await.map(drop)
    }

    fn path(&self, inside: &str) -> String {
        self.layout.path(inside)
    }

    async fn snapshot_diff(&self) -> Result<Vec<String>, SandboxError> {
        let (source, scratch, lower) = (
            self.spec.source.clone(),
            self.layout.scratch.clone(),
            self.lower.clone(),
        );
        let compared = tokio::task::spawn_blocking(move || match lower {
            Some(lower) => tree::compare_overlay(&lower, &scratch.join("upper")),
            None => tree::compare(&source, &scratch.join("work")),
        });
        let compared = compared.await.unwrap_or_else(|error| Err(io::Error::other(error)));
        compared.map_err(|error| self.transfer_error(&self.spec.workdir, error))
    }

    fn isolation(&self) -> Isolation {
        self.isolation
    }

    fn proxy_url(&self) -> Option<String> {
        self.proxy_url.clone()
    }

    async fn destroy(&self) -> Result<(), SandboxError> {
        let child = self.child.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = child else { return Ok(()) };
        self.link.close();
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
        let folder = self.layout.scratch.clone();
        let done = tokio::task::spawn_blocking(move || tear_down(child, &folder)).await;
        let done = done.unwrap_or_else(|error| Err(io::Error::other(error)));
        done.map_err(|error| self.exec_error(format_args!("it could not be removed: {error}")))
    }
}

impl Drop for LocalSandbox {
    fn drop(&mut self) {
        self.link.close();
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
        let child = self.child.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let Some(child) = child else { return };
        let folder = self.layout.scratch.clone();
        let end = move || {
            if let Err(error) = tear_down(child, &folder) {
                tracing::warn!(folder = %folder.display(), %error, "a dropped sandbox was not removed");
            }
        };
        match tokio::runtime::Handle::try_current() {
            Ok(runtime) => drop(runtime.spawn_blocking(end)),
            Err(_) => end(),
        }
    }
}
