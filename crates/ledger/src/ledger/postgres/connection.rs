//! Connections to the database: their pool, and their TLS.

use std::{fs, io, sync::Arc, time::Duration};

use deadpool_postgres::{Manager, ManagerConfig, Object, Pool, RecyclingMethod, Runtime};
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime, pem::PemObject},
};
use tokio_postgres::{Client, NoTls, config::SslMode};
use tokio_postgres_rustls::MakeRustlsConnect;

use super::{
    address::{CONNECT_TIMEOUT, DatabaseAddress},
    error::PostgresError,
};
use crate::system_tls::system_tls_config;

/// The connections of one process.
const CONNECTIONS_MAX: usize = 10;
/// Pause before a database that cannot be reached is asked again.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(50);
/// Timeout of the wait for a free connection.
const POOL_TIMEOUT: Duration = Duration::from_secs(5);

/// Builds the pool of connections to a database. It connects when a connection is first needed.
pub(super) fn new_pool(address: &DatabaseAddress) -> io::Result<Pool> {
    let recycling = ManagerConfig {
        recycling_method: RecyclingMethod::Fast,
    };
    let config = address.config.clone();
    let manager = if config.get_ssl_mode() == SslMode::Disable {
        Manager::from_config(config, NoTls, recycling)
    } else {
        Manager::from_config(config, MakeRustlsConnect::new(tls_config(address)?), recycling)
    };
    Pool::builder(manager)
        .max_size(CONNECTIONS_MAX)
        .runtime(Runtime::Tokio1)
        .create_timeout(Some(CONNECT_TIMEOUT))
        .wait_timeout(Some(POOL_TIMEOUT))
        .build()
        .map_err(io::Error::other)
}

/// Builds the TLS of connections to a database.
pub(super) fn tls_config(address: &DatabaseAddress) -> io::Result<ClientConfig> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = || {
        ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)
    };
    if !address.verifies {
        let verifier = Arc::new(AnyCertificate(Arc::clone(&provider)));
        return Ok(builder()?
            .dangerous()
            .with_custom_certificate_verifier(verifier)
            .with_no_client_auth());
    }
    let Some(path) = &address.root_certificates else {
        return system_tls_config().map_err(io::Error::other);
    };
    let mut roots = RootCertStore::empty();
    let text = fs::read(path)?;
    for certificate in CertificateDer::pem_slice_iter(&text) {
        roots
            .add(certificate.map_err(io::Error::other)?)
            .map_err(io::Error::other)?;
    }
    let verifier = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let verifier = verifier.build().map_err(io::Error::other)?;
    Ok(builder()?.with_webpki_verifier(verifier).with_no_client_auth())
}

/// Accepts every certificate, for `ledger.tls = "insecure"`. It still proves that the other side has its key.
#[derive(Debug)]
struct AnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

/// A connection of the pool. It returns to the pool only after [`release`](Self::release): one that is dropped earlier
/// may have an open transaction or an answer on its way, and is closed.
pub(super) struct DatabaseConnection(Option<Object>);

impl DatabaseConnection {
    /// Takes a connection from the pool, or connects.
    pub(super) async fn take(pool: &Pool) -> Result<Self, PostgresError> {
        Ok(Self(Some(pool.get().await?)))
    }

    /// Returns the client of the connection.
    pub(super) fn client(&mut self) -> Result<&mut Client, PostgresError> {
        // It is there until `release`, which takes the connection.
        match &mut self.0 {
            Some(object) => Ok(object),
            None => Err(PostgresError::Silent),
        }
    }

    /// Returns the connection to the pool. All its statements must have been answered.
    pub(super) fn release(mut self) {
        drop(self.0.take());
    }
}

impl Drop for DatabaseConnection {
    fn drop(&mut self) {
        if let Some(object) = self.0.take() {
            drop(Object::take(object));
        }
    }
}
