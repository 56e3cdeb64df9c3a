//! Clients for HTTP, and whom they trust. Every client of this program is made here: TLS needs a provider of its
//! cryptography, and an address without TLS no certificates at all.

mod objects;

use std::path::Path;
use std::sync::{Arc, Once};

use reqwest::{Certificate, Client, ClientBuilder};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use rustls::{ClientConfig, RootCertStore};

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
    let certificates = certificates(path)?.into_iter().map(|der| Certificate::from_der(&der));
    let certificates = certificates.collect::<Result<Vec<_>, _>>();
    Ok(builder().tls_certs_merge(certificates.map_err(|error| wrong(path, &error))?))
}

/// The same trust, for connections that are made otherwise.
///
/// # Errors
/// The file, and what is wrong with it.
pub(crate) fn trust(ca_file: Option<&Path>) -> Result<Arc<ClientConfig>, String> {
    let mut roots = RootCertStore::empty();
    // Those of the system that cannot be read vouch for nobody.
    roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    if let Some(path) = ca_file {
        for certificate in certificates(path)? {
            roots.add(certificate).map_err(|error| wrong(path, &error))?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    Ok(Arc::new(config.with_root_certificates(roots).with_no_client_auth()))
}

/// The certificates of a file, at least one.
fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, String> {
    let text = std::fs::read(path).map_err(|error| wrong(path, &error))?;
    let certificates = CertificateDer::pem_slice_iter(&text).collect::<Result<Vec<_>, _>>();
    let certificates = certificates.map_err(|error| wrong(path, &error))?;
    if certificates.is_empty() {
        return Err(wrong(path, &"expected certificates in PEM, found none"));
    }
    Ok(certificates)
}

fn wrong(path: &Path, reason: &dyn std::fmt::Display) -> String {
    format!("{}: {reason}", path.display())
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
