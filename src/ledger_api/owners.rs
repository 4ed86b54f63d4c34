//! Requests of callers about their own calls: lookup, outstanding results, feed, acknowledgement, close.

use std::borrow::Cow;

use http::{Response, StatusCode};
use serde_json::json;

use super::{
    LedgerApi, LedgerBody, LedgerOperation,
    delivery_id::{format_delivery_id, parse_delivery_id},
    feed,
    list_query::{ListQuery, ListedState},
    request_body,
    response::{ApiErrorCode, ApiRefusal, json_response, raw_json_response},
};
use crate::{
    auth::Caller,
    clock,
    late::{CallFilter, records::RecordedCall},
    ledger::RecordName,
    session::{LaneId, session_hash},
    session_table::DetachReason,
    wire::{
        CONTENT_DEPTH_MAX,
        json::{compact_json, deeper_than, quote_string},
    },
};

/// Answers a request of a caller. Records of other callers look as if they did not exist.
pub(super) async fn answer_owner(
    api: &LedgerApi,
    ask: &LedgerOperation,
    owner: Caller,
    body: &[u8],
) -> Result<Response<LedgerBody>, ApiRefusal> {
    match ask {
        LedgerOperation::Lookup => {
            let ids = request_body::read_call_ids(body)?;
            let found = api.late.look_up_calls(owner, &ids).await?;
            // Rows repeat the id as the caller wrote it: a client may strip characters of the recorded one.
            let named = ids.iter().zip(&found);
            let rows = named.filter_map(|(id, found)| {
                let ((name, call), content) = found.as_ref()?;
                Some(result_row(id, name, call, Some(content)))
            });
            Ok(list_response("results", rows))
        }
        LedgerOperation::Outstanding(query) => list_outstanding(api, owner, query).await,
        LedgerOperation::Me => {
            let body = json!({
                "owner": api.late.owner_of(owner).to_string(),
                "outstanding": api.late.count_waiting(owner).await?,
            });
            Ok(json_response(StatusCode::OK, &body))
        }
        LedgerOperation::Feed(last) => feed::open_feed(api, owner, *last).await,
        LedgerOperation::Ack(id) => {
            let name = parse_delivery_id(id).ok_or(ApiRefusal::from_code(ApiErrorCode::NotFound))?;
            if api.late.ack_result(owner, name).await? {
                Ok(json_response(StatusCode::OK, &json!({ "state": "acked" })))
            } else {
                Err(ApiRefusal::from_code(ApiErrorCode::NotFound))
            }
        }
        LedgerOperation::Close(session) => {
            if let Ok(session) = std::str::from_utf8(session) {
                api.late.note_session_closed(owner, session);
                // The path names no format, so the session's main lane of every format is closed.
                let lanes = LaneId::main_lanes(&owner, session);
                let left = lanes.map(|lane| api.sessions.close_lane(lane, clock::now()));
                api.telemetry
                    .record_detached_calls(DetachReason::Closed, left.iter().sum());
            }
            // The answer is the same for an unknown session, so that session names cannot be probed.
            Ok(json_response(StatusCode::OK, &json!({ "state": "closed" })))
        }
        LedgerOperation::Result(_) | LedgerOperation::Heartbeat(_) | LedgerOperation::Withdraw(_) => {
            Err(ApiRefusal::from_code(ApiErrorCode::NotFound))
        }
    }
}

/// Builds an answer with one list, whose rows are JSON already.
fn list_response(name: &str, rows: impl Iterator<Item = String>) -> Response<LedgerBody> {
    let rows: Vec<String> = rows.collect();
    raw_json_response(StatusCode::OK, format!("{{\"{name}\":[{}]}}", rows.join(",")).into())
}

/// Lists calls of the caller: those whose results wait, or those that still run.
async fn list_outstanding(
    api: &LedgerApi,
    owner: Caller,
    query: &ListQuery,
) -> Result<Response<LedgerBody>, ApiRefusal> {
    let session = query.session.as_deref();
    let filter = CallFilter {
        is_open: query.state == ListedState::Open,
        session: session.map(|name| session_hash(owner.principal(), name)),
    };
    let page = api.late.list_calls(owner, filter, query.after, query.limit).await?;
    // Without content: the list may name many results, and a lookup returns the content.
    let rows = page
        .calls
        .iter()
        .map(|(name, call)| result_row(&call.id, name, call, None));
    let rows: Vec<String> = rows.collect();
    let next = page
        .next
        .map_or_else(|| "null".to_owned(), |next| format!("\"{next}\""));
    let body = format!("{{\"outstanding\":[{}],\"next\":{next}}}", rows.join(","));
    Ok(raw_json_response(StatusCode::OK, body.into()))
}

/// Writes a call as a JSON object, with its posted result if it has one.
fn result_row(id: &[u8], name: &RecordName, call: &RecordedCall, content: Option<&String>) -> String {
    let text = |bytes: &[u8]| quote_string(&String::from_utf8_lossy(bytes));
    let session = call
        .session_label
        .as_deref()
        .map_or_else(|| "null".to_owned(), quote_string);
    let (since, age) = match &call.posted {
        Some(posted) => ("posted_at", posted.posted_at),
        None => ("opened_at", call.opened_at),
    };
    // Written by hand, so that the content keeps the bytes that were posted.
    let mut row = format!(
        "{{\"call_id\":{},\"tool\":{},\"session\":{session},\"delivery\":\"{}\",\"state\":\"{}\",\"{since}\":{},\"age\":{}",
        text(id),
        text(&call.tool),
        format_delivery_id(name),
        call.state.label(),
        age.as_secs(),
        clock::unix_time().saturating_sub(age).as_secs(),
    );
    let members = match &call.posted {
        Some(posted) => format!(
            ",\"is_error\":{},\"bytes\":{},\"withheld\":{},\"digest\":\"{}\"",
            posted.failed,
            posted.content.byte_len(),
            call.is_withheld,
            blake3::Hash::from_bytes(posted.digest).to_hex(),
        ),
        None => format!(",\"deadline\":{}", call.deadline.as_secs()),
    };
    row.push_str(&members);
    if let Some(content) = content {
        row.push_str(",\"content\":");
        row.push_str(&readable_content(content));
    }
    row.push('}');
    row
}

/// Returns a content as JSON. One that is nested too deep for common JSON readers becomes a JSON string.
fn readable_content(content: &str) -> Cow<'_, str> {
    if deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX).is_none() {
        return Cow::Borrowed(content);
    }
    // Such a content was posted by an earlier version, which did not limit the depth.
    Cow::Owned(quote_string(&compact_json(content.as_bytes())))
}
