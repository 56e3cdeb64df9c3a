//! A server with a certificate that an authority of its own has signed.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::TlsAcceptor;

use super::RemoteOptions;
use crate::inference::{EngineError, HostedApi, VllmEngine};
use crate::trajectory::PolicyVersion;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("src/inference/remote/fixtures")
        .join(name)
}

async fn models() -> &'static str {
    r#"{"data": [{"id": "smol", "max_model_len": 2048}]}"#
}

/// Tells its address.
async fn start() -> String {
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
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let router = axum::Router::new()
        .route("/v1/models", axum::routing::get(models))
        .route(
            "/weight_info",
            axum::routing::get(|| async { r#"{"weight_version": "default"}"# }),
        );
    tokio::spawn(async move {
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
    format!("https://localhost:{port}")
}

fn options(endpoint: &str, ca_file: Option<&str>) -> RemoteOptions {
    RemoteOptions {
        endpoint: endpoint.to_owned(),
        api_key: Some("sesame".to_owned()),
        ca_file: ca_file.map(fixture),
        experts: None,
        model: None,
        version: PolicyVersion::default(),
        patience: Duration::from_secs(20),
    }
}

#[tokio::test]
async fn a_server_of_an_authority_that_is_named_is_trusted_and_no_other() {
    let url = start().await;
    let api = HostedApi::connect(options(&url, Some("authority.pem"))).await.unwrap();
    assert_eq!(api.model(), "smol");
    let engine = VllmEngine::connect(options(&url, Some("authority.pem"))).await.unwrap();
    assert_eq!(engine.window(), 2048);
    // Nobody has vouched for it.
    let refused = HostedApi::connect(options(&url, None)).await.err().unwrap();
    let said = refused.to_string();
    assert!(
        matches!(refused, EngineError::Unavailable { .. } | EngineError::Invalid(_)),
        "{said}"
    );
    if matches!(refused, EngineError::Unavailable { .. }) {
        assert!(said.contains("engine.ca_file"), "{said}");
    }
    // It is another host's certificate there.
    let elsewhere = url.replace("localhost", "127.0.0.2");
    let refused = HostedApi::connect(options(&elsewhere, Some("authority.pem")))
        .await
        .err()
        .unwrap();
    assert!(matches!(refused, EngineError::Unavailable { .. }), "{refused}");
    // A file that holds no certificate.
    let refused = HostedApi::connect(options(&url, Some("server.key")))
        .await
        .err()
        .unwrap();
    assert!(refused.to_string().contains("engine.ca_file: "), "{refused}");
}
