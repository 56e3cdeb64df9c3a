//! Clients for HTTP, and whom they trust. Every client of this program is made here: TLS needs a provider of its
//! cryptography, and an address without TLS no certificates at all.

mod objects;

use std::path::Path;
use std::sync::Once;

use reqwest::{Certificate, Client, ClientBuilder};

pub(crate) use objects::object_store;

/// A client for addresses without TLS, such as those of this machine.
pub(crate) fn plain() -> ClientBuilder {
    // No certificates are looked for: a small image has none.
    builder().tls_certs_only([])
}

/// A client for addresses with TLS. It trusts the authorities that the system does (or that the file in `SSL_CERT_FILE`
/// holds), and those in `ca_file`.
///
/// # Errors
/// The file, and what is wrong with it.
pub(crate) fn trusting(ca_file: Option<&Path>) -> Result<ClientBuilder, String> {
    let Some(path) = ca_file else { return Ok(builder()) };
    let wrong = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
    let text = std::fs::read(path).map_err(|error| wrong(&error))?;
    let certificates = Certificate::from_pem_bundle(&text).map_err(|error| wrong(&error))?;
    if certificates.is_empty() {
        return Err(wrong(&"expected certificates in PEM, found none"));
    }
    Ok(builder().tls_certs_merge(certificates))
}

fn builder() -> ClientBuilder {
    provide_cryptography();
    Client::builder().no_proxy()
}

fn provide_cryptography() {
    static PROVIDER: Once = Once::new();
    PROVIDER.call_once(|| {
        // Where another one is there already, that one serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
}
