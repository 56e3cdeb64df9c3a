//! A push to a registry, and what a registry holds by a name.

use bollard::Docker;
use bollard::query_parameters::{PushImageOptionsBuilder, RemoveImageOptions};
use futures_util::StreamExt;

use super::pull::{PULL, SILENCE, follow};
use super::{Why, cache, credentials, refused};
use crate::sandbox::docker::answer;

/// The tag of what is pushed: that of a name without one.
const TAG: &str = "latest";
/// How registries and engines say that they want to know who asks.
const UNKNOWN_CALLER: [&str; 4] = ["unauthorized", "no basic auth", "denied", "authentication required"];

/// Pushes an image of the engine's store as `name`, which bears no tag; gives the digest under which it lies there. The
/// engine keeps the image under its own names alone.
pub(super) async fn push(client: &Docker, id: &str, name: &str) -> Result<String, Why> {
    tracing::info!(image = name, "pushing");
    cache::tag(client, id, name, TAG).await.map_err(Why::now)?;
    let options = PushImageOptionsBuilder::new().tag(TAG).build();
    let progress = client.push_image(name, Some(options), credentials::of(name));
    let words = progress.map(|event| {
        let event = event.map_err(refused)?;
        // Words of one layer's way are many and say nothing.
        let of_layer = event.progress_detail.is_some();
        Ok(event.status.filter(|_| !of_layer).unwrap_or_default())
    });
    let mut digest = None;
    let pushed = follow(words, (SILENCE, PULL), "the push", |word| {
        digest = digest_in(word).map(str::to_owned).or(digest.take());
    })
    .await;
    let tagged = format!("{name}:{TAG}");
    if let Err(error) = answer(client.remove_image(&tagged, None::<RemoveImageOptions>, None)).await {
        tracing::warn!(
            image = tagged,
            error,
            "the name of the push stays in the engine's store"
        );
    }
    pushed.map_err(|why| Why {
        reason: with_credentials(why.reason),
        ..why
    })?;
    digest.ok_or_else(|| Why::now("the engine did not say under which digest it lies in the registry"))
}

/// The digest that a registry has under `name`; `None` where it has none, or the engine cannot ask.
pub(in crate::sandbox::docker) async fn digest_at(client: &Docker, name: &str) -> Option<String> {
    let tagged = format!("{name}:{TAG}");
    let asked = answer(client.inspect_registry_image(&tagged, credentials::of(name))).await;
    match asked {
        Ok(found) => found.descriptor.digest,
        Err(error) => {
            tracing::debug!(image = tagged, error, "not found in its registry");
            None
        }
    }
}

/// The digest in an engine's last word on a push, such as `latest: digest: sha256:… size: 528`.
fn digest_in(word: &str) -> Option<&str> {
    let (_, rest) = word.split_once("digest: ")?;
    let digest = rest.split_whitespace().next()?;
    let hex = digest.strip_prefix("sha256:")?;
    (hex.len() == 64 && hex.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(digest)
}

/// The same words, and where we look for credentials, if that is what they are about.
fn with_credentials(reason: String) -> String {
    if UNKNOWN_CALLER.iter().any(|words| reason.contains(words)) {
        format!(
            "{reason}; who asks is read from `auths` in {}, as `docker login` writes it without a credential helper",
            credentials::file().display()
        )
    } else {
        reason
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_read_from_the_last_word_alone() {
        let digest = format!("sha256:{}", "0a".repeat(32));
        assert_eq!(
            digest_in(&format!("latest: digest: {digest} size: 528")),
            Some(digest.as_str())
        );
        for other in [
            "Pushed",
            "latest: digest: sha256:12 size: 1",
            "latest: digest: md5:12",
            "digest: ",
        ] {
            assert_eq!(digest_in(other), None, "{other}");
        }
    }

    #[test]
    fn a_registry_that_wants_to_know_who_asks_is_told_from_others() {
        assert_eq!(with_credentials("connection refused".to_owned()), "connection refused");
        let said = with_credentials("no basic auth credentials".to_owned());
        assert!(said.contains("`auths` in ") && said.contains("config.json"), "{said}");
    }
}
