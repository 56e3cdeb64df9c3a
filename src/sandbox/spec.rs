//! What a sandbox is asked for, what a command is, and what comes back.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// What a trial asks of its sandbox.
#[derive(Debug, Clone)]
pub struct SandboxSpec {
    /// Folder on the host whose content becomes the working folder of the `local` backend, untouched by the trial.
    pub source: PathBuf,
    /// What backends with images start from.
    pub image: Option<Image>,
    /// Working folder inside, such as `/app`; `None` is the image's own, else [`super::WORKDIR`].
    pub workdir: Option<String>,
    /// Environment of every command.
    pub env: BTreeMap<String, String>,
    /// Limits.
    pub limits: Limits,
    /// What the network reaches.
    pub network: Network,
    /// Readable name, unique in the run; also names the host folder of the trial's diff.
    pub name: String,
    /// Labels by which a killed process's leftovers are found (run, episode).
    pub labels: BTreeMap<String, String>,
    /// From creation to forced removal, whatever happens.
    pub lifetime: Duration,
}

impl SandboxSpec {
    /// A sandbox in which something is only tried out.
    pub fn probe(source: PathBuf) -> Self {
        Self {
            source,
            image: None,
            workdir: Some("/work".to_owned()),
            env: BTreeMap::new(),
            limits: Limits::default(),
            network: Network::None,
            name: "probe".to_owned(),
            labels: BTreeMap::new(),
            lifetime: Duration::from_mins(1),
        }
    }
}

/// Where an image comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Image {
    /// By its name in a registry, or in the engine's own store.
    Named(String),
    /// Built from a folder with a `Dockerfile`.
    Build {
        /// The folder, which is also the build's context.
        context: PathBuf,
        /// Name of the image, without a tag: the tag tells the content.
        name: String,
        /// Time for the build.
        timeout: Duration,
        /// Beginnings of names of images that its Dockerfile starts from, and what they are replaced by.
        mirror: BTreeMap<String, String>,
    },
}

/// The name with its beginning replaced: the longest that fits.
pub fn mirrored(name: &str, mirror: &BTreeMap<String, String>) -> String {
    let fits = mirror
        .iter()
        .filter_map(|(from, to)| name.strip_prefix(from.as_str()).map(|rest| (from.len(), to, rest)));
    match fits.max_by_key(|(length, ..)| *length) {
        Some((_, to, rest)) => format!("{to}{rest}"),
        None => name.to_owned(),
    }
}

/// The registry that an image's name leads to.
pub fn registry_of(name: &str) -> &str {
    match name.split_once('/') {
        Some((host, _)) if host.contains(['.', ':']) || host == "localhost" => host,
        _ => "docker.io",
    }
}

/// Resource limits; `None` is the machine's own.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Limits {
    /// CPU cores.
    pub cpus: Option<f32>,
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes.
    pub pids: Option<u32>,
    /// Bytes that the trial may write.
    pub disk: Option<u64>,
}

/// What the network reaches from inside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum Network {
    /// Loopback only.
    #[default]
    None,
    /// Loopback, and the proxy's inference routes at this host address.
    Proxy(SocketAddr),
}

impl Network {
    /// The proxy's address on the host, where it is reached.
    pub fn proxy(&self) -> Option<SocketAddr> {
        match self {
            Self::None => None,
            Self::Proxy(address) => Some(*address),
        }
    }
}

/// One command.
#[derive(Debug, Clone)]
pub struct ExecRequest {
    /// Program and arguments.
    pub argv: Vec<String>,
    /// Beside the sandbox's own environment.
    pub env: BTreeMap<String, String>,
    /// Working folder; `None` is the sandbox's.
    pub cwd: Option<String>,
    /// Who runs it, as `user`, `user:group` or numbers; `None` is the image's user.
    pub user: Option<String>,
    /// Text for its standard input; `None` is an empty one.
    pub stdin: Option<String>,
    /// Its process group is killed when this has passed.
    pub timeout: Duration,
    /// Bytes kept of the combined output: head and tail, the middle is left out with a note.
    pub output_limit: usize,
}

impl ExecRequest {
    /// `sh -c <script>` with a minute and 64 KiB of output.
    pub fn shell(script: impl Into<String>) -> Self {
        Self {
            argv: vec!["sh".to_owned(), "-c".to_owned(), script.into()],
            env: BTreeMap::new(),
            cwd: None,
            user: None,
            stdin: None,
            timeout: Duration::from_mins(1),
            output_limit: 64 * 1024,
        }
    }
}

impl ExecRequest {
    /// The same as root inside, who sees what users closed: for what we do ourselves, never for the agent or the tests.
    pub fn as_root(script: impl Into<String>) -> Self {
        Self {
            user: Some("root".to_owned()),
            ..Self::shell(script)
        }
    }
}

/// How a command ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExecOutput {
    /// Exit code; 128 + signal where a signal ended it, 124 at the time-out.
    pub exit_code: i32,
    /// Standard output and error in the order written, lossily decoded.
    pub output: String,
    /// Bytes left out of `output`.
    pub truncated: u64,
    /// Whether the time-out ended it.
    pub timed_out: bool,
    /// Wall time.
    pub duration: Duration,
}

/// What a sandbox keeps apart from the host, probed by doing it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Own user, mount, pid, network, ipc and uts namespaces: the host's files, processes and network are not there.
    Namespaces,
    /// A container of an engine: the host's files and processes are not there, and its network only through the proxy.
    Container,
    /// Namespaces are not allowed here: a copied working folder, landlock where the kernel has it, no new
    /// privileges, limits. The text says what is not isolated.
    Weak(&'static str),
}

#[cfg(test)]
mod tests {
    use super::registry_of;

    #[test]
    fn names_lead_to_registries() {
        for (name, registry) in [
            ("debian:13", "docker.io"),
            ("library/debian", "docker.io"),
            ("ghcr.io/org/x:1", "ghcr.io"),
            ("localhost/x", "localhost"),
            ("10.0.0.1:5000/x", "10.0.0.1:5000"),
        ] {
            assert_eq!(registry_of(name), registry);
        }
    }
}
