//! `/ledger/v1` on the data listener: tool services post results, and callers look up and acknowledge their own.
//!
//! A service authenticates with its bearer token or with a webhook signature. A caller authenticates with the
//! credential that it sends to providers. Any other request gets 404, apart from a known path with a wrong method or
//! query. The `OpenAPI` document needs no credential.

mod answers;
mod cancels;
mod delivery_id;
mod document;
mod feed;
mod intent_answers;
mod intent_body;
mod intents;
mod list_query;
mod operation;
mod owners;
mod request_body;
mod routes;
mod services;
mod task_cursor;
mod tasks;
mod unverified_bytes;

use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderMap, Request, Response, request::Parts};

pub use intent_body::{REPEAT, REPEAT_HEADER};
pub use operation::RESULT_BODY_BYTES_MAX;
pub use tasks::is_task_path;

use crate::{
    api::{self, ApiBody, Problem, ProblemCode},
    auth::Caller,
    clock,
    digest_cache::{DigestCache, Lifetime},
    late::{Holder, LateError, LateStore},
    ledger::{LedgerError, Unread},
    server::{OwnerLimit, StopSignal},
    session_table::SessionTable,
    telemetry::Telemetry,
    upstream::BoxedBody,
};
use operation::LedgerOperation;
use services::ServiceClaim;
use unverified_bytes::{UnverifiedBytes, UnverifiedShare};

/// Timeout for reading the body and for the ledger operation together: 30 seconds.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout for reading if a caller is verified: 3 seconds. The ledger may not answer while it is checked after a start.
const VERIFY_TIMEOUT: Duration = Duration::from_secs(3);

/// Signed messages that are remembered to detect a reused `webhook-id`.
const SIGNED_MESSAGES_MAX: u64 = 100_000;
/// Time for which a signed message is remembered: 15 minutes.
///
/// It must exceed twice the tolerance of a message's timestamp, which is 5 minutes.
const SIGNED_MESSAGE_TTL: Duration = Duration::from_secs(15 * 60);

/// Concurrent listeners in total, and of one caller, so that one caller cannot take every place.
const LISTENERS_MAX: (usize, usize) = (256, 16);

/// Returns `true` if this API answers the path.
pub fn is_ledger_path(path: &str) -> bool {
    path == "/ledger" || path.starts_with("/ledger/")
}

/// The sender of a request, by the credential of callers.
#[derive(Clone, Copy, Debug)]
pub enum LedgerReader {
    /// This caller, by a credential that the proxy itself can check: a client token, or that of this machine.
    Checked(Caller),
    /// This caller, if a provider accepts its credential.
    Known(Caller),
    /// Anybody: many clients send this key.
    SharedKey,
    /// No caller. Tool services authenticate in their own way.
    Unknown,
}

/// The ledger API. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerApi {
    late: LateStore,
    sessions: Arc<SessionTable>,
    telemetry: Telemetry,
    /// The signal that the drain has begun.
    stopping: StopSignal,
    /// Digests of signed messages by their service and id.
    signed_messages: DigestCache<[u8; 32], [u8; 32]>,
    listeners: OwnerLimit<Caller>,
    unverified: UnverifiedBytes,
}

impl LedgerApi {
    /// Creates the API. Its feeds end when `stopping` is given.
    pub fn new(late: LateStore, sessions: Arc<SessionTable>, telemetry: Telemetry, stopping: StopSignal) -> Self {
        Self {
            late,
            sessions,
            telemetry,
            stopping,
            signed_messages: DigestCache::new(SIGNED_MESSAGES_MAX, Lifetime::SinceWrite(SIGNED_MESSAGE_TTL)),
            listeners: OwnerLimit::new(LISTENERS_MAX.0, LISTENERS_MAX.1),
            unverified: UnverifiedBytes::default(),
        }
    }

    /// Answers a request.
    pub async fn answer_request(&self, request: Request<BoxedBody>, reader: LedgerReader) -> Response<ApiBody> {
        let (head, body) = request.into_parts();
        // Boxed, because the future of all operations is large, and `timeout` would move it.
        let answered = tokio::time::timeout(REQUEST_TIMEOUT, Box::pin(self.run_request(&head, body, reader))).await;
        answered
            .unwrap_or(Err(ProblemCode::Unavailable.into()))
            .unwrap_or_else(|problem| {
                let is_of_intents = routes::is_intent_path(head.uri.path());
                let problem = if is_of_intents { problem.of_intents() } else { problem };
                routes::check_code(&head, problem.code);
                problem.into_response()
            })
    }

    /// Authenticates a request, reads its body and carries it out.
    async fn run_request(
        &self,
        head: &Parts,
        body: BoxedBody,
        reader: LedgerReader,
    ) -> Result<Response<ApiBody>, Problem> {
        let ask = routes::find_operation(head);
        if is_task_path(head.uri.path()) {
            return Box::pin(tasks::answer_request(self, head, ask, body, reader)).await;
        }
        let ask = ask?;
        // Without a service there are no late results. Callers have intents of their own all the same.
        if !self.late.is_used() && !ask.is_of_intents() {
            return Err(ProblemCode::NotFound.into());
        }
        match ask {
            // It describes every proxy alike, so it needs no credential.
            LedgerOperation::Document => Ok(routes::show_document()),
            LedgerOperation::Result(_)
            | LedgerOperation::Heartbeat(_)
            | LedgerOperation::Withdraw(_)
            | LedgerOperation::Cancel(_)
                if ask.is_of_services() || services::has_credential(&head.headers, self.late.services()) =>
            {
                // The head comes first: 8 MiB are read only for a client that may be a service.
                let claim = services::read_claim(&head.headers, self.late.services())?;
                let is_unverified = matches!(claim, ServiceClaim::Signature { .. });
                let mut share = is_unverified.then(|| self.unverified.begin_share());
                let body = collect_body(body, ask.bytes_max(), share.as_mut()).await?;
                services::answer_service(self, &ask, &claim, &body).await
            }
            _ if ask.is_of_intents() => self.run_intent_request(&ask, head, body, reader).await,
            _ => {
                // Likewise, no body is read for an unverified caller.
                let reader = self.verified_reader(reader).await?;
                let body = collect_body(body, ask.bytes_max(), None).await?;
                owners::answer_owner(self, &ask, reader, &body).await
            }
        }
    }

    /// Authenticates a request about intents, reads its body and carries it out.
    async fn run_intent_request(
        &self,
        ask: &LedgerOperation,
        head: &Parts,
        body: BoxedBody,
        reader: LedgerReader,
    ) -> Result<Response<ApiBody>, Problem> {
        let holder = match services::service_of_token(&head.headers, self.late.services()) {
            Some(service) => Holder::Service(service),
            None => Holder::Caller(self.intent_reader(reader).await?),
        };
        let is_read = matches!(ask, LedgerOperation::Intent(_));
        if let Holder::Caller(caller) = holder
            && !is_read
            && !self.late.intents().may_claim(caller)
        {
            return Err(ProblemCode::SeveralPeople.into());
        }
        let body = collect_body(body, ask.bytes_max(), None).await?;
        intents::answer_holder(self, ask, holder, head, &body).await
    }

    /// Returns the caller of a request about intents, if its credential is known to be genuine.
    async fn intent_reader(&self, reader: LedgerReader) -> Result<Caller, Problem> {
        match reader {
            LedgerReader::Checked(caller) => Ok(caller),
            _ => self.verified_reader(reader).await,
        }
    }

    /// Returns the caller if it is verified: a provider has answered it with success.
    async fn verified_reader(&self, reader: LedgerReader) -> Result<Caller, Problem> {
        let reader = match reader {
            LedgerReader::Checked(reader) | LedgerReader::Known(reader) => reader,
            LedgerReader::SharedKey => return Err(ProblemCode::SharedKey.into()),
            LedgerReader::Unknown => return Err(ProblemCode::NotFound.into()),
        };
        match self.late.callers().verify(reader, clock::now() + VERIFY_TIMEOUT).await {
            Ok(true) => Ok(reader),
            Ok(false) => Err(ProblemCode::NotFound.into()),
            // Unknown is not "no": a caller with results must not be told that it has none.
            Err(Unread) => Err(ProblemCode::Unavailable.into()),
        }
    }
}

/// Collects a body of at most `limit` bytes. `share` is its part of the memory of unverified bodies, if it is one.
async fn collect_body(
    body: BoxedBody,
    limit: usize,
    mut share: Option<&mut UnverifiedShare>,
) -> Result<Bytes, Problem> {
    let admit = |length: usize, before: usize| {
        if length > limit.saturating_sub(before) {
            Err(ProblemCode::TooLarge)
        } else if share.as_mut().is_some_and(|share| !share.add(length)) {
            Err(ProblemCode::Busy)
        } else {
            Ok(())
        }
    };
    api::collect_body(body, ProblemCode::Malformed, admit).await
}

impl From<LateError> for Problem {
    fn from(error: LateError) -> Self {
        tracing::warn!(%error, "a ledger API request failed: the ledger returned an error");
        Self::from_code(match error {
            // The cause goes to the log only: a caller learns the code, and nothing of the operator's store.
            LateError::Ledger(LedgerError::Full { .. }) => ProblemCode::Full,
            LateError::Ledger(LedgerError::TooLarge) => ProblemCode::TooLarge,
            LateError::Ledger(LedgerError::Store(_) | LedgerError::Closed)
            | LateError::Busy
            | LateError::ClockStep
            | LateError::Random(_) => ProblemCode::Unavailable,
        })
    }
}

/// Returns the value of a header. `None` if it is missing, repeated or not text.
fn single_header<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let mut values = headers.get_all(name).iter();
    // A repeated credential could be read differently by a proxy in front.
    let value = values.next().filter(|_| values.next().is_none())?;
    value.to_str().ok().map(str::trim)
}
