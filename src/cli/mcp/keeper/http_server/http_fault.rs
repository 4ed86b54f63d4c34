//! The reasons for which a message gets no answer of the server, as their sender reads them.

use http::StatusCode;

use super::posted_message::rpc_error;
use crate::{
    upstream::{Phase, SendError, SendErrorKind},
    wire::json::quote_string,
};

/// The code of the wrapper's own errors: an internal error of JSON-RPC.
const CODE: i32 = -32603;

/// The reason for which a message gets no answer of the server.
#[derive(Clone, Debug)]
pub(super) struct HttpFault {
    pub(super) text: String,
    /// The server may have done what was asked.
    pub(super) is_unclear: bool,
    /// The error of JSON-RPC with which the server has explained it.
    error: Option<String>,
}

impl HttpFault {
    /// Creates a fault before which nothing was done.
    pub(super) fn of_text(text: impl Into<String>) -> Self {
        Self {
            text: text.into(),
            is_unclear: false,
            error: None,
        }
    }

    /// Creates a fault after which nobody knows what was done.
    pub(super) fn of_unclear(text: impl Into<String>) -> Self {
        Self {
            is_unclear: true,
            ..Self::of_text(text)
        }
    }

    /// Describes a request without an answer.
    pub(super) fn of_send(error: &SendError) -> Self {
        let cause = error
            .network_cause()
            .map_or("no free file descriptor", |cause| cause.label());
        match error.phase {
            _ if error.kind == SendErrorKind::NoDescriptors => {
                Self::of_text(format!("the server was not reached: {cause}"))
            }
            Phase::Resolve => Self::of_text(format!("the host name of the server has no address: {cause}")),
            Phase::Connect => Self::of_text(format!("cannot connect to the server: {cause}")),
            Phase::Tls => Self::of_text(format!("the TLS handshake with the server failed: {cause}")),
            Phase::Send | Phase::Headers | Phase::Body => Self::of_unclear(format!(
                "the connection to the server failed before its answer: {cause}"
            )),
        }
    }

    /// Describes an answer that is a refusal.
    pub(super) fn of_status(status: StatusCode, body: &[u8]) -> Self {
        let error = rpc_error(body);
        let code = status.as_u16();
        let text = match code {
            401 => "the server wants a login (HTTP 401): give its token with --header \
                    'Authorization=Bearer ${TOKEN}', or put mcp-remote behind --, since there is no OAuth here"
                .to_owned(),
            300..=399 => {
                format!("the server redirects (HTTP {code}), which is not followed: give its final address with --url")
            }
            _ => format!("the server answered HTTP {code}"),
        };
        // A gateway gives up a request that goes on behind it.
        let is_unclear = error.is_none() && (status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT);
        Self {
            text,
            is_unclear,
            error,
        }
    }

    /// Creates the fault of an answer that is an error of JSON-RPC without the id of its request.
    pub(super) fn of_error(error: String) -> Self {
        Self {
            error: Some(error),
            ..Self::of_text("the server answered with an error")
        }
    }

    /// Returns `true` if the tool of a call has not run: the server, if it was reached at all, has not read it as a call.
    pub(super) const fn is_unsent(&self) -> bool {
        !self.is_unclear && self.error.is_none()
    }

    /// Returns the error as JSON: that of the server, else one with the own text.
    pub(super) fn to_json(&self, is_call: bool) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let rest = if self.is_unclear && is_call {
            "; the outcome of the call is unknown"
        } else {
            ""
        };
        let message = quote_string(&format!("antiphon: {}{rest}", self.text));
        format!(r#"{{"code":{CODE},"message":{message}}}"#)
    }
}
