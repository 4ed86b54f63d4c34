//! TLS towards clients: a certificate that is replaced without a restart, and client certificates.

mod certificate;
mod handshake;
mod material;
mod plain_http;
mod stream;
mod turns;
mod watch;

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use arc_swap::ArcSwap;
use http::Request;
use hyper::service::Service;
use rustls::{ServerConfig, pki_types::CertificateDer};

use crate::{auth::CertificateNames, telemetry::Telemetry};
use material::TlsMaterial;
pub use material::{ReadTlsFile, TlsFault, TlsFileRole, TlsFiles};
pub use stream::ClientStream;
use turns::HandshakeTurns;
pub use watch::watch_files;

/// TLS of a listener. Cheap to clone: all clones have the present certificate.
#[derive(Clone)]
pub struct ListenerTls {
    shared: Arc<SharedTls>,
    /// `true` if clients are asked for a certificate.
    asks_clients: bool,
    /// Turns of the handshakes of this listener.
    turns: HandshakeTurns,
    /// The counters of handshakes that fail. `None` if nobody counts them.
    telemetry: Option<Telemetry>,
}

/// State that both listeners share.
struct SharedTls {
    files: TlsFiles,
    material: ArcSwap<TlsMaterial>,
}

impl fmt::Debug for ListenerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ListenerTls")
            .field("files", &self.shared.files)
            .finish_non_exhaustive()
    }
}

impl ListenerTls {
    /// Reads and checks the files. Clients are asked for a certificate if the files name a CA.
    pub fn load(files: TlsFiles, read_file: &ReadTlsFile<'_>) -> Result<Self, TlsFault> {
        let material = TlsMaterial::load(&files, read_file)?;
        Ok(Self {
            asks_clients: files.client_ca.is_some(),
            shared: Arc::new(SharedTls {
                files,
                material: ArcSwap::from_pointee(material),
            }),
            turns: HandshakeTurns::for_this_machine(),
            telemetry: None,
        })
    }

    /// Returns the same TLS, whose handshakes are counted if they fail.
    #[must_use]
    pub fn counting_failures(mut self, telemetry: &Telemetry) -> Self {
        self.telemetry = Some(telemetry.clone());
        self
    }

    /// Returns the same TLS for the admin listener, which asks nobody for a certificate. A storm of clients' handshakes
    /// does not delay those of operators.
    #[must_use]
    pub fn for_operators(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            asks_clients: false,
            turns: HandshakeTurns::for_operators(),
            telemetry: self.telemetry.clone(),
        }
    }

    /// Takes the certificate of `newer`, which was loaded later. New handshakes use it. Other files are not taken.
    pub fn take_newer(&self, newer: &Self) {
        if self.shared.files == newer.shared.files {
            self.shared.material.store(newer.shared.material.load_full());
        }
    }

    /// Returns the files.
    pub fn files(&self) -> &TlsFiles {
        &self.shared.files
    }

    /// Returns the present certificate.
    pub fn certificate(&self) -> CertificateDer<'static> {
        self.shared.material.load().certificate.clone()
    }

    /// Returns the end of the present certificate's validity, since 1970. `None` if it cannot be read.
    pub fn expires_at(&self) -> Option<Duration> {
        self.shared.material.load().expires_at
    }

    /// Returns the first host name of the present certificate. `None` if it has only patterns and addresses.
    pub fn host_name(&self) -> Option<String> {
        self.shared.material.load().host_name.clone()
    }

    /// Returns the settings of the next handshake.
    fn current_config(&self) -> Arc<ServerConfig> {
        let material = self.shared.material.load();
        Arc::clone(if self.asks_clients {
            &material.for_clients
        } else {
            &material.for_operators
        })
    }
}

/// Names of a connection's client certificate, known once the handshake is done.
type KnownNames = Arc<OnceLock<CertificateNames>>;

/// A service that adds the names of the connection's client certificate to the extensions of each request.
#[derive(Clone, Debug)]
pub struct CertificateService<S> {
    names: KnownNames,
    service: S,
}

impl<S> CertificateService<S> {
    /// Wraps the service of one connection.
    pub fn new(stream: &ClientStream, service: S) -> Self {
        let names = stream.certificate_names();
        Self { names, service }
    }
}

impl<S, B> Service<Request<B>> for CertificateService<S>
where
    S: Service<Request<B>>,
{
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn call(&self, mut request: Request<B>) -> S::Future {
        if let Some(names) = self.names.get() {
            request.extensions_mut().insert(names.clone());
        }
        self.service.call(request)
    }
}
