//! One watch on all pods of this run: whoever waits for one is woken when the cluster says something of it.

use std::collections::HashMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt as _;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{ListParams, WatchEvent, WatchParams};
use kube::{Api, ResourceExt as _};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::client::{self, Refused};
use super::state::{self, Phase};

/// Seconds after which the server ends a watch, and another begins.
const LENGTH: u32 = 240;
/// A watch that says nothing for so long is none.
const SILENCE: Duration = Duration::from_secs(LENGTH as u64 + 30);
/// Time for a list; after that comes the next attempt.
const LIST: Duration = Duration::from_mins(1);
/// What a kubelet says while it waits to pull again.
const BACK_OFF: &str = "ImagePullBackOff";
/// Between two attempts.
const PAUSE: Duration = Duration::from_secs(1);

/// What is known of a pod: nothing yet, how it is, or that it is gone.
#[derive(Debug, Clone, Default)]
pub(super) enum Known {
    #[default]
    Nothing,
    Pod(Box<Pod>),
    Gone,
}

/// Ends when its last copy is dropped.
#[derive(Clone)]
pub(super) struct Watcher(Arc<Shared>);

struct Shared {
    pods: Arc<Pods>,
    task: JoinHandle<()>,
}

#[derive(Default)]
struct Pods(Mutex<HashMap<String, watch::Sender<Known>>>);

impl Drop for Shared {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Watcher {
    /// On the pods with this label.
    pub(super) fn spawn(api: Api<Pod>, selector: String) -> Self {
        let pods = Arc::new(Pods::default());
        let seen = Arc::clone(&pods);
        let task = tokio::spawn(async move {
            loop {
                if let Err(error) = follow(&api, &selector, &seen).await {
                    tracing::debug!(%error, "the watch on pods broke; another begins");
                    tokio::time::sleep(PAUSE).await;
                }
            }
        });
        Self(Arc::new(Shared { pods, task }))
    }

    /// What becomes known of this pod.
    pub(super) fn of(&self, name: &str) -> watch::Receiver<Known> {
        let mut pods = self.0.pods.0.lock().unwrap_or_else(PoisonError::into_inner);
        pods.entry(name.to_owned()).or_default().subscribe()
    }

    /// Nobody waits for this pod any more.
    pub(super) fn forget(&self, name: &str) {
        self.0
            .pods
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(name);
    }
}

impl Pods {
    fn tell(&self, name: &str, known: Known) {
        let pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pod) = pods.get(name) {
            let older = matches!((&*pod.borrow(), &known), (Known::Pod(old), Known::Pod(new)) if says_less(old, new));
            if !older {
                pod.send_replace(known);
            }
        }
    }

    /// Of those that were there once and are not in this list: gone.
    fn missing(&self, listed: &[Pod]) {
        let pods = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for (name, pod) in pods.iter() {
            let was_there = matches!(*pod.borrow(), Known::Pod(_));
            if was_there && !listed.iter().any(|listed| listed.name_any() == *name) {
                pod.send_replace(Known::Gone);
            }
        }
    }
}

/// Whether the newer state only repeats that an image cannot be had, and the older says why: who has not read that yet
/// would never learn it.
fn says_less(old: &Pod, new: &Pod) -> bool {
    let words = |pod: &Pod| match state::read(pod) {
        Phase::NoImage { reason, .. } => Some(reason.starts_with(BACK_OFF)),
        _ => None,
    };
    (words(old), words(new)) == (Some(false), Some(true))
}

async fn follow(api: &Api<Pod>, selector: &str, pods: &Pods) -> Result<(), Refused> {
    let parameters = ListParams::default().labels(selector);
    let list = client::call(LIST, || api.list(&parameters)).await?;
    pods.missing(&list.items);
    for pod in list.items {
        pods.tell(&pod.name_any(), Known::Pod(Box::new(pod)));
    }
    let mut version = list.metadata.resource_version.unwrap_or_default();
    loop {
        let parameters = WatchParams::default().labels(selector).timeout(LENGTH);
        let events = api
            .watch(&parameters, &version)
            .await
            .map_err(|error| Refused::of(&error))?;
        let mut events = pin!(events);
        loop {
            let next = tokio::time::timeout(SILENCE, events.next()).await;
            let event = match next {
                Err(_) => return Err(Refused::Busy(format!("nothing came for {SILENCE:?}"), None)),
                Ok(None) => break,
                Ok(Some(event)) => event.map_err(|error| Refused::of(&error))?,
            };
            match event {
                WatchEvent::Added(pod) | WatchEvent::Modified(pod) => {
                    version = pod.resource_version().unwrap_or(version);
                    pods.tell(&pod.name_any(), Known::Pod(Box::new(pod)));
                }
                WatchEvent::Deleted(pod) => {
                    version = pod.resource_version().unwrap_or(version);
                    pods.tell(&pod.name_any(), Known::Gone);
                }
                WatchEvent::Bookmark(bookmark) => version = bookmark.metadata.resource_version,
                // Most often that the version is too old: all is listed again.
                WatchEvent::Error(status) => return Err(Refused::Busy(status.message, None)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn why_an_image_cannot_be_had_is_not_lost_to_what_only_repeats_it() {
        let pods = Pods::default();
        let mut known = pods.0.lock().unwrap().entry("a".to_owned()).or_default().subscribe();
        let waits = |reason: &str| {
            let state = json!({"waiting": {"reason": reason, "message": "m"}});
            let status = json!({"phase": "Pending", "containerStatuses": [
                {"name": "main", "image": "", "imageID": "", "ready": false, "restartCount": 0, "state": state}
            ]});
            Known::Pod(Box::new(serde_json::from_value(json!({"status": status})).unwrap()))
        };
        let mut seen = |reason: &str| {
            pods.tell("a", waits(reason));
            match &*known.borrow_and_update() {
                Known::Pod(pod) => match state::read(pod) {
                    Phase::NoImage { reason, .. } => reason,
                    phase => format!("{phase:?}"),
                },
                other => format!("{other:?}"),
            }
        };
        assert_eq!(seen("ImagePullBackOff"), "ImagePullBackOff: m");
        assert_eq!(seen("ErrImagePull"), "ErrImagePull: m");
        assert_eq!(seen("ImagePullBackOff"), "ErrImagePull: m");
        assert!(seen("ContainerCreating").starts_with("Waiting"));
    }
}
