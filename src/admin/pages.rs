//! The parts that lists of the admin API share: limits, cursors, and reads of the ledger.

use std::{fmt::Display, future::Future, time::Duration};

use crate::api::{Problem, ProblemCode};

/// Default number of rows on a page.
pub(super) const ROWS_DEFAULT: usize = 50;
/// Limit of rows on a page.
const ROWS_MAX: usize = 500;
/// Timeout of a request to the ledger.
const LEDGER_TIMEOUT: Duration = Duration::from_secs(3);
/// The message for a cursor that is none.
pub(super) const BAD_CURSOR: &str = "`after` must be the value of `next` from the page before";

/// Waits for the ledger, but not for long. `task` is what failed, for the log.
pub(super) async fn read_ledger<T, E: Display>(
    task: &str,
    read: impl Future<Output = Result<T, E>>,
) -> Result<T, Problem> {
    let unavailable = |text: &'static str| Problem::new(ProblemCode::LedgerUnavailable, text);
    match tokio::time::timeout(LEDGER_TIMEOUT, read).await {
        Ok(Ok(page)) => Ok(page),
        Ok(Err(error)) => {
            tracing::warn!(%error, task, "the ledger failed on a request of an operator");
            Err(unavailable("the ledger failed; the log has the reason; retry later"))
        }
        Err(_) => Err(unavailable("the ledger did not answer within 3 s; retry later")),
    }
}

/// Returns the limit of a page, or `usual` if the query has none. Fails unless it is from 1 to 500.
pub(super) fn check_limit(limit: Option<usize>, usual: usize) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(usual);
    if (1..=ROWS_MAX).contains(&limit) {
        Ok(limit)
    } else {
        // Not clamped: a client that asks for more would take a short page for everything.
        Err(bad_query("`limit` must be from 1 to 500"))
    }
}

pub(super) fn bad_query(text: &'static str) -> Problem {
    Problem::new(ProblemCode::BadQuery, text)
}

pub(super) fn not_found(text: &'static str) -> Problem {
    Problem::new(ProblemCode::NotFound, text)
}
