//! Who we are at a registry: what `docker login` wrote into its file. Programs that keep credentials are not asked.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bollard::auth::DockerCredentials;
use serde::Deserialize;

use crate::sandbox::registry_of;

/// How the file names the registry of names without one.
const DOCKER_IO: &str = "index.docker.io";

/// The part of the file that is read.
#[derive(Debug, Default, Deserialize)]
struct File {
    #[serde(default)]
    auths: HashMap<String, Entry>,
}

#[derive(Debug, Default, Deserialize)]
struct Entry {
    /// `user:password` in base64; absent where a program keeps it.
    auth: Option<String>,
    identitytoken: Option<String>,
}

/// `$DOCKER_CONFIG/config.json`, else `~/.docker/config.json`.
pub(super) fn file() -> PathBuf {
    let named = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty());
    let own = || std::env::home_dir().unwrap_or_default().join(".docker");
    named.map_or_else(own, PathBuf::from).join("config.json")
}

/// Those for the registry that an image's name leads to.
pub(super) fn of(image: &str) -> Option<DockerCredentials> {
    let registry = match registry_of(image) {
        "docker.io" => DOCKER_IO,
        registry => registry,
    };
    let found = all().into_iter().find(|(address, _)| host(address) == registry);
    found.map(|(_, found)| found)
}

/// All of the file, by the address that it has them for. A file that cannot be read is warned of, and holds none.
pub(super) fn all() -> HashMap<String, DockerCredentials> {
    let path = file();
    match std::fs::read(&path) {
        Ok(text) => read(&path, &text),
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                tracing::warn!(path = %path.display(), error = %error, "credentials of registries cannot be read");
            }
            HashMap::new()
        }
    }
}

fn read(path: &Path, text: &[u8]) -> HashMap<String, DockerCredentials> {
    let file: File = serde_json::from_slice(text).unwrap_or_else(|error| {
        tracing::warn!(path = %path.display(), error = %error, "credentials of registries cannot be read");
        File::default()
    });
    let entries = file.auths.into_iter().filter_map(|(address, entry)| {
        let found = credentials(&address, entry);
        if found.is_none() {
            tracing::warn!(path = %path.display(), registry = address, "no credentials there for it");
        }
        Some((address, found?))
    });
    entries.collect()
}

fn credentials(address: &str, entry: Entry) -> Option<DockerCredentials> {
    let token = entry.identitytoken.filter(|token| !token.is_empty());
    let said = STANDARD.decode(entry.auth?.trim()).ok()?;
    let said = String::from_utf8(said).ok()?;
    let (user, password) = said.split_once(':')?;
    Some(DockerCredentials {
        username: Some(user.to_owned()),
        password: Some(password.trim_end_matches('\0').to_owned()).filter(|_| token.is_none()),
        serveraddress: Some(address.to_owned()),
        identitytoken: token,
        ..DockerCredentials::default()
    })
}

/// The host of an address that may have a scheme and a path, such as `https://registry.example.com/v1/`.
fn host(address: &str) -> &str {
    let behind = address.split_once("://").map_or(address, |(_, rest)| rest);
    behind.split('/').next().unwrap_or(behind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_docker_login_wrote_is_read_and_nothing_else() {
        let said = STANDARD.encode("me:se:cret");
        let text = format!(
            r#"{{"credsStore":"x","auths":{{"reg:5000":{{"auth":"{said}"}},"kept-elsewhere":{{}},"broken":{{"auth":"?"}},
                "token":{{"auth":"{said}","identitytoken":"t"}}}}}}"#
        );
        let found = read(Path::new("config.json"), text.as_bytes());
        assert_eq!(found.len(), 2);
        let own = &found["reg:5000"];
        assert_eq!(
            (
                own.username.as_deref(),
                own.password.as_deref(),
                own.serveraddress.as_deref()
            ),
            (Some("me"), Some("se:cret"), Some("reg:5000"))
        );
        let token = &found["token"];
        assert_eq!(
            (token.identitytoken.as_deref(), token.password.as_deref()),
            (Some("t"), None)
        );
        assert!(read(Path::new("config.json"), b"{").is_empty());
        assert_eq!(host(&format!("https://{DOCKER_IO}/v1/")), DOCKER_IO);
        assert_eq!(host("reg:5000"), "reg:5000");
    }
}
