//! Errors of the admin API, as JSON.

use std::time::Duration;

use axum::{
    Json,
    extract::{
        FromRequestParts, Query,
        rejection::{JsonRejection, QueryRejection},
    },
    http::{
        HeaderValue, StatusCode,
        header::{RETRY_AFTER, WWW_AUTHENTICATE},
        request::Parts,
    },
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

/// An error answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(super) struct AdminProblem {
    error: ProblemDetail,
    #[serde(skip)]
    status: StatusCode,
    /// `None` if the same request may be sent again at once.
    #[serde(skip)]
    retry_after: Option<Duration>,
}

/// The content of an error answer.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Told)]
struct ProblemDetail {
    /// The stable name of the error, for programs.
    code: &'static str,
    /// The text for people: the fault, its place, and the remedy.
    message: String,
}

impl AdminProblem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            error: ProblemDetail { code, message },
            status,
            retry_after: None,
        }
    }

    /// Adds the time after which the request may be sent again.
    pub(super) fn with_retry_after(self, wait: Duration) -> Self {
        Self {
            retry_after: Some(wait),
            ..self
        }
    }
}

impl IntoResponse for AdminProblem {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(&self)).into_response();
        // RFC 9110 demands a challenge on every 401.
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        if let Some(wait) = self.retry_after {
            // Rounded up, so that a client that waits for as long is not refused again.
            let seconds = u64::try_from(wait.as_millis().div_ceil(1000)).unwrap_or(u64::MAX);
            answer.headers_mut().insert(RETRY_AFTER, seconds.into());
        }
        answer
    }
}

/// The parameters of a query. A query that cannot be parsed is answered as a [`AdminProblem`].
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = AdminProblem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, AdminProblem> {
        // Axum's own rejection is plain text; the API promises JSON.
        let wrong = |error: QueryRejection| AdminProblem::new(StatusCode::BAD_REQUEST, "bad_query", error.body_text());
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Self(asked))
    }
}

/// Returns the value of a JSON body, or the problem that it has.
pub(super) fn read_body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, AdminProblem> {
    let Json(value) = body.map_err(|error| {
        // Axum answers 422 to JSON of the wrong shape. Here 422 means an invalid value, so a wrong shape is a 400.
        let status = match error.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        AdminProblem::new(status, "bad_body", error.body_text())
    })?;
    Ok(value)
}
