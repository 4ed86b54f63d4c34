//! What is answered where something is wrong.

use axum::{
    Json,
    extract::{FromRequestParts, Query, rejection::QueryRejection},
    http::{HeaderValue, StatusCode, header::WWW_AUTHENTICATE, request::Parts},
    response::{IntoResponse, Response},
};
use serde::{Serialize, de::DeserializeOwned};
use utoipa::ToSchema;

/// What is wrong.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct Problem {
    error: Told,
    #[serde(skip)]
    status: StatusCode,
}

#[derive(Debug, Serialize, ToSchema)]
struct Told {
    /// A stable name.
    code: &'static str,
    /// For people: what, where, and what to do.
    message: String,
}

impl Problem {
    pub(super) fn new(status: StatusCode, code: &'static str, message: impl Into<String>) -> Self {
        let message = message.into();
        Self {
            error: Told { code, message },
            status,
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let mut answer = (self.status, Json(&self)).into_response();
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            answer.headers_mut().insert(WWW_AUTHENTICATE, scheme);
        }
        answer
    }
}

/// The parameters of a query; one that cannot be read is a problem that says so.
pub(super) struct Asked<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for Asked<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let wrong = |error: QueryRejection| Problem::new(StatusCode::BAD_REQUEST, "bad_query", error.body_text());
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Self(asked))
    }
}
