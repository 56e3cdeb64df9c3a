//! Streams to a pod's init: an exec of our relay in its container.

use async_trait::async_trait;
use kube::api::AttachParams;
use tokio::sync::watch;

use super::MAIN;
use super::client::{Cluster, Refused};
use super::state::{self, Phase};
use super::watcher::Known;
use crate::sandbox::control::remote::{Broken, Dial, Dialed};

/// Bytes that wait on this side of a stream, in each direction.
const WAITING: usize = 64 * 1024;

/// To one pod.
pub(super) struct Exec {
    pub(super) cluster: Cluster,
    pub(super) pod: String,
    /// The relay's command line inside.
    pub(super) relay: Vec<String>,
    pub(super) known: watch::Receiver<Known>,
}

/// Of an exec of ours.
pub(super) fn parameters(container: &str) -> AttachParams {
    AttachParams::default()
        .container(container)
        .stdin(true)
        .stdout(true)
        .stderr(true)
        .max_stdin_buf_size(WAITING)
        .max_stdout_buf_size(WAITING)
}

/// Why a pod has ended, where the cluster says so.
pub(super) fn end(known: &Known) -> Option<state::End> {
    match known {
        Known::Nothing => None,
        Known::Gone => Some(state::End {
            reason: "it was deleted".to_owned(),
            by_inside: false,
        }),
        Known::Pod(pod) => match state::read(pod) {
            Phase::Ended(end) => Some(end),
            _ => None,
        },
    }
}

#[async_trait]
impl Dial for Exec {
    async fn dial(&self) -> Result<Dialed, Broken> {
        if let Some(end) = end(&self.known.borrow()) {
            return Err(Broken::Gone(end.reason));
        }
        let opened = self
            .cluster
            .pods
            .exec(&self.pod, &self.relay, &parameters(MAIN).stderr(false))
            .await;
        let mut process = opened.map_err(|error| match Refused::of(&error) {
            Refused::Missing => Broken::Gone("it was deleted".to_owned()),
            refused => Broken::Again(refused.to_string()),
        })?;
        match (process.stdout(), process.stdin()) {
            (Some(input), Some(output)) => Ok(Dialed {
                input: Box::new(input),
                output: Box::new(output),
                _keep: Box::new(process),
            }),
            _ => Err(Broken::Again("an exec without streams".to_owned())),
        }
    }
}
