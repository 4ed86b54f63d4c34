//! TLS towards other machines, with the certificate authorities of the system.

use std::sync::Arc;

use rustls::{ClientConfig, RootCertStore, crypto::aws_lc_rs};
use rustls_platform_verifier::BuilderVerifierExt as _;

/// Configures TLS 1.2 and 1.3 with the platform's roots, or Mozilla's if the platform has none.
pub fn system_tls_config() -> Result<ClientConfig, rustls::Error> {
    // The crypto provider is explicit: rustls panics if the build contains two and none is chosen.
    let builder = || {
        ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
    };
    // The platform's roots include those of a company's inspection proxy.
    if let Ok(config) = builder()?.with_platform_verifier() {
        return Ok(config.with_no_client_auth());
    }
    tracing::info!("the system has no CA certificates: using the built-in ones");
    let roots: RootCertStore = webpki_roots::TLS_SERVER_ROOTS.iter().cloned().collect();
    Ok(builder()?.with_root_certificates(roots).with_no_client_auth())
}
