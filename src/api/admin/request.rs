//! A request of an operator, as its handler gets it, and the parts that handlers share: limits, cursors, JSON bodies, and
//! reads of the ledger.

use std::{fmt::Display, future::Future, pin::Pin, time::Duration};

use http::{Response, StatusCode, header::CONTENT_TYPE, request::Parts};
use serde::{Serialize, de::DeserializeOwned};

use super::{AdminState, live_parts::AdminSubscribers};
use crate::{
    api::{ApiBody, Problem, ProblemCode, collect_body, json::json_response, query::Query},
    upstream::BoxedBody,
};

/// Default number of rows on a page.
pub(super) const ROWS_DEFAULT: usize = 50;
/// Limit of rows on a page.
const ROWS_MAX: usize = 500;
/// Timeout of a request to the ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(3);
/// The longest body of an operator: 64 KiB.
const BODY_BYTES_MAX: usize = 64 * 1024;
/// The message for a cursor that is none.
pub(super) const BAD_CURSOR: &str = "`after` must be the value of `next` from the page before";

/// The answer to a request.
pub(super) type AdminResponse = Result<Response<ApiBody>, Problem>;

/// The function that answers an operation.
#[derive(Clone, Copy)]
pub(super) enum AdminHandler {
    /// It waits for nothing.
    Now(fn(&AdminRequest) -> AdminResponse),
    /// It waits for the ledger, for the body or for a reload.
    Later(fn(AdminRequest) -> Pin<Box<dyn Future<Output = AdminResponse> + Send>>),
}

/// A request that is authenticated and has a handler.
pub(super) struct AdminRequest {
    pub(super) parts: AdminState,
    pub(super) subscribers: AdminSubscribers,
    pub(super) head: Parts,
    /// The ids in the path.
    pub(super) ids: Vec<String>,
    /// The body. `None` once it was read.
    pub(super) body: Option<BoxedBody>,
}

impl AdminRequest {
    /// Returns the query.
    pub(super) fn query(&self) -> Query<'_> {
        Query::parse(self.head.uri.query(), ProblemCode::BadQuery)
    }

    /// Returns an id in the path.
    pub(super) fn id(&self, at: usize) -> &str {
        self.ids.get(at).map_or("", String::as_str)
    }

    /// Reads the body as JSON.
    pub(super) async fn read_json<T: DeserializeOwned>(&mut self) -> Result<T, Problem> {
        let media_type = self
            .head
            .headers
            .get(CONTENT_TYPE)
            .and_then(|value| value.to_str().ok());
        let media_type = media_type.unwrap_or_default().split(';').next().unwrap_or_default();
        // A web page of another origin can send any other type without asking first.
        if !media_type.trim().eq_ignore_ascii_case("application/json") {
            return Err(ProblemCode::BodyType.into());
        }
        let body = self.body.take().ok_or(ProblemCode::BadBody)?;
        let body = collect_body(body, ProblemCode::BadBody, |length, before| {
            let is_long = length > BODY_BYTES_MAX.saturating_sub(before);
            if is_long { Err(ProblemCode::BodyLength) } else { Ok(()) }
        });
        let body = body.await?;
        let mut json = serde_json::Deserializer::from_slice(&body);
        let read = serde_path_to_error::deserialize(&mut json).map_err(|error| error.to_string());
        let read = read.and_then(|value| json.end().map(|()| value).map_err(|error| error.to_string()));
        read.map_err(|error| {
            Problem::new(
                ProblemCode::BadBody,
                format!("the body is not the expected JSON: {error}"),
            )
        })
    }
}

/// Returns a view as an answer.
#[expect(clippy::unnecessary_wraps, reason = "every handler returns it")]
pub(super) fn shown(view: &impl Serialize) -> AdminResponse {
    Ok(json_response(StatusCode::OK, view))
}

/// Waits for the ledger, but not for long. `task` is what failed, for the log.
pub(super) async fn read_ledger<T, E: Display>(
    task: &str,
    read: impl Future<Output = Result<T, E>>,
) -> Result<T, Problem> {
    let unavailable = |text| Problem::new(ProblemCode::LedgerUnavailable, text);
    match tokio::time::timeout(LEDGER_TIMEOUT, read).await {
        Ok(Ok(page)) => Ok(page),
        Ok(Err(error)) => {
            tracing::warn!(%error, task, "the ledger failed on a request of an operator");
            Err(unavailable("the ledger failed; the log has the reason; retry later"))
        }
        Err(_) => Err(unavailable("the ledger did not answer within 3 s; retry later")),
    }
}

/// Takes the limit of a page out of its query.
pub(super) fn take_limit(query: &mut Query<'_>, usual: usize) -> Result<usize, Problem> {
    query.take_limit(usual, ROWS_MAX, "`limit` must be from 1 to 500")
}

pub(super) fn not_found(text: &'static str) -> Problem {
    Problem::new(ProblemCode::NotFound, text)
}
