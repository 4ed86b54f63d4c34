//! The cause of a failed send in the network: one word of a closed list, so that operators need no debug log.

use std::{io, iter};

use rustls::{CertificateError, InvalidMessage};

use super::{BoxError, Phase, SendError, SendErrorKind};
use crate::labels::labelled_enum;

/// Words of webpki about a server with the certificate of a CA.
const CA_AS_SERVER: &str = "CaUsedAsEndEntity";
/// Words of rustls-platform-verifier about a certificate for another purpose, whose variant it replaces.
const FOR_OTHER_PURPOSE: &str = "certificate had invalid extensions";

labelled_enum! {
    /// The cause of a failed send in the network.
    pub enum NetworkCause {
        /// The DNS lookup found no address, or no server answered it.
        Dns = "dns",
        /// The port is closed, or a firewall refuses the connection.
        Refused = "refused",
        /// The network has no way to the address.
        Unreachable = "unreachable",
        /// The corporate proxy opened no tunnel.
        ForwardProxy = "forward_proxy",
        /// A timeout of the proxy or of the system expired.
        TimedOut = "timed_out",
        /// The certificate is signed by no CA that the proxy trusts.
        UnknownIssuer = "unknown_issuer",
        /// The certificate has expired, or is not valid yet.
        Expired = "expired",
        /// The certificate is for other names.
        NotForName = "not_for_name",
        /// The server presented a CA certificate.
        CaCertificate = "ca_certificate",
        /// The certificate is for another purpose than a server's.
        WrongPurpose = "wrong_purpose",
        /// The certificate was signed by an algorithm that the proxy does not accept, such as SHA-1.
        WeakSignature = "weak_signature",
        /// The certificate was revoked, or its revocation status is unknown.
        Revoked = "revoked",
        /// The certificate is malformed, or has another fault.
        BadCertificate = "bad_certificate",
        /// The endpoint does not speak TLS.
        NotTls = "not_tls",
        /// Both sides speak TLS and do not agree.
        TlsRefused = "tls_refused",
        /// The connection was reset.
        Reset = "reset",
        /// The endpoint closed the connection.
        Closed = "closed",
        /// The answer is not HTTP.
        NotHttp = "not_http",
    }
}

impl NetworkCause {
    /// Returns `true` if a person has to change something before a send can succeed.
    pub const fn is_permanent(self) -> bool {
        self.is_of_certificate() || matches!(self, Self::NotTls)
    }

    /// Returns `true` for a fault of the certificate.
    pub const fn is_of_certificate(self) -> bool {
        matches!(
            self,
            Self::UnknownIssuer
                | Self::Expired
                | Self::NotForName
                | Self::CaCertificate
                | Self::WrongPurpose
                | Self::WeakSignature
                | Self::Revoked
                | Self::BadCertificate
        )
    }

    /// Returns the cause of a failed send. `None` if the failure is the client's or the proxy's.
    pub(super) fn of_send(error: &SendError) -> Option<Self> {
        let cause = match (error.kind, error.phase) {
            (SendErrorKind::Request | SendErrorKind::NoDescriptors, _) => return None,
            (SendErrorKind::Protocol, _) => Self::NotHttp,
            (SendErrorKind::TimedOut, _) => Self::TimedOut,
            (SendErrorKind::Io, Phase::Resolve) => Self::Dns,
            (SendErrorKind::Io, Phase::Tls) => find_tls_error(error).map_or_else(|| io_cause(error), tls_cause),
            (SendErrorKind::Io, _) => io_cause(error),
        };
        Some(cause)
    }
}

/// A failed attempt to open a tunnel. Its own cause is not part of the chain of sources.
#[derive(Debug, thiserror::Error)]
#[error("the forward proxy opened no tunnel: {cause}")]
pub(super) struct TunnelError {
    /// The cause. Not a source: its io error would say nothing about the provider.
    pub(super) cause: BoxError,
    /// `true` if the forward proxy does not accept the user and password, or wants some.
    pub(super) is_login_refused: bool,
}

/// Returns the io error of a send, and those that it wraps, the innermost last.
fn io_errors(error: &SendError) -> impl Iterator<Item = &io::Error> {
    // hyper-rustls and tokio-rustls wrap io errors in io errors, whose `source` skips them.
    iter::successors(error.find_cause::<io::Error>(), |error| error.get_ref()?.downcast_ref())
}

/// Returns the error of the TLS handshake.
fn find_tls_error(error: &SendError) -> Option<&rustls::Error> {
    io_errors(error).find_map(|error| error.get_ref()?.downcast_ref())
}

/// Returns the cause of a failed connection, by the system's error.
fn io_cause(error: &SendError) -> NetworkCause {
    if error.find_cause::<TunnelError>().is_some() {
        return NetworkCause::ForwardProxy;
    }
    let Some(kind) = io_errors(error).last().map(io::Error::kind) else {
        return NetworkCause::Closed;
    };
    match kind {
        io::ErrorKind::ConnectionRefused => NetworkCause::Refused,
        io::ErrorKind::TimedOut => NetworkCause::TimedOut,
        io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => {
            NetworkCause::Reset
        }
        io::ErrorKind::UnexpectedEof => NetworkCause::Closed,
        // Such as no route, no permission to leave the machine, or no address of the own family.
        _ if error.phase == Phase::Connect => NetworkCause::Unreachable,
        _ => NetworkCause::Closed,
    }
}

/// Returns `true` if the certificate has no name at all. A common name counts as none.
pub(super) fn lacks_names(error: &SendError) -> bool {
    matches!(
        find_tls_error(error),
        Some(rustls::Error::InvalidCertificate(CertificateError::NotValidForNameContext { presented, .. }))
            if presented.is_empty()
    )
}

fn tls_cause(error: &rustls::Error) -> NetworkCause {
    match error {
        rustls::Error::InvalidCertificate(error) => certificate_cause(error),
        rustls::Error::NoCertificatesPresented | rustls::Error::UnsupportedNameType => NetworkCause::BadCertificate,
        // Only the first byte of a message tells another protocol. Other faults are those of a broken message.
        rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => NetworkCause::NotTls,
        _ => NetworkCause::TlsRefused,
    }
}

#[expect(deprecated, reason = "a verifier of the system may still report an old variant")]
fn certificate_cause(error: &CertificateError) -> NetworkCause {
    match error {
        CertificateError::UnknownIssuer => NetworkCause::UnknownIssuer,
        CertificateError::Expired
        | CertificateError::ExpiredContext { .. }
        | CertificateError::NotValidYet
        | CertificateError::NotValidYetContext { .. } => NetworkCause::Expired,
        CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => NetworkCause::NotForName,
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => NetworkCause::WrongPurpose,
        CertificateError::UnsupportedSignatureAlgorithm
        | CertificateError::UnsupportedSignatureAlgorithmContext { .. }
        | CertificateError::UnsupportedSignatureAlgorithmForPublicKeyContext { .. } => NetworkCause::WeakSignature,
        CertificateError::Revoked
        | CertificateError::UnknownRevocationStatus
        | CertificateError::ExpiredRevocationList
        | CertificateError::ExpiredRevocationListContext { .. }
        | CertificateError::InvalidOcspResponse => NetworkCause::Revoked,
        // Its type is that of a library below rustls, so its words are compared.
        CertificateError::Other(other) => match &*other.0.to_string() {
            CA_AS_SERVER => NetworkCause::CaCertificate,
            FOR_OTHER_PURPOSE => NetworkCause::WrongPurpose,
            _ => NetworkCause::BadCertificate,
        },
        // BadEncoding, BadSignature, UnhandledCriticalExtension, ApplicationVerificationFailure, and those of later
        // versions: the certificate itself is at fault.
        _ => NetworkCause::BadCertificate,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use rustls::OtherError;

    use super::*;

    #[test]
    fn a_broken_message_is_not_another_protocol() {
        for (fault, cause) in [
            (InvalidMessage::InvalidContentType, NetworkCause::NotTls),
            (InvalidMessage::MessageTooLarge, NetworkCause::TlsRefused),
            (InvalidMessage::UnknownProtocolVersion, NetworkCause::TlsRefused),
        ] {
            let error = rustls::Error::InvalidMessage(fault);
            assert_eq!(tls_cause(&error), cause, "{error}");
        }
    }

    #[test]
    fn each_fault_of_a_certificate_has_its_cause() {
        let other = |words: &'static str| CertificateError::Other(OtherError(Arc::from(BoxError::from(words))));
        for (fault, cause) in [
            (CertificateError::UnknownIssuer, NetworkCause::UnknownIssuer),
            (CertificateError::Expired, NetworkCause::Expired),
            (CertificateError::NotValidYet, NetworkCause::Expired),
            (CertificateError::NotValidForName, NetworkCause::NotForName),
            (CertificateError::InvalidPurpose, NetworkCause::WrongPurpose),
            (CertificateError::Revoked, NetworkCause::Revoked),
            (CertificateError::UnknownRevocationStatus, NetworkCause::Revoked),
            (CertificateError::ExpiredRevocationList, NetworkCause::Revoked),
            (CertificateError::InvalidOcspResponse, NetworkCause::Revoked),
            (
                CertificateError::UnsupportedSignatureAlgorithmContext {
                    signature_algorithm_id: Vec::new(),
                    supported_algorithms: Vec::new(),
                },
                NetworkCause::WeakSignature,
            ),
            (CertificateError::BadEncoding, NetworkCause::BadCertificate),
            (CertificateError::BadSignature, NetworkCause::BadCertificate),
            (
                CertificateError::UnhandledCriticalExtension,
                NetworkCause::BadCertificate,
            ),
            (
                CertificateError::ApplicationVerificationFailure,
                NetworkCause::BadCertificate,
            ),
            (other(CA_AS_SERVER), NetworkCause::CaCertificate),
            (other(FOR_OTHER_PURPOSE), NetworkCause::WrongPurpose),
            (other("UnsupportedCertVersion"), NetworkCause::BadCertificate),
        ] {
            assert!(cause.is_of_certificate() && cause.is_permanent(), "{fault:?}");
            assert_eq!(tls_cause(&rustls::Error::InvalidCertificate(fault)), cause);
        }
    }
}
