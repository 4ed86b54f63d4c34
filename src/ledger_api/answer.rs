//! What is answered: JSON, and for every refusal a code of one closed list.

use std::borrow::Cow;

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
};
use serde_json::{Value, json};

use super::LedgerBody;
use crate::{late::LateError, ledger::LedgerError, wire::CONTENT_DEPTH_MAX};

/// Why a request is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Code {
    /// Nothing is here, or nothing for who asks.
    NotFound,
    /// The call has another result, or waits for none any more.
    Conflict,
    /// Several calls may be meant.
    AmbiguousCall,
    /// The call was given up.
    Expired,
    /// The body is too large.
    TooLarge,
    /// The body does not say what it must.
    Malformed,
    /// A signed message of this id was another one.
    Replayed,
    /// The ledger is full.
    Full,
    /// Too many listen already.
    Busy,
    /// The ledger does not answer.
    Unavailable,
}

impl Code {
    /// Every code.
    pub const ALL: [Self; 10] = [
        Self::NotFound,
        Self::Conflict,
        Self::AmbiguousCall,
        Self::Expired,
        Self::TooLarge,
        Self::Malformed,
        Self::Replayed,
        Self::Full,
        Self::Busy,
        Self::Unavailable,
    ];

    /// The stable name.
    pub const fn label(self) -> &'static str {
        match self {
            Self::NotFound => "not_found",
            Self::Conflict => "conflict",
            Self::AmbiguousCall => "ambiguous_call",
            Self::Expired => "expired",
            Self::TooLarge => "too_large",
            Self::Malformed => "malformed",
            Self::Replayed => "replayed",
            Self::Full => "full",
            Self::Busy => "busy",
            Self::Unavailable => "unavailable",
        }
    }

    /// The status of the answer.
    pub const fn status(self) -> StatusCode {
        match self {
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::Conflict | Self::AmbiguousCall | Self::Replayed => StatusCode::CONFLICT,
            Self::Expired => StatusCode::GONE,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::Malformed => StatusCode::UNPROCESSABLE_ENTITY,
            Self::Full => StatusCode::INSUFFICIENT_STORAGE,
            Self::Busy | Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// What happened and what to do.
    pub const fn message(self) -> &'static str {
        match self {
            Self::NotFound => "nothing is here for who asks",
            Self::Conflict => "the call has another result already, or waits for none any more",
            Self::AmbiguousCall => {
                "several calls may be meant: name the owner, as the answer header x-antiphon-owner says; an id that \
                 comes again, as call_0, names none"
            }
            Self::Expired => "the call takes no result any more",
            Self::TooLarge => "the body is too large: 8 MiB for a result, 64 KiB for anything else",
            Self::Malformed => "the body is not the JSON object that is expected here",
            Self::Replayed => "another message was signed under this webhook-id",
            Self::Full => "the ledger is full",
            Self::Busy => "too many listen already: try again later",
            Self::Unavailable => "the ledger did not answer in time: try again",
        }
    }
}

/// A refusal.
#[derive(Clone, Debug)]
pub(super) struct Refusal {
    pub(super) code: Code,
    /// What is wrong, where that is known. Never content.
    detail: Option<Cow<'static, str>>,
}

impl Refusal {
    pub(super) const fn of(code: Code) -> Self {
        Self { code, detail: None }
    }

    /// The body does not say what it must.
    pub(super) const fn malformed(detail: &'static str) -> Self {
        Self {
            code: Code::Malformed,
            detail: Some(Cow::Borrowed(detail)),
        }
    }

    /// The content is nested too deep, from this byte of it on.
    pub(super) fn too_deep(at: usize) -> Self {
        let detail = format!("content is nested more than {CONTENT_DEPTH_MAX} levels deep, from its byte {at} on");
        Self {
            code: Code::Malformed,
            detail: Some(Cow::Owned(detail)),
        }
    }

    pub(super) fn answer(self) -> Response<LedgerBody> {
        let message = self.detail.as_deref().unwrap_or_else(|| self.code.message());
        let body = json!({ "error": { "code": self.code.label(), "message": message } });
        answer(self.code.status(), &body)
    }
}

impl From<LateError> for Refusal {
    fn from(error: LateError) -> Self {
        tracing::warn!(%error, "the ledger did not do what was asked");
        Self::of(match error {
            LateError::Ledger(LedgerError::Full { .. }) => Code::Full,
            LateError::Ledger(LedgerError::TooLarge) => Code::TooLarge,
            LateError::Ledger(LedgerError::Store(_) | LedgerError::Closed) | LateError::Busy => Code::Unavailable,
        })
    }
}

/// An answer of JSON.
pub(super) fn answer(status: StatusCode, body: &Value) -> Response<LedgerBody> {
    raw(status, body.to_string().into())
}

/// An answer whose JSON is written already.
pub(super) fn raw(status: StatusCode, body: Bytes) -> Response<LedgerBody> {
    let mut answer = Response::new(LedgerBody::full(body));
    *answer.status_mut() = status;
    let plain = [
        (CONTENT_TYPE, "application/json"),
        (CACHE_CONTROL, "no-store"),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ];
    for (name, value) in plain {
        answer.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    answer
}
