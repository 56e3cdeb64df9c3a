//! Ctrl-C, twice: the first asks for an orderly end, the second ends at once.

use tokio_util::sync::CancellationToken;

/// What an interrupted command should do.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stop {
    /// Take no more work, finish or flush what runs.
    pub(crate) finish: CancellationToken,
    /// Leave at once.
    pub(crate) now: CancellationToken,
}

impl Stop {
    /// Listens to SIGINT and SIGTERM for as long as the runtime lives.
    pub(crate) fn on_signals() -> std::io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        let stop = Self::default();
        let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let told = stop.clone();
        tokio::spawn(async move {
            for token in [&told.finish, &told.now] {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
                token.cancel();
            }
        });
        Ok(stop)
    }
}
