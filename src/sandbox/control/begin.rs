//! The first exchange with an init: its setup, and whether it then serves.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use super::link::Link;
use super::listener::Listener;
use super::wire::{Reply, Request, Setup};

/// How long an init may take until it is ready.
const READY: Duration = Duration::from_secs(30);

/// How an init answered its setup.
pub(in crate::sandbox) enum Started {
    /// It serves.
    Ready {
        landlock: bool,
        /// In the order asked for; none where the init is elsewhere.
        listeners: Vec<Listener>,
        /// Why there is no network that leads nowhere, where one was asked for.
        open: Option<String>,
    },
    /// It could not; `refused` where the system does not allow such a sandbox.
    Failed { reason: String, refused: bool },
    /// It did not answer within this time.
    Silent(Duration),
    /// It ended.
    Gone,
}

/// Sends the setup and waits until the init is ready.
pub(in crate::sandbox) async fn start(link: &Arc<Link>, setup: Setup) -> io::Result<Started> {
    let ready = async {
        link.send(&Request::Setup(Box::new(setup)), None).await?;
        link.receive().await
    };
    match tokio::time::timeout(READY, ready).await {
        Err(_) => Ok(Started::Silent(READY)),
        Ok(answer) => match answer? {
            Some((Reply::Ready { landlock, open }, listeners)) => {
                tokio::spawn(Arc::clone(link).deliver());
                let listeners = listeners.into_iter().map(Listener::Socket).collect();
                Ok(Started::Ready {
                    landlock,
                    listeners,
                    open,
                })
            }
            Some((Reply::Failed { reason, refused }, _)) => Ok(Started::Failed { reason, refused }),
            _ => Ok(Started::Gone),
        },
    }
}
