//! Reaching the engine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bollard::{API_DEFAULT_VERSION, Docker};

use crate::sandbox::SandboxError;
use crate::sandbox::error::whole;

/// Time for the engine's first answer.
const ANSWER: Duration = Duration::from_secs(10);
/// Seconds that one call may take; pulls and builds have bounds of their own.
const CALL: u64 = 120;
const DOCKER: &str = "/var/run/docker.sock";

/// The engine's address: the configured one, else `DOCKER_HOST`, else the first of the usual sockets that is there.
pub fn address(configured: Option<&str>) -> String {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    if let Some(address) = configured.map(str::to_owned).or_else(|| variable("DOCKER_HOST")) {
        return address;
    }
    let own = variable("XDG_RUNTIME_DIR").map(|folder| PathBuf::from(folder).join("podman/podman.sock"));
    let podman = [own, Some("/run/podman/podman.sock".into())];
    let there = |path: &PathBuf| path.exists();
    let socket = Some(PathBuf::from(DOCKER))
        .into_iter()
        .chain(podman.into_iter().flatten())
        .find(there);
    format!("unix://{}", socket.as_deref().unwrap_or(Path::new(DOCKER)).display())
}

/// Connects, and agrees with the engine on a version of the API.
pub(super) async fn connect(configured: Option<&str>) -> Result<Docker, SandboxError> {
    let address = address(configured);
    let failed = |reason: String| SandboxError::Engine {
        what: "no container engine can be used",
        reason: format!(
            "{address}: {reason}; start Docker or Podman, or name its address in `sandbox.docker.host` or DOCKER_HOST"
        ),
    };
    let client = match address.split_once("://") {
        Some(("unix", _)) => Docker::connect_with_unix(&address, CALL, API_DEFAULT_VERSION),
        _ => Docker::connect_with_host(&address),
    };
    let client = client.map_err(|error| failed(error.to_string()))?;
    match tokio::time::timeout(ANSWER, client.negotiate_version()).await {
        Err(_) => Err(failed(format!("no answer within {ANSWER:?}"))),
        Ok(answer) => answer.map_err(|error| failed(whole(&error))),
    }
}
