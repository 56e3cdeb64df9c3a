//! `network`, live: addresses that the run names answer here, and what a sandbox is to reach answers inside one. A sandbox is
//! made for it and destroyed; each dial has a bound.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::network::ID;
use super::{Context, Finding, Purpose, cluster, images, tasks};
use crate::config::{BackendName, EngineKind, Loaded};
use crate::rollout::{image_of, reached_by_agent, reached_by_tests};
use crate::sandbox::docker::{DockerBackend, DockerOptions};
use crate::sandbox::local::{LocalBackend, LocalOptions};
use crate::sandbox::{Backend, ExecRequest, Image, Network, Sandbox, SandboxSpec, registry_of};
use crate::task::{NetworkMode, NetworkPolicy};

/// Time for one connection.
const DIAL: Duration = Duration::from_secs(10);
/// Time for a sandbox, with what is tried in it and the pull of its image.
const SANDBOX: Duration = Duration::from_mins(5);
/// Hosts that are dialled from inside at most.
const HOSTS: usize = 3;
/// Asks an address by whatever is there: any answer will do, also one that says no. 127: nothing there can ask.
const ASK: &str = r#"
if command -v curl >/dev/null 2>&1; then exec curl -sS -o /dev/null -m 10 "$url"; fi
if command -v python3 >/dev/null 2>&1; then exec python3 -c '
import sys, urllib.error, urllib.request
try:
    urllib.request.urlopen(sys.argv[1], timeout=10)
except urllib.error.HTTPError:
    pass
except Exception as error:
    sys.exit(str(error))
' "$url"; fi
if command -v wget >/dev/null 2>&1; then
  wget -q -O /dev/null -T 10 -t 1 "$url"; status=$?
  # 8 is an answer that says no.
  if [ $status -eq 8 ]; then exit 0; fi
  exit $status
fi
exit 127
"#;

/// `engine_answers`: whether the container engine did.
pub(super) async fn look(run: &Loaded, init_exe: &Path, engine_answers: bool) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut answered = Vec::new();
    for named in addresses(run) {
        match dial(&named.address).await {
            Ok(()) => answered.push(named.address),
            Err(reason) => found.push(named.finding(run, &reason)),
        }
    }
    match tokio::time::timeout(SANDBOX, Box::pin(from_inside(run, init_exe, engine_answers))).await {
        Ok(Ok(Inside::Reached(what))) => answered.extend(what),
        Ok(Ok(Inside::NotTried)) => {}
        Ok(Ok(Inside::Findings(more)) | Err(more)) => found.extend(more),
        Err(_) => {
            let text = format!("no sandbox was ready, and nothing tried in it, within {SANDBOX:?}");
            found.push(Finding::fatal(ID, text).at(run, "sandbox.backend"));
        }
    }
    if found.is_empty() && !answered.is_empty() {
        found.push(Finding::pass(ID, format!("reached: {}", answered.join(", "))));
    }
    found
}

/// An address of the run.
struct Named {
    key: &'static str,
    /// `host:port`
    address: String,
    /// Whether nothing goes without it.
    needed: bool,
}

impl Named {
    fn finding(&self, run: &Loaded, reason: &str) -> Finding {
        let text = format!("{}: {} is not reached from here: {reason}", self.key, self.address);
        if self.needed {
            let finding = Finding::fatal(ID, text).at(run, self.key).unreachable();
            return finding.help("start what answers there, correct the address, or open the way to it");
        }
        let finding = Finding::warn(
            ID,
            format!("{text}; images that are not in the engine's store cannot be pulled"),
        );
        finding
            .at(run, self.key)
            .help("name a registry that is reached by `sandbox.mirror`, or pull the images before")
    }
}

/// Those that no other check asks: a hosted API, and registries.
fn addresses(run: &Loaded) -> Vec<Named> {
    let config = &run.config;
    let mut named = Vec::new();
    if config.engine.kind == EngineKind::Openai {
        let hosts = config
            .engine
            .endpoints
            .iter()
            .filter_map(|endpoint| host_of_url(endpoint));
        named.extend(hosts.map(|address| Named {
            key: "engine.endpoints",
            address,
            needed: true,
        }));
    }
    if config.sandbox.backend == BackendName::Docker {
        let mut add = |key: &'static str, name: &str| {
            let address = match registry_of(name) {
                "docker.io" => "registry-1.docker.io:443".to_owned(),
                host if host.contains(':') => host.to_owned(),
                host => format!("{host}:443"),
            };
            if !named.iter().any(|known: &Named| known.address == address) {
                named.push(Named {
                    key,
                    address,
                    needed: false,
                });
            }
        };
        if let Some(registry) = &config.sandbox.registry {
            add("sandbox.registry", registry);
        }
        for image in images_of(run) {
            add("data.train", &image);
        }
    }
    named
}

/// Names of the images that tasks start from, with mirrors in place; an engine's own images (`lego-…` without a registry,
/// or any that is there already) are among them.
fn images_of(run: &Loaded) -> BTreeSet<String> {
    let named = tasks::named(whole(run));
    let tasks = named.iter().flat_map(|(_, tasks)| tasks);
    tasks
        .filter_map(|task| match image_of(task, &run.config.sandbox)? {
            Image::Named(name) => Some(name),
            Image::Build { .. } => None,
        })
        .collect()
}

fn whole(run: &Loaded) -> Context<'_> {
    Context {
        run,
        purpose: Purpose::Whole,
    }
}

/// `host:port` of an address with a scheme.
fn host_of_url(url: &str) -> Option<String> {
    let url = reqwest::Url::parse(url).ok()?;
    Some(format!("{}:{}", url.host_str()?, url.port_or_known_default()?))
}

async fn dial(address: &str) -> Result<(), String> {
    match tokio::time::timeout(DIAL, TcpStream::connect(address)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err(format!("no connection within {DIAL:?}")),
    }
}

/// What came of a sandbox.
enum Inside {
    Reached(Vec<String>),
    /// This backend makes none here, or the engine does not answer.
    NotTried,
    Findings(Vec<Finding>),
}

async fn from_inside(run: &Loaded, init_exe: &Path, engine_answers: bool) -> Result<Inside, Vec<Finding>> {
    let section = &run.config.sandbox;
    let fatal = |text: String| vec![Finding::fatal(ID, text).at(run, "sandbox.backend")];
    let root = tempfile::tempdir().map_err(|error| fatal(format!("no folder for a sandbox: {error}")))?;
    let (backend, image) = match section.backend {
        BackendName::Local => (
            Backend::Local(LocalBackend::new(LocalOptions::new(init_exe, root.path()))),
            None,
        ),
        BackendName::Docker if engine_answers => {
            let Some(image) = cluster::image_of_a_task(run) else {
                return Ok(Inside::NotTried);
            };
            let options = DockerOptions {
                host: section.docker.host.clone(),
                ..DockerOptions::new(init_exe, root.path())
            };
            (Backend::Docker(Box::new(DockerBackend::new(options))), Some(image))
        }
        _ => return Ok(Inside::NotTried),
    };
    let (listener, serving) = answer_here(&run.config.proxy.listen)
        .await
        .map_err(|error| fatal(format!("proxy.listen = \"{}\": {error}", run.config.proxy.listen)))?;
    let source = root.path().join("source");
    std::fs::create_dir(&source).map_err(|error| fatal(error.to_string()))?;
    let spec = SandboxSpec {
        image,
        network: Network::Proxy(listener),
        workdir: None,
        lifetime: SANDBOX,
        ..SandboxSpec::probe(source)
    };
    let sandbox = backend.create(spec).await.map_err(|error| {
        let text = format!("no sandbox of a task could be made: {error}");
        vec![Finding::fatal(images::ID, text).at(run, "sandbox.backend")]
    })?;
    let tried = try_inside(run, sandbox.as_ref()).await;
    let destroyed = sandbox.destroy().await;
    serving.abort();
    let found = tried.map_err(|error| fatal(error.to_string()))?;
    destroyed.map_err(|error| fatal(format!("the sandbox was not removed: {error}")))?;
    Ok(found)
}

async fn try_inside(run: &Loaded, sandbox: &dyn Sandbox) -> Result<Inside, crate::sandbox::SandboxError> {
    let (mut reached, mut found) = (Vec::new(), Vec::new());
    if let Some(proxy) = sandbox.proxy_url() {
        match ask(sandbox, &format!("{proxy}/health")).await? {
            Asked::Answered => reached.push("the proxy from inside a sandbox".to_owned()),
            Asked::CannotAsk => {
                let text = "what is inside the sandbox has no curl, python3 or wget: nothing was dialled from there";
                return Ok(Inside::Findings(vec![Finding::skip(ID, text)]));
            }
            Asked::Failed(reason) => found.push(
                Finding::fatal(
                    ID,
                    format!("the proxy does not answer inside a sandbox, at {proxy}: {reason}"),
                )
                .at(run, "proxy.listen")
                .help("agents ask the model there: write an address that sandboxes reach as `listen` below `[proxy]`"),
            ),
        }
    }
    for host in hosts(run) {
        let policy = NetworkPolicy {
            mode: NetworkMode::Allowlist,
            hosts: vec![host.clone()],
        };
        sandbox.set_network(&policy).await?;
        match ask(sandbox, &format!("https://{host}/")).await? {
            Asked::Answered => reached.push(format!("{host} from inside a sandbox")),
            Asked::CannotAsk => break,
            Asked::Failed(reason) => found.push(
                Finding::warn(
                    ID,
                    format!("tasks may reach {host}, and inside a sandbox it does not answer: {reason}"),
                )
                .at(run, "data.train")
                .help("open the way from this machine to it, or put what is fetched there into the images"),
            ),
        }
    }
    Ok(if found.is_empty() {
        Inside::Reached(reached)
    } else {
        Inside::Findings(found)
    })
}

enum Asked {
    Answered,
    CannotAsk,
    Failed(String),
}

async fn ask(sandbox: &dyn Sandbox, url: &str) -> Result<Asked, crate::sandbox::SandboxError> {
    let request = ExecRequest {
        env: BTreeMap::from([("url".to_owned(), url.to_owned())]),
        timeout: DIAL * 2,
        ..ExecRequest::shell(ASK)
    };
    let output = sandbox.exec(request).await?;
    Ok(match output.exit_code {
        0 => Asked::Answered,
        127 => Asked::CannotAsk,
        code => {
            let said = output.output.trim();
            let last = said.lines().last().unwrap_or("it said nothing");
            Asked::Failed(format!("{last} (exit code {code})"))
        }
    })
}

/// Hosts that tasks may reach by name, a few.
fn hosts(run: &Loaded) -> Vec<String> {
    let named = tasks::named(whole(run));
    let mut hosts = BTreeSet::new();
    for task in named.iter().flat_map(|(_, tasks)| tasks) {
        for stage in task.stages().unwrap_or_default() {
            let agent = reached_by_agent(task, &stage, &run.config.sandbox);
            let listed = [agent, reached_by_tests(task, &stage)];
            let listed = listed
                .into_iter()
                .filter(|policy| policy.mode == NetworkMode::Allowlist);
            hosts.extend(listed.flat_map(|policy| policy.hosts));
        }
    }
    let plain = |host: &String| !host.contains(['*', '/']);
    hosts.into_iter().filter(plain).take(HOSTS).collect()
}

/// A server that answers anything with 200, on a free port of the host where the proxy is to listen.
async fn answer_here(listen: &str) -> std::io::Result<(SocketAddr, tokio::task::JoinHandle<()>)> {
    let host = listen.rsplit_once(':').map_or(listen, |(host, _)| host);
    let listener = TcpListener::bind(format!("{host}:0")).await?;
    let address = listener.local_addr()?;
    let serving = tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut head = [0; 4096];
                let _ = tokio::time::timeout(DIAL, stream.read(&mut head)).await;
                let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
                let _ = stream.write_all(answer).await;
            });
        }
    });
    Ok((address, serving))
}
