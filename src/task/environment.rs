//! `[environment]` of task.toml, and what it means for resources and network.

use std::collections::BTreeMap;
use std::path::Path;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{MegaBytes, Seconds, TaskError};

/// Where the agent works.
#[derive(Debug, Clone, Default, PartialEq, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EnvironmentConfig {
    /// Time to build the image; 600 if absent.
    pub build_timeout_sec: Option<Seconds>,
    /// A ready image, instead of `environment/Dockerfile`.
    pub docker_image: Option<String>,
    /// Operating system; `linux` if absent.
    pub os: Option<String>,
    /// CPU cores.
    pub cpus: Option<f64>,
    /// Memory in MiB.
    pub memory_mb: Option<u64>,
    /// Disk in MiB.
    pub storage_mb: Option<u64>,
    /// Number of GPUs.
    pub gpus: Option<u32>,
    /// GPU models that will do.
    pub gpu_types: Option<Vec<String>>,
    /// Environment variables; `${VAR}` and `${VAR:-default}` are taken from the host.
    pub env: BTreeMap<String, String>,
    /// Working folder; absent: the image's own.
    pub workdir: Option<String>,
    /// Folder in the environment whose content becomes the agent's skills.
    pub skills_dir: Option<String>,
    /// What the network reaches.
    pub network_mode: Option<NetworkMode>,
    /// Hosts for `allowlist`: `host`, `*.host`, an address or a CIDR.
    pub allowed_hosts: Vec<String>,
    /// MCP servers for the agent.
    pub mcp_servers: Vec<McpServer>,
    /// When the environment is ready.
    pub healthcheck: Option<Healthcheck>,
    /// Old spelling of `memory_mb`.
    pub memory: Option<MegaBytes>,
    /// Old spelling of `storage_mb`.
    pub storage: Option<MegaBytes>,
    /// Old spelling of `network_mode`.
    pub allow_internet: Option<bool>,
}

impl EnvironmentConfig {
    /// Memory in MiB, from the old key if only that is given.
    pub fn memory_mb(&self) -> Option<u64> {
        self.memory_mb.or(self.memory.map(|size| size.0))
    }

    /// Disk in MiB, from the old key if only that is given.
    pub fn storage_mb(&self) -> Option<u64> {
        self.storage_mb.or(self.storage.map(|size| size.0))
    }

    /// What the network reaches outside the phases that say otherwise.
    pub fn network(&self) -> NetworkPolicy {
        let old = if self.allow_internet == Some(false) {
            NetworkMode::NoNetwork
        } else {
            NetworkMode::Public
        };
        NetworkPolicy::of(self.network_mode, &self.allowed_hosts).unwrap_or(NetworkPolicy {
            mode: old,
            hosts: Vec::new(),
        })
    }
}

/// What the network reaches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum NetworkMode {
    /// Everything.
    Public,
    /// Nothing but the policy's API.
    NoNetwork,
    /// The hosts listed.
    Allowlist,
}

/// A mode with its hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The mode.
    pub mode: NetworkMode,
    /// Hosts, lower-case, in the order written; empty unless the mode is `allowlist`.
    pub hosts: Vec<String>,
}

impl NetworkPolicy {
    /// Nothing but the policy's API.
    pub fn none() -> Self {
        Self {
            mode: NetworkMode::NoNetwork,
            hosts: Vec::new(),
        }
    }

    /// What a section says; `None` where it says nothing. Hosts without a mode mean `allowlist`.
    pub fn of(mode: Option<NetworkMode>, hosts: &[String]) -> Option<Self> {
        let mode = mode.or((!hosts.is_empty()).then_some(NetworkMode::Allowlist))?;
        let mut kept: Vec<String> = Vec::new();
        for host in hosts
            .iter()
            .map(|host| host.trim().trim_end_matches('.').to_lowercase())
        {
            if !host.is_empty() && !kept.contains(&host) {
                kept.push(host);
            }
        }
        Some(Self { mode, hosts: kept })
    }
}

/// An MCP server for the agent.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct McpServer {
    /// Its name.
    pub name: String,
    /// `sse`, `streamable-http` or `stdio`; `sse` if absent.
    pub transport: Option<String>,
    /// For `sse` and `streamable-http`.
    pub url: Option<String>,
    /// For `stdio`.
    pub command: Option<String>,
    /// For `stdio`.
    #[serde(default)]
    pub args: Vec<String>,
}

/// When the environment is ready.
#[derive(Debug, Clone, PartialEq, Deserialize, JsonSchema)]
pub struct Healthcheck {
    /// Exit code 0 means ready.
    pub command: String,
    /// Between two checks.
    #[serde(default = "five_seconds")]
    pub interval_sec: Seconds,
    /// Of one check.
    #[serde(default = "half_a_minute")]
    pub timeout_sec: Seconds,
    /// During which failures do not count.
    #[serde(default = "no_time")]
    pub start_period_sec: Seconds,
    /// Between two checks of the start period.
    #[serde(default = "five_seconds")]
    pub start_interval_sec: Seconds,
    /// Failures in a row before the environment counts as broken.
    #[serde(default = "three")]
    pub retries: u32,
}

fn five_seconds() -> Seconds {
    Seconds(5.0)
}

fn half_a_minute() -> Seconds {
    Seconds(30.0)
}

fn no_time() -> Seconds {
    Seconds(0.0)
}

fn three() -> u32 {
    3
}

/// Fills in `${VAR}` and `${VAR:-default}` of an environment table.
///
/// `lookup` is the host's environment; `path` names task.toml in the error for a variable without value.
pub fn resolve_env(
    path: &Path,
    table: &BTreeMap<String, String>,
    lookup: impl Fn(&str) -> Option<String>,
) -> Result<BTreeMap<String, String>, TaskError> {
    table
        .iter()
        .map(|(key, value)| Ok((key.clone(), fill(path, key, value, &lookup)?)))
        .collect()
}

fn fill(path: &Path, key: &str, value: &str, lookup: &impl Fn(&str) -> Option<String>) -> Result<String, TaskError> {
    let mut filled = String::new();
    let mut rest = value;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((inside, tail)) = after.split_once('}') else {
            break;
        };
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        // As in a shell, `:-` also replaces an empty value.
        let found = lookup(name).filter(|found| default.is_none() || !found.is_empty());
        let text = found
            .or(default.map(str::to_owned))
            .ok_or_else(|| TaskError::Variable {
                path: path.to_owned(),
                key: key.to_owned(),
                variable: name.to_owned(),
            })?;
        filled.push_str(before);
        filled.push_str(&text);
        rest = tail;
    }
    filled.push_str(rest);
    Ok(filled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(value: &str) -> Result<String, TaskError> {
        fill(Path::new("task.toml"), "K", value, &|name| match name {
            "SET" => Some("yes".to_owned()),
            "EMPTY" => Some(String::new()),
            _ => None,
        })
    }

    #[test]
    fn variables_are_filled_in_from_the_host() {
        assert_eq!(
            filled("a-${SET}-${NONE:-d}-${EMPTY:-e}-${EMPTY}-$SET").unwrap(),
            "a-yes-d-e--$SET"
        );
        assert_eq!(filled("${open").unwrap(), "${open");
        let message = filled("${NONE}").unwrap_err().to_string();
        assert_eq!(
            message,
            "task.toml: `env.K` needs the environment variable `NONE`, which is not set; set it, or write `${NONE:-default}`"
        );
    }

    #[test]
    fn hosts_without_a_mode_are_an_allowlist() {
        let policy = NetworkPolicy::of(None, &["Example.com.".into(), "example.com".into()]);
        assert_eq!(
            policy,
            Some(NetworkPolicy {
                mode: NetworkMode::Allowlist,
                hosts: vec!["example.com".into()]
            })
        );
        assert_eq!(NetworkPolicy::of(None, &[]), None);
        let old = EnvironmentConfig {
            allow_internet: Some(false),
            ..Default::default()
        };
        assert_eq!(old.network().mode, NetworkMode::NoNetwork);
    }
}
