//! Which images of the engine's store are ours, when each was last used, and how the oldest leave.
//!
//! The engine itself keeps the account: ours carry a tag below `lego/`, and the time of their last tag is the time of
//! their last use. Only names that a run made leave: those below `lego/`, and the one that it pulled. An image that was
//! there before, or that somebody gave another name, stays under that.

use std::collections::HashSet;

use bollard::Docker;
use bollard::models::{ImageInspect, ImageSummary};
use bollard::query_parameters::{ListImagesOptionsBuilder, RemoveImageOptions, TagImageOptionsBuilder};
use jiff::Timestamp;

use super::Found;
use crate::sandbox::docker::answer;

/// Names of what was built; pulled images get one more.
const OURS: &str = "lego/";
/// Name of pulled images, beside their own.
const PULLED: &str = "lego/pulled";

/// Makes a new image ours.
pub(super) async fn mark(client: &Docker, name: &str, found: &Found) {
    if !name.starts_with(OURS) {
        note(client, &found.id, PULLED, &short(&found.id)).await;
    }
}

/// Notes that one of ours is used again.
pub(super) async fn use_again(client: &Docker, name: &str, found: &Found) {
    let ours = found.tags.iter().find(|tag| tag.starts_with(OURS));
    let Some((repository, version)) = ours.and_then(|tag| tag.rsplit_once(':')) else {
        return;
    };
    tracing::debug!(image = name, "used again");
    note(client, &found.id, repository, version).await;
}

fn short(id: &str) -> String {
    id.trim_start_matches("sha256:").chars().take(16).collect()
}

async fn note(client: &Docker, id: &str, repository: &str, version: &str) {
    if let Err(error) = tag(client, id, repository, version).await {
        tracing::warn!(image = id, error, "its use could not be noted");
    }
}

/// Gives an image one more name.
pub(super) async fn tag(client: &Docker, id: &str, repository: &str, version: &str) -> Result<(), String> {
    let options = TagImageOptionsBuilder::new().repo(repository).tag(version).build();
    answer(client.tag_image(id, Some(options))).await
}

/// One of ours.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Kept {
    id: String,
    names: Vec<String>,
    /// Bytes that leave with it, as far as the engine tells.
    bytes: u64,
    used: Timestamp,
}

/// Removes the images of ours that were used longest ago until the others hold at most `bound` bytes; gives their
/// names. `newest` stays, and so do those that containers use.
pub(super) async fn shrink(client: &Docker, bound: u64, newest: &str) -> HashSet<String> {
    let kept = match list(client).await {
        Ok(kept) => kept,
        Err(error) => {
            tracing::warn!(error, "the images could not be listed: none leaves");
            return HashSet::new();
        }
    };
    let mut removed = HashSet::new();
    for image in too_many(kept, bound, newest) {
        // One name after the other: with the last the image itself leaves, unless a container uses it.
        for name in &image.names {
            let gone = answer(client.remove_image(name, None::<RemoveImageOptions>, None)).await;
            match gone {
                Ok(_) => {
                    tracing::info!(
                        image = name,
                        "removed from the engine's store: `sandbox.docker.image_cache` is full"
                    );
                    removed.insert(name.clone());
                }
                Err(reason) => tracing::debug!(image = name, reason, "stays"),
            }
        }
    }
    removed
}

async fn list(client: &Docker) -> Result<Vec<Kept>, String> {
    let options = ListImagesOptionsBuilder::new().shared_size(true).build();
    let mut kept = Vec::new();
    for image in answer(client.list_images(Some(options))).await? {
        if image.repo_tags.iter().any(|tag| tag.starts_with(OURS)) {
            let inspected = answer(client.inspect_image(&image.id)).await?;
            kept.push(Kept::of(image, &inspected));
        }
    }
    Ok(kept)
}

impl Kept {
    fn of(image: ImageSummary, inspected: &ImageInspect) -> Self {
        let tagged = inspected
            .metadata
            .as_ref()
            .and_then(|metadata| metadata.last_tag_time.as_ref());
        let used = tagged.and_then(|time| time.parse().ok());
        // Engines before API 1.42 do not tell what is shared.
        let own = image.size - image.shared_size.max(0);
        Self {
            id: image.id,
            names: ours(image.repo_tags, image.repo_digests),
            bytes: u64::try_from(own).unwrap_or(0),
            used: used.unwrap_or(Timestamp::UNIX_EPOCH),
        }
    }
}

/// The names of an image that are a run's own. Of a pulled one, the name that it was pulled by: the only other.
fn ours(tags: Vec<String>, digests: Vec<String>) -> Vec<String> {
    let (mut names, others): (Vec<String>, Vec<String>) = tags.into_iter().partition(|tag| tag.starts_with(OURS));
    let pulled = names.iter().any(|name| name.starts_with(PULLED));
    let by = if others.is_empty() { digests } else { others };
    if pulled && let Ok([name]) = <[String; 1]>::try_from(by) {
        names.push(name);
    }
    names
}

/// Those that leave, the one used longest ago first.
fn too_many(mut kept: Vec<Kept>, bound: u64, newest: &str) -> Vec<Kept> {
    kept.sort_by_key(|image| std::cmp::Reverse(image.used));
    let mut held: u64 = kept
        .iter()
        .filter(|image| image.id == newest)
        .map(|image| image.bytes)
        .sum();
    let mut leave: Vec<Kept> = kept
        .into_iter()
        .filter(|image| image.id != newest)
        .filter(|image| {
            held = held.saturating_add(image.bytes);
            held > bound
        })
        .collect();
    leave.reverse();
    leave
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_others_gave_stay() {
        let ours = |tags: &[&str], digests: &[&str]| {
            let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
            ours(owned(tags), owned(digests))
        };
        let digest = ["reg/a@sha256:1"];
        assert_eq!(ours(&["lego/t:1"], &[]), ["lego/t:1"]);
        assert_eq!(
            ours(&["lego/pulled:1", "reg/a:2"], &digest),
            ["lego/pulled:1", "reg/a:2"]
        );
        assert_eq!(ours(&["lego/pulled:1"], &digest), ["lego/pulled:1", "reg/a@sha256:1"]);
        // A Dockerfile of nothing but `FROM base`, and a name that somebody gave a pulled image.
        assert_eq!(ours(&["base:1", "lego/t:1"], &[]), ["lego/t:1"]);
        assert_eq!(
            ours(&["lego/pulled:1", "mine:1", "reg/a:2"], &digest),
            ["lego/pulled:1"]
        );
    }

    #[test]
    fn the_one_used_longest_ago_leaves_first_and_the_newest_never() {
        let image = |id: &str, bytes: u64, used: i64| Kept {
            id: id.to_owned(),
            names: Vec::new(),
            bytes,
            used: Timestamp::from_second(used).unwrap(),
        };
        let kept = vec![image("old", 10, 1), image("new", 10, 9), image("mid", 10, 5)];
        let leave = |bound: u64, newest: &str| -> Vec<String> {
            let leave = too_many(kept.clone(), bound, newest);
            leave.into_iter().map(|image| image.id).collect()
        };
        assert!(leave(30, "new").is_empty());
        assert_eq!(leave(29, "new"), ["old"]);
        assert_eq!(leave(10, "new"), ["old", "mid"]);
        // One that is larger than the bound by itself is still used.
        assert_eq!(leave(0, "old"), ["mid", "new"]);
    }
}
