//! What a client learns of a failed send: the cause and what to do, and the error type of RFC 9209.
//!
//! Some clients retry on words of the text alone: `tests/clients/retry-words.txt`. Of the words of Continue, "connection
//! reset" fits the most failures. "Aborted" would end a turn in Cline.

use crate::upstream::{NetworkCause, Phase, SendError, SendErrorKind};

/// Returns `true` if the same request may succeed later without a change by a person.
pub(super) fn is_retryable(error: &SendError) -> bool {
    error.kind != SendErrorKind::Request && !error.network_cause().is_some_and(NetworkCause::is_permanent)
}

/// Returns the message for the client: the failed step, and what to check.
pub(super) fn client_message(upstream: &str, error: &SendError) -> String {
    let what = match (error.phase, error.kind) {
        (_, SendErrorKind::Request) => return "the request's body is malformed or was cut short".to_owned(),
        (_, SendErrorKind::NoDescriptors) => return "the proxy has no file descriptors left; try again".to_owned(),
        (_, SendErrorKind::Protocol) => {
            "its answer is not valid http, connection reset; check that its url is right, or try again"
        }
        (Phase::Resolve, _) => {
            "the dns lookup failed, a premature end; check the url's host name and the network, or try again"
        }
        (Phase::Connect, SendErrorKind::Io) => connect_text(error),
        (Phase::Connect, SendErrorKind::TimedOut) => {
            "timeout while connecting, connection reset; check the network, or try again"
        }
        (Phase::Tls, SendErrorKind::TimedOut) => {
            "timeout in the tls handshake, connection reset; check the network, or try again"
        }
        (Phase::Tls, SendErrorKind::Io) => tls_text(error),
        (Phase::Send, SendErrorKind::Io) => "connection reset while the request was sent; try again",
        (Phase::Send, SendErrorKind::TimedOut) => {
            "timeout: it stopped reading the request, connection reset; try again"
        }
        (Phase::Headers, SendErrorKind::Io) => "connection reset before an answer arrived; try again",
        (Phase::Headers, SendErrorKind::TimedOut) => {
            "timeout: no answer, connection reset; try again, or raise the headers timeout"
        }
        (Phase::Body, SendErrorKind::Io) => "connection reset in the middle of the answer; try again",
        (Phase::Body, SendErrorKind::TimedOut) => {
            "timeout: the answer stalled, connection reset; try again, or raise the idle timeout"
        }
    };
    format!("upstream {upstream}: {what}")
}

/// Returns the text for a connection that could not be opened.
fn connect_text(error: &SendError) -> &'static str {
    match error.network_cause() {
        Some(NetworkCause::Refused) => {
            "connection refused (connection reset); check that it is up and that its url is right, or try again"
        }
        Some(NetworkCause::Unreachable) => {
            "it is unreachable, connection reset; check the network and its firewall, or try again"
        }
        Some(NetworkCause::ForwardProxy) => {
            "the forward proxy opened no tunnel, connection reset; check HTTPS_PROXY and NO_PROXY, or try again"
        }
        _ => "connection reset while connecting; check that it is up and that its url is right, or try again",
    }
}

/// Returns the text for a failed TLS handshake.
fn tls_text(error: &SendError) -> &'static str {
    match error.network_cause() {
        Some(NetworkCause::UnknownIssuer) => {
            "no trusted CA has issued its certificate; if your network inspects TLS, set SSL_CERT_FILE for the proxy to a \
             file with the network's CA"
        }
        Some(NetworkCause::Expired) => {
            "its certificate has expired or is not valid yet; check the clock of the proxy's machine, and the certificate"
        }
        Some(NetworkCause::NotForName) => {
            "its certificate is for another name; check the url's host name, and what answers in its place"
        }
        Some(NetworkCause::BadCertificate) => "its certificate is not valid; check the certificate",
        Some(NetworkCause::NotTls) => "it does not speak TLS; check the url's scheme and port",
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
            Some(
                NetworkCause::UnknownIssuer
                | NetworkCause::Expired
                | NetworkCause::NotForName
                | NetworkCause::BadCertificate,
            ) => "tls_certificate_error",
            _ => "tls_protocol_error",
        },
        (Phase::Send, SendErrorKind::TimedOut) => "connection_write_timeout",
        (Phase::Headers, SendErrorKind::TimedOut) => "http_response_timeout",
        (Phase::Body, SendErrorKind::TimedOut) => "connection_read_timeout",
        (Phase::Body, SendErrorKind::Io) => "http_response_incomplete",
        (Phase::Send | Phase::Headers, SendErrorKind::Io) => "connection_terminated",
    }
}
