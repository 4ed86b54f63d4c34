//! Requests of callers about their own calls: lookup, outstanding results, feed, acknowledgement, close.

use std::time::Duration;

use futures_util::future::join_all;
use http::{Response, StatusCode};

use super::{
    LedgerApi,
    answers::{
        AckedListView, AckedView, CallListView, CallerView, ClosedView, FoundListView, FoundResultView, ListedCallView,
    },
    cancels,
    delivery_id::parse_delivery_id,
    feed,
    list_query::{ListQuery, ListedState},
    operation::LedgerOperation,
    request_body::{self, AcksBody, LookupBody},
};
use crate::{
    api::{ApiBody, Problem, ProblemCode, json::json_response},
    auth::Caller,
    clock,
    late::{CallFilter, NamedCallRecord},
    ledger::RecordName,
    session::{LaneId, session_hash},
    session_table::DetachReason,
};

/// The most bytes of contents in one list: 8 MiB.
const LISTED_BYTES_MAX: u64 = 8 * 1024 * 1024;
/// Timeout for reading the contents of a list: 10 seconds.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers a request of a caller. Records of other callers look as if they did not exist.
pub(super) async fn answer_owner(
    api: &LedgerApi,
    ask: &LedgerOperation,
    owner: Caller,
    body: &[u8],
) -> Result<Response<ApiBody>, Problem> {
    match ask {
        LedgerOperation::Lookup => look_up_results(api, owner, body).await,
        LedgerOperation::Outstanding(query) => list_outstanding(api, owner, query).await,
        LedgerOperation::Me => show_caller(api, owner).await,
        LedgerOperation::Feed(last) => follow_feed(api, owner, *last).await,
        LedgerOperation::Ack(id) => ack_result(api, owner, id).await,
        LedgerOperation::AckAll => ack_results(api, owner, body).await,
        LedgerOperation::Close(session) => Ok(close_session(api, owner, session)),
        LedgerOperation::Cancel(id) => cancels::request_cancel(api, owner, id).await,
        LedgerOperation::Document
        | LedgerOperation::Result(_)
        | LedgerOperation::Heartbeat(_)
        | LedgerOperation::Withdraw(_)
        | LedgerOperation::Claim
        | LedgerOperation::Intent(_)
        | LedgerOperation::IntentHeartbeat(_)
        | LedgerOperation::IntentResult(_)
        | LedgerOperation::IntentCancel(_)
        | LedgerOperation::MakeTaskLink
        | LedgerOperation::RevokeTaskLink(_)
        | LedgerOperation::ListTasks(_)
        | LedgerOperation::AckTask(_)
        | LedgerOperation::ResolveTask(_) => Err(ProblemCode::NotFound.into()),
    }
}

/// Returns the caller's public name and the number of results that wait
#[utoipa::path(get, path = "/ledger/v1/me", operation_id = "me", tag = "callers", responses(
    (status = 200, description = "the caller", body = CallerView),
))]
async fn show_caller(api: &LedgerApi, owner: Caller) -> Result<Response<ApiBody>, Problem> {
    let view = CallerView {
        owner: api.late.owner_of(owner).to_string(),
        outstanding: api.late.calls().count_waiting(owner).await?,
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// Returns the posted results of the caller's own calls, with content
///
/// Calls without a result, calls of other callers and reusable ids such as `call_0` are left out. An agent can ask for
/// its open calls before it sends a history.
#[utoipa::path(post, path = "/ledger/v1/lookup", operation_id = "lookup", tag = "callers",
    request_body(content = LookupBody, description = "64 KiB at most"), responses(
    (status = 200, description = "the results", body = FoundListView<'_>),
))]
async fn look_up_results(api: &LedgerApi, owner: Caller, body: &[u8]) -> Result<Response<ApiBody>, Problem> {
    let ids = request_body::read_call_ids(body)?;
    let found = api.late.calls().look_up_calls(owner, &ids).await?;
    // Rows repeat the id as the caller wrote it: a client may strip characters of the recorded one.
    let named = ids.iter().zip(&found);
    let rows = named.filter_map(|(id, found)| {
        let ((name, call), content) = found.as_ref()?;
        FoundResultView::of_result(id, name, call, content)
    });
    let view = FoundListView {
        results: rows.collect(),
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// Lists the caller's results that wait, or calls that still run, the oldest first
///
/// An unknown parameter is refused, because a misspelt filter would return other calls than the wanted ones.
#[utoipa::path(get, path = "/ledger/v1/outstanding", operation_id = "outstanding", tag = "callers", params(
    ("state" = inline(Option<ListedState>), Query,
        description = "`settled` (the default) for results that wait, `open` for calls that still run"),
    ("session" = Option<String>, Query, description = "the name of a session: only its calls"),
    ("after" = Option<String>, Query, description = "the value of `next` from the page before", pattern = "^[0-9]{1,19}$"),
    ("limit" = Option<u64>, Query, description = "the limit of rows; 1000 by default", minimum = 1, maximum = 1000),
    ("content" = Option<bool>, Query, description = "`true` for results with their contents, up to 8 MiB of them"),
), responses(
    (status = 200, description = "a page of calls", body = CallListView<'_>),
))]
async fn list_outstanding(api: &LedgerApi, owner: Caller, query: &ListQuery) -> Result<Response<ApiBody>, Problem> {
    api.late.readers().note_read(owner);
    let session = query.session.as_deref();
    let filter = CallFilter {
        is_open: query.state == ListedState::Open,
        session: session.map(|name| session_hash(owner.principal(), name)),
    };
    let page = api
        .late
        .calls()
        .list_calls(owner, filter, query.after, query.limit)
        .await?;
    let contents = if query.has_content {
        read_contents(api, owner, &page.rows).await?
    } else {
        Vec::new()
    };
    let rows = page.rows.iter().enumerate().map(|(at, (name, call))| {
        let content = contents.get(at).and_then(Option::as_deref);
        ListedCallView::of_call(name, call, content)
    });
    let view = CallListView {
        outstanding: rows.collect(),
        next: page.next.map(|next| next.to_string()),
    };
    Ok(json_response(StatusCode::OK, &view))
}

/// Reads the contents of these calls' results, as far as they fit into one answer.
async fn read_contents(
    api: &LedgerApi,
    owner: Caller,
    calls: &[NamedCallRecord],
) -> Result<Vec<Option<String>>, Problem> {
    let mut room = LISTED_BYTES_MAX;
    let fits = |(_, call): &&NamedCallRecord| {
        let length = call.posted.as_ref().map_or(0, |posted| posted.content.byte_len());
        room.checked_sub(length).map(|left| room = left).is_some()
    };
    let fitting: Vec<NamedCallRecord> = calls.iter().take_while(fits).cloned().collect();
    let read = api
        .late
        .calls()
        .read_contents(owner, &fitting, clock::now() + READ_TIMEOUT)
        .await;
    read.map_err(|_| Problem::from_code(ProblemCode::Unavailable))
}

/// Streams an event for each posted result of the caller
///
/// Each event `settled` has the delivery as its `id`, and a `SettledEvent` as its data. An event `missed` reports that
/// the client was too slow and some events were dropped. A comment follows every 15 seconds without an event.
#[utoipa::path(get, path = "/ledger/v1/feed", operation_id = "feed", tag = "callers", params(
    ("Last-Event-ID" = Option<String>, Header,
        description = "the id of the last event that was received: the feed begins with the waiting results after it"),
), responses(
    (status = 200, description = "server-sent events; the stream never ends by itself",
        content_type = "text/event-stream", body = String),
))]
async fn follow_feed(api: &LedgerApi, owner: Caller, last: Option<RecordName>) -> Result<Response<ApiBody>, Problem> {
    api.late.readers().note_read(owner);
    feed::open_feed(api, owner, last).await
}

/// Acknowledges a result, so that it no longer waits; also if it was acknowledged before
#[utoipa::path(post, path = "/ledger/v1/deliveries/{delivery}/ack", operation_id = "ack", tag = "callers", params(
    ("delivery" = String, Path, description = "the `delivery` of a listed call, or the id of an event",
        pattern = "^[0-9a-f]{64}$"),
), responses(
    (status = 200, description = "the result is acknowledged", body = AckedView),
))]
async fn ack_result(api: &LedgerApi, owner: Caller, id: &[u8]) -> Result<Response<ApiBody>, Problem> {
    let name = parse_delivery_id(id).ok_or(ProblemCode::NotFound)?;
    if api.late.calls().ack_result(owner, name).await? {
        Ok(json_response(StatusCode::OK, &AckedView::ACKED))
    } else {
        Err(ProblemCode::NotFound.into())
    }
}

/// Acknowledges several results, so that they no longer wait
///
/// Results of other callers and unknown ones are left out of the number.
#[utoipa::path(post, path = "/ledger/v1/deliveries/ack", operation_id = "ack_all", tag = "callers",
    request_body(content = AcksBody, description = "64 KiB at most"), responses(
    (status = 200, description = "the number of acknowledged results", body = AckedListView),
))]
async fn ack_results(api: &LedgerApi, owner: Caller, body: &[u8]) -> Result<Response<ApiBody>, Problem> {
    let names = request_body::read_deliveries(body)?;
    // Side by side, so that the ledger stores them together.
    let acks = names.into_iter().map(|name| api.late.calls().ack_result(owner, name));
    let mut acknowledged = 0;
    for acked in join_all(acks).await {
        acknowledged += usize::from(acked?);
    }
    Ok(json_response(StatusCode::OK, &AckedListView { acknowledged }))
}

/// Reports that no client waits in a session any more; the answer is the same for an unknown session
#[utoipa::path(post, path = "/ledger/v1/sessions/{session}/close", operation_id = "close", tag = "callers", params(
    ("session" = String, Path, description = "the name of the session, percent-encoded; see `call_id` for the characters",
        min_length = 1, pattern = "^(?!\\.{1,2}(;|$))[^/\\\\%\\x00-\\x1f\\x7f]+$"),
), responses(
    (status = 200, description = "the session is closed", body = ClosedView),
))]
fn close_session(api: &LedgerApi, owner: Caller, session: &[u8]) -> Response<ApiBody> {
    if let Ok(session) = std::str::from_utf8(session) {
        api.late.calls().note_session_closed(owner, session);
        // The path names no format, so the session's main lane of every format is closed.
        let lanes = LaneId::main_lanes(&owner, session);
        let left = lanes.map(|lane| api.sessions.close_lane(lane, clock::now()));
        api.telemetry
            .record_detached_calls(DetachReason::Closed, left.iter().sum());
    }
    // The answer is the same for an unknown session, so that session names cannot be probed.
    json_response(StatusCode::OK, &ClosedView::CLOSED)
}
