//! What is the same for every container whose process 1 is our init, whoever made it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use super::layout::Layout;
use super::link::Link;
use super::listener::Listener;
use super::listing::Listing;
use super::wire::{Mode, Setup};
use super::{Control, Started, ports, start};
use crate::sandbox::owner::host_name;
use crate::sandbox::{SandboxError, SandboxSpec, WORKDIR};

/// What an image says of the commands in it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::sandbox) struct Says {
    /// What it sets for every command.
    pub(in crate::sandbox) env: BTreeMap<String, String>,
    /// Who commands run as; `None` is root.
    pub(in crate::sandbox) user: Option<String>,
    pub(in crate::sandbox) workdir: Option<String>,
}

/// A container that serves.
pub(in crate::sandbox) struct Entered {
    pub(in crate::sandbox) control: Control,
    /// The working folder, before anything has run.
    pub(in crate::sandbox) before: Listing,
    /// Why its commands cannot be kept from its network, where they were to be.
    pub(in crate::sandbox) open: Option<String>,
}

/// Sets the init up and looks at the working folder. `elsewhere` are the listeners of an init on another kernel, whose
/// container has a network.
pub(in crate::sandbox) async fn enter(
    link: Arc<Link>,
    elsewhere: Option<Vec<Listener>>,
    spec: SandboxSpec,
    image: &Says,
) -> Result<Entered, SandboxError> {
    let failed = |reason: String| SandboxError::Start {
        name: spec.name.clone(),
        reason,
    };
    let workdir = spec.workdir.clone().or_else(|| image.workdir.clone());
    let workdir = workdir.unwrap_or_else(|| WORKDIR.to_owned());
    let setup = Setup {
        name: host_name(&spec.name),
        mode: Mode::Container,
        scratch: PathBuf::from("/"),
        lower: None,
        workdir: workdir.clone(),
        read_only: Vec::new(),
        listen: ports(&spec.network),
        nowhere: elsewhere.is_some(),
        proxy_port: None,
        user: Some(image.user.clone().unwrap_or_else(|| "0".to_owned())),
        memory: None,
        pids: None,
        disk: spec.limits.disk,
        lifetime_ms: u64::try_from(spec.lifetime.as_millis()).unwrap_or(u64::MAX),
    };
    let (own, open) = match start(&link, setup).await.map_err(|error| failed(error.to_string()))? {
        Started::Ready { listeners, open, .. } => (listeners, open),
        Started::Failed { reason, .. } => return Err(failed(reason)),
        Started::Silent(waited) => {
            return Err(SandboxError::Timeout {
                name: spec.name,
                waited,
            });
        }
        Started::Gone => return Err(failed("its process 1 ended before it was ready".to_owned())),
    };
    let layout = Layout {
        mode: Mode::Container,
        scratch: PathBuf::from("/"),
        workdir,
    };
    let control = Control::new(spec, layout, &image.env, link, elsewhere.unwrap_or(own));
    let before = control.list(&control.layout.workdir).await?;
    Ok(Entered { control, before, open })
}
