//! A build from a task's own folder.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bollard::Docker;
use bollard::query_parameters::BuildImageOptionsBuilder;
use futures_util::StreamExt;

use super::pull::follow;
use super::{Why, credentials, refused};
use crate::sandbox::mirrored;
use crate::task::sha256_hex;

const DOCKERFILE: &str = "Dockerfile";
/// Bytes of a build's words that are kept.
const LOG: usize = 4 << 20;
/// How the engine says that the file itself is wrong.
const WRONG: [&str; 4] = ["parse error", "unknown instruction", "no build stage", "COPY failed"];

/// What a build starts from: the folder, and which names of images are replaced.
pub(super) type Source<'a> = (&'a Path, &'a BTreeMap<String, String>);

/// Builds it. What the engine says meanwhile goes to `log`.
pub(super) async fn build(
    client: &Docker,
    name: &str,
    (context, mirror): Source<'_>,
    timeout: Duration,
    log: Option<&Path>,
) -> Result<(), Why> {
    tracing::info!(image = name, context = %context.display(), "building");
    let (folder, mirror) = (context.to_owned(), mirror.clone());
    let packed = blocking(move || pack(&folder, &mirror)).await;
    let packed = packed.map_err(|error| Why::now(format!("{}: {error}", context.display())))?;
    let options = BuildImageOptionsBuilder::new().t(name).rm(true).forcerm(true).build();
    let who = Some(credentials::all()).filter(|all| !all.is_empty());
    let progress = client.build_image(options, who, Some(bollard::body_full(packed.into())));
    let words = progress.map(|event| {
        let event = event.map_err(refused)?;
        match event.error_detail.and_then(|detail| detail.message) {
            Some(message) if WRONG.iter().any(|words| message.contains(words)) => Err(Why::for_good(message)),
            Some(message) => Err(Why::now(message)),
            None => Ok(event.stream.unwrap_or_default()),
        }
    });
    let mut said = String::new();
    // A step of a build may be silent for as long as the build may take.
    let ended = follow(words, (timeout, timeout), "the build", |word| {
        if said.len() < LOG {
            said.push_str(word);
        }
    })
    .await;
    let kept = match log {
        Some(log) => keep(log, &said),
        None => Ok(()),
    };
    if let Err(error) = kept {
        tracing::warn!(image = name, error = %error, "the words of the build are not kept");
    }
    ended.map_err(|why| Why {
        reason: format!(
            "{} could not be built: {}",
            context.join(DOCKERFILE).display(),
            why.reason
        ),
        ..why
    })
}

fn keep(log: &Path, said: &str) -> io::Result<()> {
    if let Some(folder) = log.parent() {
        fs_err::create_dir_all(folder)?;
    }
    fs_err::write(log, said)
}

/// A file name for the words of this image's build.
pub(super) fn log_name(image: &str) -> String {
    format!("{}.log", image.replace(['/', ':', '@'], "_"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|error| Err(io::Error::other(error)))
}

/// `name:<content>`, so that what was built of the same content is found again, and of another is not.
pub(super) async fn tagged(context: &Path, name: &str) -> Result<Arc<str>, Why> {
    let (context, name) = (context.to_owned(), name.to_owned());
    let tag = blocking(move || tag(&context, &name)).await;
    tag.map(Arc::from).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => Why::for_good(error.to_string()),
        _ => Why::now(error.to_string()),
    })
}

fn tag(context: &Path, name: &str) -> io::Result<String> {
    if !context.join(DOCKERFILE).is_file() {
        let text = format!("{} has no {DOCKERFILE}", context.display());
        return Err(io::Error::new(io::ErrorKind::NotFound, text));
    }
    let content = sha256_hex(&pack(context, &BTreeMap::new())?);
    Ok(format!("{}:{}", name.to_lowercase(), &content[..16]))
}

/// The folder as the engine takes it, the same bytes for the same content. Its Dockerfile names the mirror's images.
fn pack(folder: &Path, mirror: &BTreeMap<String, String>) -> io::Result<Vec<u8>> {
    let mut archive = tar::Builder::new(Vec::new());
    archive.mode(tar::HeaderMode::Deterministic);
    archive.follow_symlinks(false);
    let mut folders = vec![PathBuf::new()];
    while let Some(below) = folders.pop() {
        let mut entries = fs_err::read_dir(folder.join(&below))?.collect::<Result<Vec<_>, _>>()?;
        entries.sort_by_key(fs_err::DirEntry::file_name);
        for entry in entries {
            let path = below.join(entry.file_name());
            let kind = entry.file_type()?;
            if kind.is_dir() {
                archive.append_dir(&path, entry.path())?;
                folders.push(path);
            } else if !mirror.is_empty() && kind.is_file() && path == Path::new(DOCKERFILE) {
                let text = with_mirror(&fs_err::read_to_string(entry.path())?, mirror);
                let mut header = tar::Header::new_gnu();
                header.set_size(text.len() as u64);
                header.set_mode(0o644);
                header.set_cksum();
                archive.append_data(&mut header, &path, text.as_bytes())?;
            } else if kind.is_file() || kind.is_symlink() {
                archive.append_path_with_name(entry.path(), &path)?;
            }
        }
    }
    archive.into_inner()
}

/// The Dockerfile with the images of its `FROM` lines by their names at the mirror.
fn with_mirror(dockerfile: &str, mirror: &BTreeMap<String, String>) -> String {
    let line = |line: &str| {
        let mut words = line.split_whitespace();
        if !words.next().is_some_and(|word| word.eq_ignore_ascii_case("FROM")) {
            return line.to_owned();
        }
        match words.find(|word| !word.starts_with("--")) {
            Some(image) => line.replacen(image, &mirrored(image, mirror), 1),
            None => line.to_owned(),
        }
    };
    dockerfile.split('\n').map(line).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_tells_the_content() {
        let folder = tempfile::tempdir().unwrap();
        let missing = tag(folder.path(), "Lego/T").unwrap_err().to_string();
        assert!(missing.ends_with("has no Dockerfile"), "{missing}");
        fs_err::write(folder.path().join("Dockerfile"), "FROM scratch\n").unwrap();
        fs_err::create_dir(folder.path().join("files")).unwrap();
        fs_err::write(folder.path().join("files/a"), "1").unwrap();
        let first = tag(folder.path(), "Lego/T").unwrap();
        assert!(first.starts_with("lego/t:") && first.len() == 7 + 16, "{first}");
        assert_eq!(tag(folder.path(), "Lego/T").unwrap(), first);
        fs_err::write(folder.path().join("files/a"), "2").unwrap();
        assert_ne!(tag(folder.path(), "Lego/T").unwrap(), first);
    }

    #[test]
    fn a_mirror_also_serves_what_a_build_starts_from() {
        let mirror = BTreeMap::from([("docker.io/".to_owned(), "10.0.0.1:5000/".to_owned())]);
        let text = "# FROM docker.io/no\nFROM --platform=linux/amd64 docker.io/library/python:3 AS base\n\
                    RUN echo FROM docker.io/no\nFROM base\nfrom  docker.io/a\n";
        let expected = "# FROM docker.io/no\nFROM --platform=linux/amd64 10.0.0.1:5000/library/python:3 AS base\n\
                        RUN echo FROM docker.io/no\nFROM base\nfrom  10.0.0.1:5000/a\n";
        assert_eq!(with_mirror(text, &mirror), expected);
        let folder = tempfile::tempdir().unwrap();
        fs_err::write(folder.path().join("Dockerfile"), text).unwrap();
        let packed = pack(folder.path(), &mirror).unwrap();
        let mut archive = tar::Archive::new(&*packed);
        let mut entry = archive.entries().unwrap().next().unwrap().unwrap();
        let mut read = String::new();
        io::Read::read_to_string(&mut entry, &mut read).unwrap();
        assert_eq!(read, expected);
    }
}
