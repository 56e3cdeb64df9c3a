//! Asks a gateway that runs for its replicas.

use std::time::Duration;

use super::ReplicaRow;

/// Longest wait for its answer.
const PATIENCE: Duration = Duration::from_secs(10);

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum StatusError {
    /// It cannot be reached.
    #[error("{url} cannot be reached: {reason}")]
    Unreachable {
        /// What was asked.
        url: String,
        /// Why not.
        reason: String,
    },
    /// Something else answers.
    #[error("{url} answers {status}, and no list of replicas: expected the address of a `lego balance`")]
    NoGateway {
        /// What was asked.
        url: String,
        /// What it answered.
        status: u16,
    },
}

/// The replicas of the gateway at this address.
///
/// # Errors
/// It does not answer, or is none.
pub async fn replicas_of(url: &str) -> Result<Vec<ReplicaRow>, StatusError> {
    let asked = format!("{}/replicas", url.trim_end_matches('/'));
    let unreachable = |error: reqwest::Error| StatusError::Unreachable {
        url: asked.clone(),
        reason: deepest(&error),
    };
    let client = crate::http_client::plain()
        .timeout(PATIENCE)
        .build()
        .map_err(unreachable)?;
    let response = client.get(&asked).send().await.map_err(unreachable)?;
    let status = response.status().as_u16();
    response
        .json()
        .await
        .map_err(|_| StatusError::NoGateway { url: asked, status })
}

/// What an error comes down to: those above it only say that something failed.
fn deepest(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
