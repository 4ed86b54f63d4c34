//! Certificates of a test, and TLS clients.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
};

use antiphon::server::tls::{ListenerTls, TlsFiles};
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, SanType, date_time_ymd,
};
use rustls::{
    ClientConfig, RootCertStore, SupportedProtocolVersion,
    crypto::aws_lc_rs,
    pki_types::{CertificateDer, PrivateKeyDer, ServerName},
    version::{TLS12, TLS13},
};
use tokio::net::TcpStream;
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::wire::{Conn, PATIENCE};

/// The versions of TLS that a client may offer.
pub static BOTH_VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS13, &TLS12];
/// Only the older version.
pub static ONLY_1_2: [&SupportedProtocolVersion; 1] = [&TLS12];
/// Only the newer version.
pub static ONLY_1_3: [&SupportedProtocolVersion; 1] = [&TLS13];

/// Host name of the listeners' certificates.
pub const HOST: &str = "llm.internal";

/// A certificate with its key.
pub struct Certified {
    pub pem: String,
    pub der: CertificateDer<'static>,
    pub key: KeyPair,
}

/// A CA.
pub struct Authority {
    pub pem: String,
    pub der: CertificateDer<'static>,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates a CA with this name.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Self {
            pem: own.pem(),
            der: own.der().clone(),
            issuer: Issuer::new(params, key),
        }
    }

    /// Creates a CA whose own certificate is for these names.
    pub fn self_signed(names: &[SanType]) -> Certified {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        let own = params.self_signed(&key).unwrap();
        Certified {
            pem: own.pem(),
            der: own.der().clone(),
            key,
        }
    }

    /// Issues a certificate for these names, valid until the end of this year.
    pub fn issue(&self, names: &[SanType], year: i32) -> Certified {
        let mut params = CertificateParams::default();
        params.not_after = date_time_ymd(year, 12, 31);
        self.sign(params, names)
    }

    /// Issues a certificate for these names that may not be a server's.
    pub fn issue_for_client(&self, names: &[SanType]) -> Certified {
        let mut params = CertificateParams::default();
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        self.sign(params, names)
    }

    fn sign(&self, mut params: CertificateParams, names: &[SanType]) -> Certified {
        params.subject_alt_names = names.to_vec();
        let key = KeyPair::generate().unwrap();
        let issued = params.signed_by(&key, &self.issuer).unwrap();
        Certified {
            pem: issued.pem(),
            der: issued.der().clone(),
            key,
        }
    }

    /// Issues a certificate for the listeners.
    pub fn issue_for_listener(&self) -> Certified {
        self.issue(&[dns(HOST)], 2120)
    }
}

/// Returns a DNS name.
pub fn dns(name: &str) -> SanType {
    SanType::DnsName(name.try_into().unwrap())
}

/// The files of a listener's TLS, in a folder that is removed at the end.
pub struct TlsFolder {
    folder: tempfile::TempDir,
    pub files: TlsFiles,
    pub authority: Authority,
}

impl TlsFolder {
    /// Writes a certificate of a new CA. Clients are asked for none.
    pub fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let files = TlsFiles {
            certificate: folder.path().join("fullchain.pem"),
            key: folder.path().join("privkey.pem"),
            client_ca: None,
            requires_client_certificate: false,
        };
        let authority = Authority::new("servers");
        let new = Self {
            folder,
            files,
            authority,
        };
        new.write(&new.authority.issue_for_listener());
        new
    }

    /// Asks clients for certificates of this CA.
    pub fn with_client_ca(mut self, authority: &Authority, is_required: bool) -> Self {
        let path = self.path("clients.pem");
        std::fs::write(&path, &authority.pem).unwrap();
        self.files.client_ca = Some(path);
        self.files.requires_client_certificate = is_required;
        self
    }

    /// Returns the path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Replaces certificate and key.
    pub fn write(&self, certified: &Certified) {
        std::fs::write(&self.files.certificate, &certified.pem).unwrap();
        std::fs::write(&self.files.key, certified.key.serialize_pem()).unwrap();
    }

    /// Loads the files.
    pub fn load(&self) -> ListenerTls {
        ListenerTls::load(self.files.clone(), &|path: &Path| std::fs::read_to_string(path)).unwrap()
    }

    /// Returns a client that trusts the CA of the listeners.
    pub fn client(&self) -> TlsClient<'_> {
        TlsClient {
            authority: &self.authority,
            versions: &BOTH_VERSIONS,
            alpn: &["http/1.1"],
            certificate: None,
        }
    }
}

/// A TLS client.
#[derive(Clone)]
pub struct TlsClient<'a> {
    pub authority: &'a Authority,
    pub versions: &'static [&'static SupportedProtocolVersion],
    pub alpn: &'static [&'static str],
    pub certificate: Option<&'a Certified>,
}

impl<'a> TlsClient<'a> {
    /// Presents a certificate.
    pub fn presenting(self, certificate: &'a Certified) -> Self {
        Self {
            certificate: Some(certificate),
            ..self
        }
    }

    /// Returns the settings of rustls.
    pub fn config(&self) -> ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.authority.der.clone()).unwrap();
        let builder = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_protocol_versions(self.versions)
            .unwrap()
            .with_root_certificates(roots);
        let mut config = match self.certificate {
            Some(own) => {
                let key = PrivateKeyDer::try_from(own.key.serialize_der()).unwrap();
                builder.with_client_auth_cert(vec![own.der.clone()], key).unwrap()
            }
            None => builder.with_no_client_auth(),
        };
        config.alpn_protocols = self.alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
        config
    }

    /// Connects and shakes hands.
    pub async fn connect(&self, address: SocketAddr) -> std::io::Result<TlsStream<TcpStream>> {
        let tcp = TcpStream::connect(address).await.unwrap();
        tcp.set_nodelay(true).unwrap();
        let connector = TlsConnector::from(Arc::new(self.config()));
        let shaken = connector.connect(ServerName::try_from(HOST).unwrap(), tcp);
        tokio::time::timeout(PATIENCE, shaken)
            .await
            .expect("a handshake took too long")
    }

    /// Connects for requests of HTTP/1.
    pub async fn open(&self, address: SocketAddr) -> Conn<TlsStream<TcpStream>> {
        Conn::within(self.connect(address).await.unwrap(), PATIENCE)
    }

    /// Sends one request over its own connection. Returns the status, or 0 if the connection ended without an answer.
    ///
    /// With TLS 1.3 a client learns only then that its certificate was refused.
    pub async fn status(&self, address: SocketAddr, request: impl AsRef<[u8]>) -> u16 {
        let Ok(stream) = self.connect(address).await else {
            return 0;
        };
        let mut conn = Conn::within(stream, PATIENCE);
        conn.send(request).await;
        if conn.is_open().await {
            conn.response().await.status()
        } else {
            0
        }
    }
}
