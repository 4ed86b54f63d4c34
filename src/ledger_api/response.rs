//! JSON responses, and the closed list of error codes.

use std::borrow::Cow;

use http::{
    HeaderName, HeaderValue, Method, Response, StatusCode,
    header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE},
};
use http_body_util::{BodyExt, Full};
use serde::Serialize;
use utoipa::{ToSchema, openapi::schema::Object};

use super::{
    LedgerBody,
    answers::{name_schema, write_json},
};
use crate::{late::LateError, ledger::LedgerError, wire::CONTENT_DEPTH_MAX};

/// The error code of a refused request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ApiErrorCode {
    /// The path, the credential or the record is unknown, or the record belongs to another caller.
    NotFound,
    /// The key of the reader is one that many clients send.
    SharedKey,
    /// The service may claim no intent without a recorded call.
    NotOnBehalf,
    /// Several people may have the credential of the caller, so that nobody can claim with it.
    SeveralPeople,
    /// Others could read the connection.
    NeedsEncryption,
    /// The link to the task page may not report outcomes.
    ReadOnlyLink,
    /// The effect of the call cannot be undone.
    NotUndoable,
    /// The call has a different result, or no longer waits for one.
    Conflict,
    /// The id does not identify one call.
    AmbiguousCall,
    /// The call has expired or was undone.
    Expired,
    /// The path takes another method.
    WrongMethod,
    /// The body is too large.
    TooLarge,
    /// The body cannot be read, or lacks something.
    Malformed,
    /// The `webhook-id` was used for another signed message.
    Replayed,
    /// The ledger is full.
    Full,
    /// The limit of feed listeners, or of bodies with an unverified signature, is reached.
    Busy,
    /// The ledger failed, or did not answer in time.
    Unavailable,
}

impl ApiErrorCode {
    /// Every code.
    pub const ALL: [Self; 17] = [
        Self::NotFound,
        Self::SharedKey,
        Self::NotOnBehalf,
        Self::SeveralPeople,
        Self::NeedsEncryption,
        Self::ReadOnlyLink,
        Self::NotUndoable,
        Self::Conflict,
        Self::AmbiguousCall,
        Self::Expired,
        Self::WrongMethod,
        Self::TooLarge,
        Self::Malformed,
        Self::Replayed,
        Self::Full,
        Self::Busy,
        Self::Unavailable,
    ];

    /// Returns the stable name, which is `error.code` in the response.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::SharedKey => "shared_key",
            Self::NotOnBehalf => "not_on_behalf",
            Self::SeveralPeople => "several_people",
            Self::NeedsEncryption => "needs_encryption",
            Self::ReadOnlyLink => "read_only_link",
            Self::NotUndoable => "not_undoable",
            Self::Conflict => "conflict",
            Self::AmbiguousCall => "ambiguous_call",
            Self::Expired => "expired",
            Self::WrongMethod => "wrong_method",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Replayed => "replayed",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }

    /// Returns the status of the response.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::SharedKey | Self::NotOnBehalf | Self::SeveralPeople | Self::NeedsEncryption | Self::ReadOnlyLink => {
                StatusCode::FORBIDDEN
            }
            Self::NotUndoable | Self::Conflict | Self::AmbiguousCall | Self::Replayed => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::WrongMethod => StatusCode::METHOD_NOT_ALLOWED,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
            Self::Busy | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Returns the message: the fault, and what to do.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotFound => "not found, or not available with this credential",
            Self::SharedKey => {
                "many clients send this key, so it identifies nobody: send a client token in x-antiphon-client-token"
            }
            Self::NotOnBehalf => {
                "this service may not claim for users of its own: the operator can set services.NAME.on_behalf"
            }
            Self::SeveralPeople => {
                "several people may have this credential, and one must not get the result of another: the operator can \
                 set client_tokens.NAME.personal for a token that one person uses"
            }
            Self::NeedsEncryption => {
                "the task page is served over TLS, or to this machine: the operator can set server.tls"
            }
            Self::ReadOnlyLink => {
                "this link reads and acknowledges only: an operator can make one with `antiphon tasks link`"
            }
            Self::NotUndoable => {
                "the effect of this tool cannot be undone: tools.NAME needs tier = \"revertible\", and cancel_url for \
                 requests of its callers"
            }
            Self::Conflict => "the call already has a different result, or no longer waits for one",
            Self::AmbiguousCall => {
                "the call id is ambiguous: send the owner from the response header x-antiphon-owner, and for a reusable \
                 id such as call_0 also its session, or its tool and input"
            }
            Self::Expired => "the call has expired or was cancelled, and no longer accepts a result",
            Self::WrongMethod => "the path takes another method: see the header allow",
            Self::TooLarge => {
                "the body is too large: the limit is 8 MiB for a result, 1 MiB for a claim, and 64 KiB for any other \
                 request"
            }
            Self::Malformed => "the body cannot be read, or is not the expected JSON object",
            Self::Replayed => "this webhook-id was used for a different message: send each message under its own id",
            Self::Full => "the ledger is full: the operator can raise ledger.bytes_max or ledger.principal_bytes_max",
            Self::Busy => "too many feed listeners or signed bodies at once: retry later",
            Self::Unavailable => "the ledger failed or timed out: retry",
        }
    }
}

/// The answer to a refused request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Error)]
pub(super) struct RefusalView<'r> {
    error: RefusalDetail<'r>,
}

/// The content of the answer to a refused request.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ErrorDetail)]
struct RefusalDetail<'r> {
    #[schema(schema_with = code_schema)]
    code: &'static str,
    /// The text for people, which may change: the fault, and what to do
    message: &'r str,
}

fn code_schema() -> Object {
    let description = "The stable name of the error, for programs";
    name_schema(description, ApiErrorCode::ALL.map(ApiErrorCode::label))
}

/// A refused request.
#[derive(Clone, Debug)]
pub(super) struct ApiRefusal {
    /// The error code.
    pub(super) code: ApiErrorCode,
    /// The exact fault. `None` if the code's own message is enough. Never contains posted content.
    detail: Option<Cow<'static, str>>,
    /// The method that the path takes. `None` unless that is the fault.
    allow: Option<Method>,
}

impl ApiRefusal {
    /// Creates a refusal with the code's own message.
    pub(super) const fn from_code(code: ApiErrorCode) -> Self {
        Self {
            code,
            detail: None,
            allow: None,
        }
    }

    /// Creates a refusal of a method that the path does not take.
    pub(super) const fn wrong_method(allow: Method) -> Self {
        Self {
            code: ApiErrorCode::WrongMethod,
            detail: None,
            allow: Some(allow),
        }
    }

    /// Creates a refusal of a body that cannot be read or lacks something.
    pub(super) const fn malformed(detail: &'static str) -> Self {
        Self {
            code: ApiErrorCode::Malformed,
            detail: Some(Cow::Borrowed(detail)),
            allow: None,
        }
    }

    /// Creates a refusal of a content that is nested too deep from its byte `at` on.
    pub(super) fn too_deep(at: usize) -> Self {
        let detail = format!("content is nested more than {CONTENT_DEPTH_MAX} levels deep, from its byte {at} on");
        Self {
            code: ApiErrorCode::Malformed,
            detail: Some(Cow::Owned(detail)),
            allow: None,
        }
    }

    /// Returns the message: the fault, and what to do.
    pub(super) fn message(&self) -> &str {
        self.detail.as_deref().unwrap_or_else(|| self.code.message())
    }

    /// Returns the method that the path takes. `None` unless that is the fault.
    pub(super) const fn allowed_method(&self) -> Option<&Method> {
        self.allow.as_ref()
    }

    /// Builds the response.
    pub(super) fn into_response(self) -> Response<LedgerBody> {
        let error = RefusalDetail {
            code: self.code.label(),
            message: self.message(),
        };
        let mut answer = json_response(self.code.status(), &RefusalView { error });
        if let Some(method) = self.allow.and_then(|method| method.as_str().try_into().ok()) {
            answer.headers_mut().insert(ALLOW, method);
        }
        answer
    }
}

impl From<LateError> for ApiRefusal {
    fn from(error: LateError) -> Self {
        tracing::warn!(%error, "a ledger API request failed: the ledger returned an error");
        Self::from_code(match error {
            // The cause goes to the log only: a caller learns the code, and nothing of the operator's store.
            LateError::Ledger(LedgerError::Full { .. }) => ApiErrorCode::Full,
            LateError::Ledger(LedgerError::TooLarge) => ApiErrorCode::TooLarge,
            LateError::Ledger(LedgerError::Store(_) | LedgerError::Closed)
            | LateError::Busy
            | LateError::ClockStep
            | LateError::Random(_) => ApiErrorCode::Unavailable,
        })
    }
}

/// Builds a JSON response.
pub(super) fn json_response(status: StatusCode, answer: &impl Serialize) -> Response<LedgerBody> {
    let mut response = Response::new(Full::new(write_json(answer).into()).boxed_unsync());
    *response.status_mut() = status;
    // Results are private to a caller, so no cache may store them, and no browser may guess another type.
    let plain = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    for (name, value) in plain {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}
