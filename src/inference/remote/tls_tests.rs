//! A server with a certificate that an authority of its own has signed.

use std::time::Duration;

use super::RemoteOptions;
use crate::inference::testing::{LocalServer, fixture};
use crate::inference::{EngineError, HostedApi, VllmEngine};
use crate::trajectory::PolicyVersion;

async fn models() -> &'static str {
    r#"{"data": [{"id": "smol", "max_model_len": 2048}]}"#
}

fn router() -> axum::Router {
    axum::Router::new()
        .route("/v1/models", axum::routing::get(models))
        .route(
            "/weight_info",
            axum::routing::get(|| async { r#"{"weight_version": "default"}"# }),
        )
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
    let server = LocalServer::start_with_tls(router()).await;
    let url = server.url.clone();
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
