//! Certificate, key and CA of the listeners: read from files, checked, and turned into settings of rustls.

use std::{
    fmt, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use rustls::{
    RootCertStore, ServerConfig,
    crypto::{CryptoProvider, aws_lc_rs},
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::{NoServerSessionStorage, WebPkiClientVerifier},
    sign::{CertifiedKey, SingleCertAndKey},
    version::{TLS12, TLS13},
};

use super::certificate;
use crate::{auth::CertificateName, server::regular_file::FILE_BYTES_MAX};

/// Files of the listeners' TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// File with the certificate, and after it those of the CAs between it and a root. PEM.
    pub certificate: PathBuf,
    /// File with the private key of the certificate. PEM, without a password.
    pub key: PathBuf,
    /// File with the CAs of client certificates. `None` if clients are asked for none. PEM.
    pub client_ca: Option<PathBuf>,
    /// `true` if a client without a certificate is refused.
    pub requires_client_certificate: bool,
}

/// Function that returns the contents of a file.
pub type ReadTlsFile<'r> = dyn Fn(&Path) -> io::Result<String> + 'r;

/// File in which a fault of the listeners' TLS is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsFileRole {
    /// The certificate.
    Certificate,
    /// The private key.
    Key,
    /// The CAs of client certificates.
    ClientCa,
}

/// Fault of a file. It contains no part of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFault {
    /// Role of the file.
    pub role: TlsFileRole,
    /// Path of the file.
    pub path: PathBuf,
    /// The fault.
    pub fault: String,
    /// Advice on the fix.
    pub hint: Option<String>,
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.fault)?;
        match &self.hint {
            Some(hint) => write!(f, " ({hint})"),
            None => Ok(()),
        }
    }
}

impl std::error::Error for TlsFault {}

/// One of the files with its contents.
struct PemFile<'p> {
    role: TlsFileRole,
    path: &'p Path,
    text: String,
}

impl<'p> PemFile<'p> {
    fn read(role: TlsFileRole, path: &'p Path, read_file: &ReadTlsFile<'_>) -> Result<Self, TlsFault> {
        let read = read_file(path);
        let text = String::new();
        let mut file = Self { role, path, text };
        file.text = read.map_err(|error| match error.kind() {
            io::ErrorKind::InvalidData => file.fault("is not a text: expected PEM").with_hint(PEM_HINT),
            _ => file.fault(format!("cannot read the file: {error}")),
        })?;
        if file.text.len() > FILE_BYTES_MAX {
            return Err(file.fault("has more than 1 MiB"));
        }
        Ok(file)
    }

    fn fault(&self, fault: impl Into<String>) -> TlsFault {
        TlsFault {
            role: self.role,
            path: self.path.to_owned(),
            fault: fault.into(),
            hint: None,
        }
    }

    /// Returns every certificate of the file, at least one.
    fn certificates(&self) -> Result<Vec<CertificateDer<'static>>, TlsFault> {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(self.text.as_bytes()).collect();
        // The error of the library may repeat a line of the file.
        let found = found.map_err(|_| self.fault("is not valid PEM").with_hint(PEM_HINT))?;
        if found.is_empty() {
            return Err(self.fault("contains no certificate").with_hint(PEM_HINT));
        }
        Ok(found)
    }

    /// Returns the certificates of the file as roots of others.
    fn roots(&self) -> Result<RootCertStore, TlsFault> {
        let mut roots = RootCertStore::empty();
        for authority in self.certificates()? {
            let added = roots.add(authority);
            added.map_err(|error| self.fault(format!("a certificate cannot be used: {error}")))?;
        }
        Ok(roots)
    }

    /// Returns the private key of the file.
    fn private_key(&self) -> Result<PrivateKeyDer<'static>, TlsFault> {
        // The label of PKCS #8, and the header of the older form.
        if self.text.contains("ENCRYPTED PRIVATE KEY") || self.text.contains("Proc-Type: 4,ENCRYPTED") {
            let flaw = self.fault("the private key is encrypted, and nobody could enter its password");
            return Err(flaw.with_hint("store it without one: openssl pkey -in KEY -out PLAIN-KEY"));
        }
        PrivateKeyDer::from_pem_slice(self.text.as_bytes())
            .map_err(|_| self.fault("contains no private key").with_hint(PEM_HINT))
    }
}

const PEM_HINT: &str = "PEM begins with a line -----BEGIN …-----; `openssl x509 -inform der` converts DER";

impl TlsFault {
    fn with_hint(self, hint: &str) -> Self {
        let hint = Some(hint.to_owned());
        Self { hint, ..self }
    }
}

/// Settings of rustls from one state of the files.
pub(super) struct TlsMaterial {
    /// Settings that ask clients for a certificate, if a CA is configured.
    pub(super) for_clients: Arc<ServerConfig>,
    /// Settings that never ask for one: browsers, probes and scrapers have none.
    pub(super) for_operators: Arc<ServerConfig>,
    /// End of the certificate's validity, since 1970. `None` if it cannot be read.
    pub(super) expires_at: Option<Duration>,
    /// First host name of the certificate. `None` if it has only patterns and addresses.
    pub(super) host_name: Option<String>,
    /// Certificate of the listeners.
    pub(super) certificate: CertificateDer<'static>,
    /// Hash of the files' contents.
    pub(super) digest: blake3::Hash,
}

impl TlsMaterial {
    /// Reads and checks the files.
    pub(super) fn load(files: &TlsFiles, read_file: &ReadTlsFile<'_>) -> Result<Self, TlsFault> {
        let chain = PemFile::read(TlsFileRole::Certificate, &files.certificate, read_file)?;
        let key = PemFile::read(TlsFileRole::Key, &files.key, read_file)?;
        let authorities = files.client_ca.as_deref();
        let authorities = authorities.map(|path| PemFile::read(TlsFileRole::ClientCa, path, read_file));
        let authorities = authorities.transpose()?;
        let provider = Arc::new(aws_lc_rs::default_provider());
        let certified = certified_key(&chain, &key, &provider)?;
        let certificate = certified.cert.first().cloned().unwrap_or_else(|| Vec::new().into());
        let resolver = Arc::new(SingleCertAndKey::from(certified));
        let for_operators = server_config(Arc::clone(&provider), None, Arc::clone(&resolver))
            .map_err(|error| chain.fault(error.to_string()))?;
        let for_operators = Arc::new(for_operators);
        let for_clients = match &authorities {
            Some(file) => {
                let verified = (file.roots()?, files.requires_client_certificate);
                let config = server_config(provider, Some(verified), resolver);
                Arc::new(config.map_err(|error| file.fault(error.to_string()))?)
            }
            None => Arc::clone(&for_operators),
        };
        let mut contents = blake3::Hasher::new();
        for file in [Some(&chain), Some(&key), authorities.as_ref()].into_iter().flatten() {
            contents.update(blake3::hash(file.text.as_bytes()).as_bytes());
        }
        let mut names = certificate::read_names(&certificate).into_iter();
        Ok(Self {
            for_clients,
            for_operators,
            expires_at: certificate::read_expiry(&certificate),
            host_name: names.find_map(|name| match name {
                CertificateName::Dns(name) if !name.contains('*') => Some(name),
                _ => None,
            }),
            certificate,
            digest: contents.finalize(),
        })
    }
}

/// Returns the certificate with its key, if they belong together.
fn certified_key(chain: &PemFile<'_>, key: &PemFile<'_>, provider: &CryptoProvider) -> Result<CertifiedKey, TlsFault> {
    let (certificates, private) = (chain.certificates()?, key.private_key()?);
    CertifiedKey::from_der(certificates, private, provider).map_err(|error| match error {
        rustls::Error::InconsistentKeys(_) => {
            let first = chain.path.display();
            key.fault(format!("the key does not belong to the first certificate of {first}"))
        }
        rustls::Error::InvalidCertificate(_) => chain.fault(error.to_string()),
        // Kinds of keys that no current TLS uses.
        _ => key.fault(format!("the key cannot be used: {error}")),
    })
}

/// Builds settings of rustls: TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1, and no early data.
fn server_config(
    provider: Arc<CryptoProvider>,
    verified: Option<(RootCertStore, bool)>,
    resolver: Arc<SingleCertAndKey>,
) -> Result<ServerConfig, BuildError> {
    let builder =
        ServerConfig::builder_with_provider(Arc::clone(&provider)).with_protocol_versions(&[&TLS13, &TLS12])?;
    let verifies_clients = verified.is_some();
    let builder = match verified {
        Some((roots, is_required)) => {
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = if is_required {
                verifier
            } else {
                verifier.allow_unauthenticated()
            };
            builder.with_client_cert_verifier(verifier.build().map_err(|error| BuildError(error.to_string()))?)
        }
        None => builder.with_no_client_auth(),
    };
    let mut config = builder.with_cert_resolver(resolver);
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    // A replayed request would be sent, and paid for, twice.
    config.max_early_data_size = 0;
    if verifies_clients {
        // A resumed session would take a certificate that has expired since, or whose CA is no longer in the file.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = 0;
    }
    Ok(config)
}

/// The error of building settings.
#[derive(Debug)]
struct BuildError(String);

impl From<rustls::Error> for BuildError {
    fn from(error: rustls::Error) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
