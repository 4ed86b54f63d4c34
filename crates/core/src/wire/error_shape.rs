//! Shapes of errors that clients read. They contain no internal detail.

use bytes::Bytes;
use serde_json::{Value, json};

/// The type of error events. In Chat Completions it is not `OpenAI`'s own, but clients compare it in every format.
const RETRIED_TYPE: &str = "overloaded_error";
/// The code of Gemini's error events. Clients retry every 5xx, and this is the status of an overload.
const UNAVAILABLE_STATUS: u16 = 503;

/// Error shape of a client's API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorShape {
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI and compatible APIs.
    OpenAi,
    /// OpenAI Responses: like `OpenAi`, but its streams consist of typed events.
    Responses,
    /// Google Gemini and Vertex.
    Gemini,
    /// Amazon Bedrock.
    Bedrock,
}

impl ErrorShape {
    /// Returns the body of an error.
    pub fn error_body(self, status: u16, code: &str, message: &str, request_id: &str) -> Value {
        match self {
            Self::Anthropic => json!({
                "type": "error",
                "error": { "type": anthropic_type(status), "message": message },
                "request_id": request_id,
            }),
            Self::OpenAi | Self::Responses => json!({
                "error": {
                    "message": message,
                    "type": openai_error_type(status),
                    "param": null,
                    "code": openai_code(status, code),
                },
            }),
            Self::Gemini => json!({
                "error": { "code": status, "message": message, "status": gemini_status(status) },
            }),
            Self::Bedrock => json!({ "message": message }),
        }
    }

    /// Returns the value of `x-amzn-errortype`, which Bedrock's SDKs read instead of the body.
    pub fn error_type_header(self, status: u16) -> Option<&'static str> {
        (self == Self::Bedrock).then_some(match status {
            401 | 403 => "AccessDeniedException",
            404 => "ResourceNotFoundException",
            408 | 504 => "ModelTimeoutException",
            429 => "ThrottlingException",
            500.. => "ServiceUnavailableException",
            _ => "ValidationException",
        })
    }

    /// Returns an error as an event of a stream that has begun. `None` if the shape has no text events.
    ///
    /// Its type is the one that most clients retry. They stop at other types, such as `api_error` and `timeout_error`.
    /// `docs/broken-streams.md` lists the clients and their versions.
    pub fn error_event(self, code: &str, message: &str, request_id: &str) -> Option<Bytes> {
        let text = match self {
            Self::Anthropic => {
                let data = json!({
                    "type": "error",
                    "error": { "type": RETRIED_TYPE, "message": message },
                    "request_id": request_id,
                });
                format!("event: error\ndata: {data}\n\n")
            }
            // The reference has the members at the top level. OpenAI's own servers send them in `error`, and its SDKs
            // raise an error only for that object.
            Self::Responses => {
                let error = json!({ "message": message, "type": RETRIED_TYPE, "param": null, "code": code });
                let data = json!({ "type": "error", "code": code, "message": message, "param": null, "error": error });
                format!("event: error\ndata: {data}\n\n")
            }
            Self::OpenAi => {
                let error = json!({ "message": message, "type": RETRIED_TYPE, "param": null, "code": code });
                format!("data: {}\n\n", json!({ "error": error }))
            }
            Self::Gemini => {
                let body = self.error_body(UNAVAILABLE_STATUS, code, message, request_id);
                format!("data: {body}\n\n")
            }
            // Its streams are binary frames with checksums.
            Self::Bedrock => return None,
        };
        Some(Bytes::from(text))
    }
}

const fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        408 | 504 => "timeout_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

/// Returns the `type` of an OpenAI error with this status.
pub const fn openai_error_type(status: u16) -> &'static str {
    match status {
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    }
}

/// Returns OpenAI's code for a wrong key, which clients recognise. Other errors have the proxy's own code.
fn openai_code(status: u16, code: &str) -> &str {
    if status == 401 { "invalid_api_key" } else { code }
}

const fn gemini_status(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        408 | 504 => "DEADLINE_EXCEEDED",
        429 => "RESOURCE_EXHAUSTED",
        500.. => "UNAVAILABLE",
        _ => "INVALID_ARGUMENT",
    }
}
