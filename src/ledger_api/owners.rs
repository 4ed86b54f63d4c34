//! Requests of callers about their own calls: lookup, outstanding results, feed, acknowledgement, close.

use std::borrow::Cow;

use http::{Response, StatusCode};
use serde_json::json;

use super::{
    Ask, LedgerApi, LedgerBody,
    answer::{Code, Refusal, answer, raw},
    asked,
    delivery_id::{format_delivery_id, parse_delivery_id},
    feed,
};
use crate::{
    auth::Caller,
    clock,
    late::entry::Call,
    ledger::Name,
    session::LaneId,
    session_table::Detached,
    wire::{
        CONTENT_DEPTH_MAX,
        json::{compact, deeper_than, quoted},
    },
};

/// Answers a request of a caller. Records of other callers look as if they did not exist.
pub(super) async fn answer_owner(
    api: &LedgerApi,
    ask: &Ask,
    owner: Caller,
    body: &[u8],
) -> Result<Response<LedgerBody>, Refusal> {
    match ask {
        Ask::Lookup => {
            let ids = asked::ids(body)?;
            let found = api.late.lookup(owner, &ids).await?;
            // Rows repeat the id as the caller wrote it: a client may strip characters of the recorded one.
            let named = ids.iter().zip(&found);
            let rows =
                named.filter_map(|(id, found)| found.as_ref().map(|(name, call)| result_row(id, name, call, true)));
            Ok(list_response("results", rows))
        }
        Ask::Outstanding => {
            let waiting = api.late.outstanding(owner).await?;
            // Without content: the list may name many results, and a lookup returns the content.
            let rows = waiting
                .iter()
                .map(|(name, call)| result_row(&call.id, name, call, false));
            Ok(list_response("outstanding", rows))
        }
        Ask::Feed => feed::open(api, owner),
        Ask::Ack(id) => {
            let name = parse_delivery_id(id).ok_or(Refusal::of(Code::NotFound))?;
            if api.late.ack(owner, name).await? {
                Ok(answer(StatusCode::OK, &json!({ "state": "acked" })))
            } else {
                Err(Refusal::of(Code::NotFound))
            }
        }
        Ask::Close(session) => {
            if let Ok(session) = std::str::from_utf8(session) {
                api.late.close(owner, session);
                // The path names no format, so the session's main lane of every format is closed.
                let lanes = LaneId::main_of(owner.principal().as_bytes(), session);
                let left = lanes.map(|lane| api.sessions.close(lane, clock::now()));
                api.telemetry.record_detached_calls(Detached::Closed, left.iter().sum());
            }
            // The answer is the same for an unknown session, so that session names cannot be probed.
            Ok(answer(StatusCode::OK, &json!({ "state": "closed" })))
        }
        Ask::Result(_) | Ask::Heartbeat(_) => Err(Refusal::of(Code::NotFound)),
    }
}

/// Builds an answer with one list, whose rows are JSON already.
fn list_response(name: &str, rows: impl Iterator<Item = String>) -> Response<LedgerBody> {
    let rows: Vec<String> = rows.collect();
    raw(StatusCode::OK, format!("{{\"{name}\":[{}]}}", rows.join(",")).into())
}

/// Writes a call with its posted result as a JSON object.
fn result_row(id: &[u8], name: &Name, call: &Call, with_content: bool) -> String {
    let Some(posted) = &call.posted else {
        return "null".to_owned();
    };
    let content = if with_content {
        format!(",\"content\":{}", readable_content(&posted.content))
    } else {
        String::new()
    };
    // Written by hand, so that the content keeps the bytes that were posted.
    format!(
        "{{\"call_id\":{},\"tool\":{},\"delivery\":\"{}\",\"state\":\"{}\",\"is_error\":{},\"posted_at\":{}{content}}}",
        quoted(&String::from_utf8_lossy(id)),
        quoted(&String::from_utf8_lossy(&call.tool)),
        format_delivery_id(name),
        call.state.label(),
        posted.failed,
        posted.posted_at.as_secs(),
    )
}

/// Returns a content as JSON. One that is nested too deep for common JSON readers becomes a JSON string.
fn readable_content(content: &str) -> Cow<'_, str> {
    if deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX).is_none() {
        return Cow::Borrowed(content);
    }
    // Such a content was posted by an earlier version, which did not limit the depth.
    Cow::Owned(quoted(&compact(content.as_bytes())))
}
