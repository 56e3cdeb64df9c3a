//! The live checks of this machine and of the engines: is another process at work on the run, are ports free, do the
//! container engine and the servers answer, and are those the policy's? Each wait has a bound, and nothing is left behind.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::{Finding, images, model};
use crate::config::{BackendName, EngineKind, Loaded};
use crate::inference::{Engine, EngineError, RemoteOptions, SglangEngine, VllmEngine, check_logprobs};
use crate::prompt::Tokenizer;
use crate::run_dir::RunDir;
use crate::sandbox::docker::{DockerBackend, DockerOptions};
use crate::trajectory::{PolicyVersion, TokenId};

/// Their names.
pub(super) const IDS: [&str; 2] = ["run-live", "engine-live"];
/// Time for one server to answer all that is asked of it.
const SERVER: Duration = Duration::from_secs(30);
/// Time for the container engine.
const DOCKER: Duration = Duration::from_secs(15);
/// Texts behind which no model is certain of the next token.
const OPEN_TEXTS: [&str; 3] = ["The", "a", "1"];

pub(super) async fn look(run: &Loaded, init_exe: &Path, only: &[String]) -> Vec<Finding> {
    let wanted = |id: &str| only.is_empty() || only.iter().any(|name| name == id);
    let mut found = Vec::new();
    if wanted(IDS[0]) {
        found.extend(this_machine(run));
    }
    if wanted(IDS[1]) && run.config.engine.kind.is_remote() {
        for endpoint in &run.config.engine.endpoints {
            found.push(server(run, endpoint).await);
        }
    }
    if wanted(images::ID) && run.config.sandbox.backend == BackendName::Docker {
        found.push(docker(run, init_exe).await);
    }
    found
}

fn this_machine(run: &Loaded) -> Vec<Finding> {
    let id = IDS[0];
    let config = &run.config;
    let mut found = Vec::new();
    let dir = config.run.dir.join(&config.run.name);
    if let Ok(Some(holder)) = RunDir::open(&dir).and_then(|dir| dir.holder()) {
        let text = format!(
            "{}: process {} on {} works on this run since {}",
            dir.display(),
            holder.pid,
            holder.host,
            holder.since
        );
        found.push(
            Finding::fatal(id, text)
                .at(run, "run.name")
                .help("wait for it, stop it, or write another `name` below `[run]`"),
        );
    }
    let listen = &config.proxy.listen;
    if !listen.ends_with(":0")
        && let Err(error) = std::net::TcpListener::bind(listen)
    {
        let text = format!("proxy.listen = \"{listen}\": {error}");
        found.push(
            Finding::fatal(id, text)
                .at(run, "proxy.listen")
                .help("write `listen = \"127.0.0.1:0\"`, which picks a free port"),
        );
    }
    if let Ok(disk) = nix::sys::statvfs::statvfs("/dev/shm")
        && disk.blocks() > 0
        && disk.blocks_available() * 2 < disk.blocks()
    {
        let text = format!(
            "/dev/shm is {}% full",
            100 - 100 * disk.blocks_available() / disk.blocks()
        );
        found.push(Finding::warn(id, text).help("engines in containers and data loaders share it: free some"));
    }
    if found.is_empty() {
        found.push(Finding::pass(
            id,
            "nobody else works on this run, and its ports are free",
        ));
    }
    found
}

async fn server(run: &Loaded, endpoint: &str) -> Finding {
    let id = IDS[1];
    let fatal = |text: String| Finding::fatal(id, text).at(run, "engine.endpoints");
    match tokio::time::timeout(SERVER, Box::pin(ask(run, endpoint))).await {
        Ok(Ok(text)) => Finding::pass(id, text),
        Ok(Err(error)) => {
            let finding = fatal(format!("{endpoint}: {error}"));
            if matches!(error, EngineError::Unavailable { .. }) {
                finding.unreachable().help("start the server, or correct the address")
            } else {
                finding.help("`examples/vllm/run.toml` shows how a server is started")
            }
        }
        Err(_) => fatal(format!("{endpoint}: no answer within {SERVER:?}"))
            .unreachable()
            .help("start the server, or correct the address"),
    }
}

/// The model, its tokens and its log-probs.
async fn ask(run: &Loaded, endpoint: &str) -> Result<String, EngineError> {
    let section = &run.config.engine;
    let options = RemoteOptions {
        endpoint: endpoint.to_owned(),
        api_key: section.api_key_env.as_deref().and_then(|name| std::env::var(name).ok()),
        ca_file: section.ca_file.clone(),
        model: Some(section.served_model.clone()).filter(|name| !name.is_empty()),
        experts: None,
        version: PolicyVersion::default(),
        patience: SERVER,
    };
    let engine: Arc<dyn Engine> = if section.kind == EngineKind::Sglang {
        Arc::new(SglangEngine::connect(options).await?)
    } else {
        Arc::new(VllmEngine::connect(options).await?)
    };
    let tokenizer = Tokenizer::load(model::tokenizer_dir(&run.config.policy))
        .map_err(|error| EngineError::Invalid(error.to_string()))?;
    let probes = OPEN_TEXTS
        .iter()
        .map(|text| tokenizer.encode(text).map(Into::into))
        .collect::<Result<Vec<Arc<[TokenId]>>, _>>()
        .map_err(|error| EngineError::Invalid(error.to_string()))?;
    check_logprobs(engine.as_ref(), &probes).await?;
    Ok(format!(
        "{endpoint} serves the policy, takes its token ids, and gives ids and log-probs back"
    ))
}

async fn docker(run: &Loaded, init_exe: &Path) -> Finding {
    let id = images::ID;
    let section = &run.config.sandbox.docker;
    let backend = DockerBackend::new(DockerOptions {
        host: section.host.clone(),
        ..DockerOptions::new(init_exe, std::env::temp_dir())
    });
    let key = "sandbox.docker.host";
    let help = "start it, or write its address as `host` below `[sandbox.docker]`";
    match tokio::time::timeout(DOCKER, backend.isolation()).await {
        Ok(Ok(_)) => Finding::pass(id, "the container engine answers"),
        Ok(Err(error)) => Finding::fatal(id, error.to_string())
            .at(run, key)
            .unreachable()
            .help(help),
        Err(_) => Finding::fatal(id, format!("the container engine did not answer within {DOCKER:?}"))
            .at(run, key)
            .unreachable()
            .help(help),
    }
}
