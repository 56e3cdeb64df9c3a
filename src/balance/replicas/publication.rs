//! New weights for replicas: all at once, or one after the other while the rest go on sampling.
//!
//! A replica that loads is given no turns; those of its sessions wait. What it says that it serves afterwards is what counts:
//! one that does not serve the new weights is out, and is given them before it is back. No other way leads back.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;

use super::{Replica, Set, lock};
use crate::inference::EngineError;
use crate::trajectory::PolicyVersion;

/// Generations end within their budgets of tokens.
const DRAIN: Duration = Duration::from_mins(30);

/// Weights that replicas are to serve.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Publication {
    version: PolicyVersion,
    folder: PathBuf,
}

/// What a replica was given.
#[derive(Debug, Default)]
pub(super) struct Given {
    /// It has said that it serves these.
    serves: Option<PolicyVersion>,
    /// It was told to read this folder, and may still do so.
    reads: Option<PathBuf>,
}

impl Set {
    /// Has all replicas serve these weights, and says which failed. `drains`: what is being sampled ends first.
    pub(super) async fn publish(
        self: &Arc<Self>,
        version: PolicyVersion,
        folder: &Path,
        drains: bool,
    ) -> Result<(), EngineError> {
        self.wait_for_one(None, &[]).await?;
        let _alone = self.publishing.lock().await;
        let publication = Publication {
            version,
            folder: folder.to_owned(),
        };
        // Before it is looked who is up: who comes back from now on has these.
        *lock(&self.published) = Some(publication.clone());
        let up: Vec<usize> = self.up().map(|(at, _)| at).collect();
        let give = |at| self.give(at, &publication, drains);
        let results = if self.rolling && self.works() {
            let mut results = Vec::new();
            for at in up {
                results.push(give(at).await);
            }
            results
        } else {
            join_all(up.into_iter().map(give)).await
        };
        let taken = results.iter().filter(|result| result.is_ok()).count();
        match results.into_iter().find_map(Result::err) {
            Some(error) if taken == 0 => Err(error),
            _ => Ok(()),
        }
    }

    /// Whether anything is being sampled that others could go on with.
    fn works(&self) -> bool {
        self.replicas.iter().any(|replica| replica.gate.inside() > 0)
    }

    /// Whether a replica loads weights.
    pub(super) fn loads(&self) -> bool {
        self.replicas.iter().any(|replica| replica.gate.is_closed())
    }

    /// Has one replica serve these weights. Where it fails it is out before its gate is open again.
    async fn give(self: &Arc<Self>, at: usize, publication: &Publication, drains: bool) -> Result<(), EngineError> {
        let replica = &self.replicas[at];
        let given = {
            let _alone = replica.loading.lock().await;
            let _closed = replica.gate.close();
            let given = async {
                if replica.out.load(Ordering::Acquire) {
                    return Err(EngineError::lost(&format!("{} was taken out", replica.name)));
                }
                if replica.serves() == Some(publication.version) {
                    return Ok(());
                }
                if drains {
                    let emptied = tokio::time::timeout(DRAIN, replica.gate.emptied()).await;
                    emptied.map_err(|_| {
                        let left = replica.gate.inside();
                        EngineError::lost(&format!("{left} of its generations did not end within {DRAIN:?}"))
                    })?;
                }
                replica.load(publication).await
            };
            let given = given.await;
            match &given {
                Ok(()) => self.notice_weights(at),
                Err(error) => self.lose(at, error),
            }
            given
        };
        self.changed.notify_waiters();
        given
    }

    /// Makes sure that a replica is well and serves what was published last: one that was started anew has forgotten it.
    /// Then it is back.
    pub(super) async fn renew(&self, at: usize) -> Result<(), EngineError> {
        let replica = &self.replicas[at];
        let _alone = replica.loading.lock().await;
        loop {
            let wanted = lock(&self.published).clone();
            let served = replica.engine.served().await;
            match &wanted {
                None => {
                    served?;
                }
                Some(publication) => match served {
                    Err(error @ EngineError::Unavailable { .. }) => return Err(error),
                    Ok(served) if served == publication.version && replica.serves() == Some(served) => {}
                    Ok(_) | Err(_) => replica.load(publication).await?,
                },
            }
            let published = lock(&self.published);
            // Else newer ones came meanwhile, and it was not among those that were given them.
            if *published == wanted {
                replica.out.store(false, Ordering::Release);
                return Ok(());
            }
        }
    }

    /// What older weights have cached there is worth nothing, once it serves others.
    pub(super) fn notice_weights(&self, at: usize) {
        let replica = &self.replicas[at];
        let version = replica.engine.version();
        if std::mem::replace(&mut *lock(&replica.cached), version) == version {
            return;
        }
        lock(&self.placement).forget_cache(at as u32);
        if let Some(hold) = &replica.hold {
            hold.forget_cache();
        }
    }

    /// Folders that a replica reads, or will be told to read.
    pub(super) fn folders(&self) -> Vec<PathBuf> {
        let published = lock(&self.published).as_ref().map(|published| published.folder.clone());
        let read = self.replicas.iter().filter_map(|one| lock(&one.given).reads.clone());
        published.into_iter().chain(read).collect()
    }
}

impl Replica {
    /// The weights that it was last given and has said to serve.
    fn serves(&self) -> Option<PolicyVersion> {
        lock(&self.given).serves
    }

    /// Has it load these weights, and asks it what it serves.
    async fn load(&self, publication: &Publication) -> Result<(), EngineError> {
        *lock(&self.given) = Given {
            serves: None,
            reads: Some(publication.folder.clone()),
        };
        let version = publication.version;
        let loaded = async {
            self.engine.publish(version, &publication.folder).await?;
            match self.engine.served().await? {
                served if served == version => Ok(()),
                other => Err(EngineError::Rejected(format!(
                    "it was given the weights {version}, and says that it serves {other}"
                ))),
            }
        };
        let loaded = loaded.await;
        *lock(&self.given) = Given {
            serves: loaded.is_ok().then_some(version),
            reads: None,
        };
        loaded
    }
}
