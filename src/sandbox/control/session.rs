//! One running sandbox as the host drives it: commands, files, processes.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;
use tokio::task::JoinHandle;

use super::PROXY_PORT;
use super::forward;
use super::layout::Layout;
use super::link::{Link, Replies};
use super::listener::Listener;
use super::listing::{self, Listing};
use super::output::Bounded;
use super::transfer;
use super::wire::{Mode, Reply, Request};
use crate::sandbox::egress::{self, Egress};
use crate::sandbox::{ExecOutput, ExecRequest, Network, RESERVED, SandboxError, SandboxSpec, sys};
use crate::task::NetworkPolicy;

/// Exit code of a command that its time-out ended.
const TIMED_OUT: i32 = 124;
/// Bytes that may still be in a pipe when its command has ended.
pub(in crate::sandbox) const LEFT_IN_PIPE: usize = 1 << 20;
/// Bytes that one download may have where the sandbox has no disk limit.
const DOWNLOAD: u64 = 4 << 30;

/// The host's handle on an init that serves.
pub(in crate::sandbox) struct Control {
    /// Of the sandbox.
    pub(in crate::sandbox) name: String,
    pub(in crate::sandbox) layout: Layout,
    /// Of every command.
    env: BTreeMap<String, String>,
    /// Bytes that the trial may write, where that is bounded.
    disk: Option<u64>,
    /// Whether commands run in the network that leads nowhere.
    nowhere: AtomicBool,
    link: Arc<Link>,
    /// The way to other hosts, where there can be one.
    egress: Option<Egress>,
    /// The way to the proxy, where it goes over a listener inside.
    forwarder: Option<JoinHandle<()>>,
}

/// Ports of loopback inside on which an init listens for the host: the gateway's, and the proxy's where there is one.
pub(in crate::sandbox) fn ports(network: &Network) -> Vec<u16> {
    [egress::PORT]
        .into_iter()
        .chain(network.proxy().map(|_| PROXY_PORT))
        .collect()
}

impl Control {
    /// Of an init that serves. `image` is the environment below the spec's own; `listeners` are those of [`ports`].
    pub(in crate::sandbox) fn new(
        spec: SandboxSpec,
        layout: Layout,
        image: &BTreeMap<String, String>,
        link: Arc<Link>,
        listeners: Vec<Listener>,
    ) -> Self {
        let mut env = layout.environment();
        env.extend(image.clone());
        env.extend(spec.env);
        let mut listeners = listeners.into_iter();
        let egress = listeners.next().map(Egress::spawn);
        let to_proxy = listeners.next().zip(spec.network.proxy());
        Self {
            name: spec.name,
            layout,
            env,
            disk: spec.limits.disk,
            nowhere: AtomicBool::new(false),
            link,
            egress,
            forwarder: to_proxy.map(|(listener, proxy)| forward::spawn(listener, proxy)),
        }
    }

    /// Where the proxy answers inside, if it does on the listener.
    pub(in crate::sandbox) fn proxy_url(&self) -> Option<String> {
        self.forwarder
            .as_ref()
            .map(|_| format!("http://127.0.0.1:{PROXY_PORT}"))
    }

    /// Cuts the sandbox off: its init ends, everything inside with it, and the way to the proxy.
    pub(in crate::sandbox) fn close(&self) {
        self.link.close();
        if let Some(forwarder) = &self.forwarder {
            forwarder.abort();
        }
    }

    /// Opens the way to other hosts as far as the policy goes, where there can be one.
    pub(in crate::sandbox) fn allow(&self, policy: &NetworkPolicy) {
        if let Some(egress) = &self.egress {
            egress.allow(policy);
        }
    }

    /// Where commands run from now on: in the network that leads nowhere, or in the container's own.
    pub(in crate::sandbox) fn set_nowhere(&self, nowhere: bool) {
        self.nowhere.store(nowhere, Ordering::Relaxed);
    }

    pub(in crate::sandbox) fn refused(&self) -> Vec<String> {
        self.egress.as_ref().map(Egress::refused).unwrap_or_default()
    }

    fn exec_error(&self, reason: impl std::fmt::Display) -> SandboxError {
        SandboxError::Exec {
            name: self.name.clone(),
            reason: reason.to_string(),
        }
    }

    async fn request(
        &self,
        make: impl FnOnce(u64) -> Request,
        extra: Option<std::os::fd::BorrowedFd<'_>>,
    ) -> Result<Replies, SandboxError> {
        match self.link.request(make, extra).await {
            None => Err(SandboxError::Gone(self.name.clone())),
            Some(Err(error)) if error.kind() == io::ErrorKind::BrokenPipe => Err(SandboxError::Gone(self.name.clone())),
            Some(sent) => sent.map_err(|error| self.exec_error(error)),
        }
    }

    fn silent(&self, error: &io::Error) -> SandboxError {
        match error.kind() {
            io::ErrorKind::BrokenPipe => SandboxError::Gone(self.name.clone()),
            _ => self.exec_error(format_args!("its init did not answer within {:?}", self.link.patience)),
        }
    }

    /// A request with one answer.
    async fn ask(
        &self,
        make: impl FnOnce(u64) -> Request,
        extra: Option<std::os::fd::BorrowedFd<'_>>,
    ) -> Result<usize, SandboxError> {
        let mut replies = self.request(make, extra).await?;
        let answer = replies
            .next(self.link.patience)
            .await
            .map_err(|error| self.silent(&error))?;
        replies.finished = true;
        match answer.0 {
            Reply::Done { count, .. } => Ok(count),
            Reply::Error { reason, .. } => Err(self.exec_error(reason)),
            other => Err(self.exec_error(format_args!("its init answered {other:?}"))),
        }
    }

    pub(in crate::sandbox) fn transfer_error(&self, path: &str, source: io::Error) -> SandboxError {
        let (name, path) = (self.name.clone(), path.to_owned());
        SandboxError::Transfer { name, path, source }
    }

    pub(in crate::sandbox) async fn exec(&self, request: ExecRequest) -> Result<ExecOutput, SandboxError> {
        let start = Instant::now();
        let stdin = request
            .stdin
            .as_ref()
            .map(|text| sys::memory_file(text.as_bytes()))
            .transpose();
        let stdin = stdin.map_err(|error| self.exec_error(error))?;
        let mut env = self.env.clone();
        env.extend(self.egress.iter().flat_map(Egress::environment));
        env.extend(request.env);
        let cwd = self.layout.path(request.cwd.as_deref().unwrap_or(&self.layout.workdir));
        let timeout_ms = u64::try_from(request.timeout.as_millis()).unwrap_or(u64::MAX);
        let (argv, user) = (request.argv, request.user);
        let make = |id| Request::Exec {
            id,
            argv,
            env,
            cwd,
            user,
            timeout_ms,
            nowhere: self.nowhere.load(Ordering::Relaxed),
        };
        let mut replies = self.request(make, stdin.as_ref().map(AsFd::as_fd)).await?;
        let mut output = match replies
            .next(self.link.patience)
            .await
            .map_err(|error| self.silent(&error))?
        {
            (Reply::Started { .. }, mut output) if !output.is_empty() => {
                pipe::Receiver::from_owned_fd(output.swap_remove(0)).map_err(|error| self.exec_error(error))?
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
        let patience = request.timeout.saturating_add(self.link.patience);
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

    pub(in crate::sandbox) async fn upload(&self, from: &Path, to: &str) -> Result<(), SandboxError> {
        let (ours, theirs) = transfer::pair(self.link.patience).map_err(|error| self.transfer_error(to, error))?;
        let (base, path) = self.layout.split(to);
        self.ask(|id| Request::Receive { id, base, path }, Some(theirs.as_fd()))
            .await?;
        drop(theirs);
        let from = from.to_owned();
        let done = tokio::task::spawn_blocking(move || transfer::upload(&from, &ours)).await;
        done.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| self.transfer_error(to, error))
    }

    pub(in crate::sandbox) async fn download_within(
        &self,
        from: &str,
        to: &Path,
        limit: u64,
    ) -> Result<(), SandboxError> {
        let (base, path) = self.layout.split(from);
        self.receive(|id| Request::Send { id, base, path }, from, to, limit)
            .await
    }

    pub(in crate::sandbox) async fn download_entries(
        &self,
        root: &str,
        entries: &[String],
        to: &Path,
        limit: u64,
    ) -> Result<(), SandboxError> {
        let (base, path) = self.layout.split(root);
        let entries = entries.to_vec();
        let make = |id| Request::SendEntries {
            id,
            base,
            path,
            entries,
        };
        self.receive(make, root, to, limit).await
    }

    /// What the init sends upon a request, as a tree at `to`.
    async fn receive(
        &self,
        make: impl FnOnce(u64) -> Request,
        from: &str,
        to: &Path,
        limit: u64,
    ) -> Result<(), SandboxError> {
        let (ours, theirs) = transfer::pair(self.link.patience).map_err(|error| self.transfer_error(from, error))?;
        self.ask(make, Some(theirs.as_fd())).await?;
        drop(theirs);
        let (to, limit) = (to.to_owned(), limit.min(self.disk.unwrap_or(DOWNLOAD)));
        let done = tokio::task::spawn_blocking(move || transfer::download(&ours, &to, limit)).await;
        match done.unwrap_or_else(|error| Err(io::Error::other(error))) {
            Ok(received) => {
                if received.links_left_out > 0 {
                    let links = received.links_left_out;
                    tracing::warn!(
                        sandbox = self.name,
                        from,
                        links,
                        "links that lead elsewhere were left out"
                    );
                }
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(SandboxError::NotFound {
                name: self.name.clone(),
                path: from.to_owned(),
            }),
            Err(error) => Err(self.transfer_error(from, error)),
        }
    }

    pub(in crate::sandbox) async fn end_processes(&self) -> Result<usize, SandboxError> {
        self.ask(|id| Request::EndProcesses { id }, None).await
    }

    pub(in crate::sandbox) async fn reset_dir(&self, path: &str) -> Result<(), SandboxError> {
        if !RESERVED.contains(&path) {
            return Err(self.exec_error(format_args!("`{path}` is not one of {RESERVED:?}")));
        }
        let host = PathBuf::from(self.layout.path(path));
        let path = match self.layout.mode {
            Mode::Weak => host
                .strip_prefix(&self.layout.scratch)
                .map(Path::to_owned)
                .unwrap_or(host),
            Mode::Namespaces | Mode::Container => PathBuf::from(path),
        };
        self.ask(|id| Request::ResetDir { id, path }, None).await.map(drop)
    }

    /// Files and links below `path` as they are now.
    pub(in crate::sandbox) async fn list(&self, path: &str) -> Result<Listing, SandboxError> {
        self.listing(path, false).await
    }

    /// Files and links of the working folder that were added, changed or removed, sorted.
    pub(in crate::sandbox) async fn changes_since(&self, before: &Listing) -> Result<Vec<String>, SandboxError> {
        Ok(listing::changes(before, &self.list(&self.layout.workdir).await?))
    }

    /// Files of the container's own file system, outside of these folders, that are new or changed since it serves. Those
    /// that are gone are not seen.
    pub(in crate::sandbox) async fn changed(&self, without: &[&str]) -> Result<Vec<String>, SandboxError> {
        let all = self.listing("/", true).await?;
        let own: Vec<String> = without
            .iter()
            .map(|folder| format!("{}/", folder.trim_end_matches('/')))
            .collect();
        let paths = all.into_keys().map(|path| format!("/{path}"));
        Ok(paths
            .filter(|path| !own.iter().any(|own| path.starts_with(own)))
            .collect())
    }

    async fn listing(&self, path: &str, changed: bool) -> Result<Listing, SandboxError> {
        let (ours, theirs) = transfer::pair(self.link.patience).map_err(|error| self.transfer_error(path, error))?;
        let inside = PathBuf::from(self.layout.path(path));
        let make = |id| Request::List {
            id,
            path: inside,
            changed,
        };
        self.ask(make, Some(theirs.as_fd())).await?;
        drop(theirs);
        let read = tokio::task::spawn_blocking(move || listing::read(ours)).await;
        read.unwrap_or_else(|error| Err(io::Error::other(error)))
            .map_err(|error| self.transfer_error(path, error))
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.close();
    }
}
