//! What tests against local servers have in common.

use std::time::Duration;

use tokio::task::JoinHandle;

use super::{Finish, Generation, GenerationEvent, TokenDelta};

/// A local server, until the test ends.
pub(crate) struct LocalServer {
    /// Such as `http://127.0.0.1:8000`.
    pub(crate) url: String,
    task: JoinHandle<()>,
}

impl LocalServer {
    pub(crate) async fn start(router: axum::Router) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let task = tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { url, task }
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Everything that a generation sends.
pub(crate) async fn drain(mut generation: Generation) -> (Vec<TokenDelta>, Finish) {
    let mut deltas = Vec::new();
    loop {
        let event = tokio::time::timeout(Duration::from_secs(20), generation.next()).await;
        match event.unwrap().unwrap() {
            GenerationEvent::Tokens(delta) => deltas.push(delta),
            GenerationEvent::Finished(finish) => return (deltas, finish),
        }
    }
}
