//! Queries and JSON bodies of the admin API: what cannot be read is a problem document.

use axum::{
    Json,
    body::Body,
    extract::{
        FromRequestParts, Query,
        rejection::{JsonRejection, QueryRejection},
    },
    http::{StatusCode, request::Parts},
    response::{IntoResponse, Response},
};
use serde::de::DeserializeOwned;

use crate::api::{Problem, ProblemCode};

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        self.into_response().map(Body::new)
    }
}

/// The parameters of a query. A query that cannot be parsed is answered as a [`Problem`].
pub(super) struct QueryParams<T>(pub(super) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequestParts<S> for QueryParams<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        // Axum's own rejection is plain text; the API promises JSON.
        let wrong = |error: QueryRejection| Problem::new(ProblemCode::BadQuery, error.body_text());
        let Query(asked) = Query::from_request_parts(parts, state).await.map_err(wrong)?;
        Ok(Self(asked))
    }
}

/// Returns the value of a JSON body, or the problem that it has.
pub(super) fn read_body<T>(body: Result<Json<T>, JsonRejection>) -> Result<T, Problem> {
    let Json(value) = body.map_err(|error| {
        // Axum answers 422 to JSON of the wrong shape. Here 422 means an invalid value, so a wrong shape is a 400.
        let status = match error.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        Problem::new(ProblemCode::BadBody, error.body_text()).with_status(status)
    })?;
    Ok(value)
}
