//! Requests of callers about their own calls: lookup, outstanding results, feed, acknowledgement, close.

use std::borrow::Cow;

use http::{Response, StatusCode};
use serde_json::json;

use super::{
    LedgerApi, LedgerBody, LedgerOperation,
    delivery_id::{format_delivery_id, parse_delivery_id},
    feed, request_body,
    response::{ApiErrorCode, ApiRefusal, json_response, raw_json_response},
};
use crate::{
    auth::Caller,
    clock,
    late::records::RecordedCall,
    ledger::RecordName,
    session::LaneId,
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
        LedgerOperation::Outstanding => {
            let page = api.late.list_outstanding(owner, 0, 1024).await?;
            // Without content: the list may name many results, and a lookup returns the content.
            let rows = page
                .results
                .iter()
                .map(|(name, call)| result_row(&call.id, name, call, None));
            Ok(list_response("outstanding", rows))
        }
        LedgerOperation::Feed => feed::open_feed(api, owner),
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
        LedgerOperation::Result(_) | LedgerOperation::Heartbeat(_) => {
            Err(ApiRefusal::from_code(ApiErrorCode::NotFound))
        }
    }
}

/// Builds an answer with one list, whose rows are JSON already.
fn list_response(name: &str, rows: impl Iterator<Item = String>) -> Response<LedgerBody> {
    let rows: Vec<String> = rows.collect();
    raw_json_response(StatusCode::OK, format!("{{\"{name}\":[{}]}}", rows.join(",")).into())
}

/// Writes a call with its posted result as a JSON object.
fn result_row(id: &[u8], name: &RecordName, call: &RecordedCall, content: Option<&String>) -> String {
    let Some(posted) = &call.posted else {
        return "null".to_owned();
    };
    let content = content.map_or_else(String::new, |content| {
        format!(",\"content\":{}", readable_content(content))
    });
    // Written by hand, so that the content keeps the bytes that were posted.
    format!(
        "{{\"call_id\":{},\"tool\":{},\"delivery\":\"{}\",\"state\":\"{}\",\"is_error\":{},\"posted_at\":{},\"withheld\":{},\"digest\":\"{}\"{content}}}",
        quote_string(&String::from_utf8_lossy(id)),
        quote_string(&String::from_utf8_lossy(&call.tool)),
        format_delivery_id(name),
        call.state.label(),
        posted.failed,
        posted.posted_at.as_secs(),
        call.is_withheld,
        blake3::Hash::from_bytes(posted.digest).to_hex(),
    )
}

/// Returns a content as JSON. One that is nested too deep for common JSON readers becomes a JSON string.
fn readable_content(content: &str) -> Cow<'_, str> {
    if deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX).is_none() {
        return Cow::Borrowed(content);
    }
    // Such a content was posted by an earlier version, which did not limit the depth.
    Cow::Owned(quote_string(&compact_json(content.as_bytes())))
}
