//! Makes one pod and waits until its init serves.

use std::sync::Arc;
use std::time::Duration;

use kube::ResourceExt as _;
use kube::api::{AttachedProcess, LogParams, PostParams};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::sync::watch;
use tokio::time::Instant;

use super::client::{self, Cluster, Refused};
use super::dial::{self, Exec};
use super::pod::{self, LOOK, Owner};
use super::running::{KubernetesSandbox, Owned};
use super::state::{self, Phase};
use super::watcher::{Known, Watcher};
use super::{KubernetesOptions, Payload, RUNTIME};
use crate::sandbox::control::container::{self, Says};
use crate::sandbox::control::ports;
use crate::sandbox::control::remote::Remote;
use crate::sandbox::init::{DESCRIBE, Described, RELAY};
use crate::sandbox::owner::host_name;
use crate::sandbox::runtime::INSIDE;
use crate::sandbox::{Image, SandboxError, SandboxSpec};

/// How long the kubelet may fail to get an image before that is the end: its first failures may pass.
const NO_IMAGE: Duration = Duration::from_secs(25);
/// Time for our files to be sent, and for the image to be looked at.
const SENT: Duration = Duration::from_mins(5);
/// Time for what a failed command said.
const LAST_WORDS: Duration = Duration::from_secs(5);
/// Bytes of what a failed command said that its error shows.
const SHOWN: u64 = 2000;

pub(super) async fn start(
    cluster: Cluster,
    payload: Payload,
    options: KubernetesOptions,
    owner: Owner,
    watcher: Watcher,
    spec: SandboxSpec,
) -> Result<KubernetesSandbox, SandboxError> {
    let failed = |reason: String| SandboxError::Start {
        name: spec.name.clone(),
        reason,
    };
    let image = match &spec.image {
        Some(Image::Named(name)) => name.clone(),
        Some(Image::Build { context, .. }) => {
            return Err(SandboxError::Image {
                image: context.display().to_string(),
                reason: "the `kubernetes` backend builds no images: `lego prepare --stage build --push REGISTRY` pushes what \
                         its Dockerfile builds to where `sandbox.registry` finds it"
                    .to_owned(),
                last: true,
            });
        }
        None => {
            return Err(failed(
                "no image is named: set `environment.docker_image` in task.toml, or configure `sandbox.registry`"
                    .to_owned(),
            ));
        }
    };
    let name = format!(
        "lego-{}-{}",
        host_name(&spec.name).to_lowercase(),
        uuid::Uuid::now_v7().simple()
    );
    let known = watcher.of(&name);
    let object = pod::pod(&name, &image, &spec, &options.cluster, &payload.runtime, &owner);
    let object = object.map_err(|error| failed(error.to_string()))?;
    // From here on it is removed whatever happens.
    let mut owned = Owned::new(cluster.pods.clone(), name.clone(), watcher.clone());
    let end = Instant::now() + options.cluster.start_timeout.0;
    let parameters = PostParams::default();
    let made = client::call(options.cluster.start_timeout.0, || {
        cluster.pods.create(&parameters, &object)
    })
    .await;
    match made {
        Ok(pod) => owned.uid = pod.uid(),
        // An earlier attempt got no answer and was carried out: nobody else makes a pod of this name.
        Err(Refused::Exists(_)) => {}
        Err(refused) => return Err(failed(format!("the cluster did not make its pod: {refused}"))),
    }
    let mut waiting = Waiting {
        known: known.clone(),
        end,
        spec: &spec,
        image: &image,
    };
    let says = if options.cluster.runtime_image.is_none() {
        waiting.until(Phase::Loading).await?;
        let loaded = tokio::time::timeout(SENT, load(&cluster, &name, &payload)).await;
        let loaded = loaded.unwrap_or_else(|_| Err(format!("it took longer than {SENT:?}")));
        let says = loaded.map_err(|reason| failed(format!("our files could not be put into its pod: {reason}")))?;
        waiting.until(Phase::Running).await?;
        says
    } else {
        waiting.until(Phase::Running).await?;
        let parameters = LogParams {
            container: Some(LOOK.to_owned()),
            ..LogParams::default()
        };
        let text = client::call(SENT, || cluster.pods.logs(&name, &parameters)).await;
        let text = text.map_err(|refused| failed(format!("the log of {LOOK} could not be read: {refused}")))?;
        described(&text).map_err(failed)?
    };
    let dial = Exec {
        relay: payload.runtime.command(&[RELAY]),
        cluster,
        pod: name,
        known: known.clone(),
    };
    let remote = Remote::join(Arc::new(dial), ports(&spec.network).len());
    let remote = remote.map_err(|error| failed(error.to_string()))?;
    let called = spec.name.clone();
    let entered = match container::enter(remote.link, Some(remote.listeners), spec, &says).await {
        Ok(entered) => entered,
        Err(error) => return Err(super::running::explain(&called, error, &known, &remote.lost)),
    };
    Ok(KubernetesSandbox::new(
        entered,
        owned,
        known,
        remote.lost,
        options.cluster.allow_unisolated,
    ))
}

/// Waits for a pod to come so far.
struct Waiting<'a> {
    known: watch::Receiver<Known>,
    end: Instant,
    spec: &'a SandboxSpec,
    image: &'a str,
}

impl Waiting<'_> {
    async fn until(&mut self, wanted: Phase) -> Result<(), SandboxError> {
        let failed = |reason: String| SandboxError::Start {
            name: self.spec.name.clone(),
            reason,
        };
        let image = |reason: String, last: bool| SandboxError::Image {
            image: self.image.to_owned(),
            reason,
            last,
        };
        let (mut no_image, mut last): (Option<(Instant, String)>, Option<String>) = (None, None);
        loop {
            let phase = match &*self.known.borrow_and_update() {
                Known::Nothing => Phase::Waiting(None),
                Known::Gone => return Err(failed("its pod was deleted".to_owned())),
                Known::Pod(pod) => state::read(pod),
            };
            match phase {
                Phase::Ended(end) => {
                    let hint = if end.reason.contains(RUNTIME) && end.reason.contains("exec") {
                        "; an image without sh, head, tar and gzip needs `sandbox.kubernetes.runtime_image`"
                    } else {
                        ""
                    };
                    return Err(failed(format!(
                        "its pod ended before it was ready: {}{hint}",
                        end.reason
                    )));
                }
                Phase::NoImage { reason, is_final: true } => return Err(image(reason, true)),
                Phase::NoImage { reason, .. } => {
                    // The first words are the registry's; later ones say only that the kubelet waits.
                    no_image.get_or_insert_with(|| (Instant::now(), reason));
                }
                Phase::Running => return Ok(()),
                phase if phase == wanted => return Ok(()),
                Phase::Waiting(words) => last = words.or(last),
                Phase::Loading => {}
            }
            let until = no_image
                .as_ref()
                .map_or(self.end, |(since, _)| (*since + NO_IMAGE).min(self.end));
            if tokio::time::timeout_at(until, self.known.changed()).await.is_err() {
                return Err(match (no_image, last) {
                    (Some((_, reason)), _) => image(reason, false),
                    (None, Some(words)) => failed(format!("its pod was not ready in time: {words}")),
                    (None, None) => failed("its pod was not ready in time".to_owned()),
                });
            }
        }
    }
}

fn described(text: &str) -> Result<Says, String> {
    let read: Result<Described, _> = serde_json::from_str(text.trim());
    read.map(Described::says)
        .map_err(|_| format!("what the image says could not be read: `{}`", text.trim()))
}

/// Sends our files to the init container, which then ends; gives what the image says.
async fn load(cluster: &Cluster, name: &str, payload: &Payload) -> Result<Says, String> {
    let describe = payload.runtime.command(&[DESCRIBE]).join(" ");
    let script = format!(
        "head -c {} | tar -xzf - -C {INSIDE} && {describe} && : >{INSIDE}/whole",
        payload.packed.len()
    );
    let parameters = dial::parameters(RUNTIME);
    let command = ["sh", "-c", &script];
    let opened = client::call(SENT, || cluster.pods.exec(name, command, &parameters)).await;
    let mut process: AttachedProcess = opened.map_err(|refused| refused.to_string())?;
    let (Some(mut input), Some(output), Some(errors)) = (process.stdin(), process.stdout(), process.stderr()) else {
        return Err("an exec without streams".to_owned());
    };
    let packed = Arc::clone(&payload.packed);
    // The older form of the protocol has no end of input: so many bytes are read, and the stream is kept until then.
    let sending = tokio::spawn(async move {
        let sent = input.write_all(&packed).await;
        (input, sent)
    });
    let mut line = String::new();
    let mut output = BufReader::new(output);
    // Both are read, so that neither holds up the other; the first line is all that is waited for.
    let complaints = tokio::spawn(async move {
        let mut words = Vec::new();
        let _ = errors.take(SHOWN).read_to_end(&mut words).await;
        String::from_utf8_lossy(&words).trim().to_owned()
    });
    let read = output.read_line(&mut line).await;
    sending.abort();
    if matches!(read, Ok(1..)) {
        complaints.abort();
        return described(&line);
    }
    Err(tokio::time::timeout(LAST_WORDS, complaints)
        .await
        .ok()
        .and_then(Result::ok)
        .filter(|words| !words.is_empty())
        .unwrap_or_else(|| "it ended without a word".to_owned()))
}
