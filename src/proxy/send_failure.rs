//! What a client learns of a failed send: the cause and what to do, and the error type of RFC 9209.
//!
//! Some clients retry on words of the text alone: `tests/clients/retry-words.txt`. Of the words of Continue, "connection
//! reset" fits the most failures. Texts about others get it at their end. "Aborted" would end a turn in Cline.

use crate::upstream::{NetworkCause, Phase, SendError, SendErrorKind};

/// The words on which clients retry.
const RETRY_WORDS: &str = "connection reset";
/// The end of a retryable text that is not about a reset.
pub(super) const RETRY_SUFFIX: &str = " (retryable like a connection reset)";

/// The text for a connection that took too long, by the proxy's timeout or the system's.
const CONNECT_TIMEOUT: &str = "timeout while connecting; check the network, or try again";
/// The same for a TLS handshake.
const TLS_TIMEOUT: &str = "timeout in the tls handshake; check the network, or try again";

/// Returns `true` if the same request may succeed later without a change by a person.
pub(super) fn is_retryable(error: &SendError) -> bool {
    error.kind != SendErrorKind::Request
        && !error.is_login_refused()
        && !error.network_cause().is_some_and(NetworkCause::is_permanent)
}

/// Returns the message for the client: the failed step, and what to check.
pub(super) fn client_message(upstream: &str, error: &SendError) -> String {
    let what = match (error.phase, error.kind) {
        (_, SendErrorKind::Request) => return "the request's body is malformed or was cut short".to_owned(),
        (_, SendErrorKind::NoDescriptors) => return "the proxy has no file descriptors left; try again".to_owned(),
        (_, SendErrorKind::Protocol) if error.is_plain => {
            "its answer is not valid http; if it speaks TLS, write https:// in its url; else check that its url is \
             right, or try again"
        }
        (_, SendErrorKind::Protocol) => "its answer is not valid http; check that its url is right, or try again",
        (Phase::Resolve, _) => "the dns lookup failed; check the url's host name and the network, or try again",
        (Phase::Connect, SendErrorKind::Io) => connect_text(error),
        (Phase::Connect, SendErrorKind::TimedOut) => CONNECT_TIMEOUT,
        (Phase::Tls, SendErrorKind::TimedOut) => TLS_TIMEOUT,
        (Phase::Tls, SendErrorKind::Io) => tls_text(error),
        // A server of TLS closes a connection on which no handshake begins.
        (Phase::Send, SendErrorKind::Io) if error.is_plain => {
            "connection reset while the request was sent; try again, or if it speaks TLS, write https:// in its url"
        }
        (Phase::Send, SendErrorKind::Io) => "connection reset while the request was sent; try again",
        (Phase::Send, SendErrorKind::TimedOut) => "timeout: it stopped reading the request; try again",
        (Phase::Headers, SendErrorKind::Io) if error.is_plain => {
            "connection reset before an answer arrived; try again, or if it speaks TLS, write https:// in its url"
        }
        (Phase::Headers, SendErrorKind::Io) => "connection reset before an answer arrived; try again",
        (Phase::Headers, SendErrorKind::TimedOut) => "timeout: no answer; try again, or raise the headers timeout",
        (Phase::Body, SendErrorKind::Io) => "connection reset in the middle of the answer; try again",
        (Phase::Body, SendErrorKind::TimedOut) => "timeout: the answer stalled; try again, or raise the idle timeout",
    };
    let needs_suffix = is_retryable(error) && !what.contains(RETRY_WORDS);
    let suffix = if needs_suffix { RETRY_SUFFIX } else { "" };
    format!("upstream {upstream}: {what}{suffix}")
}

/// Returns the text for a connection that could not be opened.
fn connect_text(error: &SendError) -> &'static str {
    match error.network_cause() {
        Some(NetworkCause::Refused) => {
            "connection refused; check that it is up and that its url is right, or try again"
        }
        Some(NetworkCause::Unreachable) => "it is unreachable; check the network and its firewall, or try again",
        Some(NetworkCause::TimedOut) => CONNECT_TIMEOUT,
        Some(NetworkCause::ForwardProxy) if error.is_login_refused() => {
            "the forward proxy accepts no connection without a valid login; correct the user and password in HTTPS_PROXY, \
             HTTP_PROXY or ALL_PROXY"
        }
        Some(NetworkCause::ForwardProxy) => {
            "the forward proxy opened no tunnel; check HTTPS_PROXY and NO_PROXY, or try again"
        }
        _ => "connection reset while connecting; check that it is up and that its url is right, or try again",
    }
}

/// Returns the text for a failed TLS handshake.
fn tls_text(error: &SendError) -> &'static str {
    match error.network_cause() {
        Some(NetworkCause::UnknownIssuer) => {
            "no trusted CA has issued its certificate; set SSL_CERT_FILE for the proxy to a file with its issuer: the CA \
             of a network that inspects TLS, or the certificate itself if it is self-signed"
        }
        Some(NetworkCause::Expired) => {
            "its certificate has expired or is not valid yet; check the clock of the proxy's machine, and the certificate"
        }
        Some(NetworkCause::NotForName) if error.lacks_names() => {
            "its certificate has no name, since a common name (CN) does not count; give it the url's host name or address \
             as subjectAltName"
        }
        Some(NetworkCause::NotForName) => {
            "its certificate is for another name; check the url's host name, and what answers in its place"
        }
        Some(NetworkCause::CaCertificate) => {
            "its certificate is that of a CA, which is not accepted from a server; make one with \
             basicConstraints=critical,CA:FALSE and the url's host as subjectAltName, and set SSL_CERT_FILE for the proxy \
             to a file with its issuer"
        }
        Some(NetworkCause::WrongPurpose) => {
            "its certificate is not for servers; issue one whose extendedKeyUsage has serverAuth"
        }
        Some(NetworkCause::WeakSignature) => {
            "its certificate has a signature that is not accepted, such as one with SHA-1 or a short key; issue one with \
             SHA-256 and RSA from 2048 bits on, or ECDSA"
        }
        Some(NetworkCause::Revoked) => {
            "its certificate was revoked, or its revocation cannot be checked; renew the certificate, and check what \
             answers at the url"
        }
        Some(NetworkCause::BadCertificate) => {
            "its certificate is malformed or has a part that is not accepted; issue another one, and check what answers at \
             the url"
        }
        Some(NetworkCause::NotTls) => "it does not speak TLS; check the url's scheme and port",
        Some(NetworkCause::TlsRefused) => "the tls handshake failed; check what answers at the url, or try again",
        Some(NetworkCause::TimedOut) => TLS_TIMEOUT,
        _ => "connection reset in the tls handshake; check the url's scheme and the network, or try again",
    }
}

/// Returns the error type of RFC 9209.
pub(super) fn proxy_status(error: &SendError) -> &'static str {
    match (error.phase, error.kind) {
        (_, SendErrorKind::Request) => "http_request_error",
        (_, SendErrorKind::NoDescriptors) => "proxy_internal_error",
        (_, SendErrorKind::Protocol) => "http_protocol_error",
        (Phase::Resolve, _) => "dns_error",
        (Phase::Connect | Phase::Tls, SendErrorKind::TimedOut) => "connection_timeout",
        (Phase::Connect, _) => match error.network_cause() {
            Some(NetworkCause::Refused) => "connection_refused",
            _ => "destination_unavailable",
        },
        (Phase::Tls, _) => match error.network_cause() {
            Some(cause) if cause.is_of_certificate() => "tls_certificate_error",
            _ => "tls_protocol_error",
        },
        (Phase::Send, SendErrorKind::TimedOut) => "connection_write_timeout",
        (Phase::Headers, SendErrorKind::TimedOut) => "http_response_timeout",
        (Phase::Body, SendErrorKind::TimedOut) => "connection_read_timeout",
        (Phase::Body, SendErrorKind::Io) => "http_response_incomplete",
        (Phase::Send | Phase::Headers, SendErrorKind::Io) => "connection_terminated",
    }
}
