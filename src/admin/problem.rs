//! Errors of the admin API, as JSON.

use axum::{
    Json,
    extract::{FromRequestParts, Query, rejection::QueryRejection},
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE, request::Parts},
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
