//! TLS of the commands that talk to a proxy, and the certificates that they accept from it.

use std::sync::Arc;

use rustls::{
    CertificateError, ClientConfig, DigitallySignedStruct, Error, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{CertificateDer, ServerName, UnixTime},
    version::{TLS12, TLS13},
};

use crate::upstream::system_tls_config;

/// Certificates that a command accepts from a proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum ProxyTrust {
    /// Any certificate. For a question without a secret, to a listener of this machine: its certificate names a host
    /// that outside clients use, and not the loopback address.
    Any,
    /// Exactly the certificate that the configuration names, under whichever address.
    Configured(CertificateDer<'static>),
    /// A certificate for the host of the URL, of a CA that the system trusts or `SSL_CERT_FILE` contains.
    System,
    /// No certificate, for a URL without TLS: to read those of the system takes longer than a request on this machine.
    Nobody,
}

impl ProxyTrust {
    /// Returns the settings of the TLS client.
    pub(super) fn into_client_config(self) -> Result<ClientConfig, Error> {
        let accepted = match self {
            Self::System => return system_tls_config(),
            Self::Any => None,
            Self::Configured(certificate) => Some(certificate),
            Self::Nobody => Some(CertificateDer::from(Vec::new())),
        };
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = OwnCertificate {
            accepted,
            provider: Arc::clone(&provider),
        };
        let builder = ClientConfig::builder_with_provider(provider).with_protocol_versions(&[&TLS13, &TLS12])?;
        Ok(builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth())
    }
}

/// A verifier that compares the certificate, instead of asking who issued it.
#[derive(Debug)]
struct OwnCertificate {
    /// `None` for any certificate.
    accepted: Option<CertificateDer<'static>>,
    provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for OwnCertificate {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        match &self.accepted {
            Some(accepted) if accepted.as_ref() != end_entity.as_ref() => Err(Error::InvalidCertificate(
                CertificateError::ApplicationVerificationFailure,
            )),
            _ => Ok(ServerCertVerified::assertion()),
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        // Anybody can present a public certificate. The signature proves the key.
        verify_tls12_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.provider.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
