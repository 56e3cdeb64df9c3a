//! What tests against local servers have in common.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

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

    /// With the certificate of `localhost` that the authority in `authority.pem` has signed.
    pub(crate) async fn start_with_tls(router: axum::Router) -> Self {
        let chain = CertificateDer::pem_file_iter(fixture("server.pem"))
            .unwrap()
            .collect::<Result<Vec<_>, _>>()
            .unwrap();
        let key = PrivateKeyDer::from_pem_file(fixture("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        // By other names too, which its certificate does not have.
        let listener = tokio::net::TcpListener::bind("0.0.0.0:0").await.unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, router) = (acceptor.clone(), router.clone());
                tokio::spawn(async move {
                    // Who does not trust it hangs up.
                    if let Ok(stream) = acceptor.accept(stream).await {
                        let service = TowerToHyperService::new(router);
                        let served = hyper::server::conn::http1::Builder::new();
                        let _ = served.serve_connection(TokioIo::new(stream), service).await;
                    }
                });
            }
        });
        Self { url, task }
    }
}

/// A file of the tests with TLS.
pub(crate) fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/inference/remote/fixtures")
        .join(name)
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
