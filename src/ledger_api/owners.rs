//! What owners ask about their own calls.

use std::borrow::Cow;

use http::{Response, StatusCode};
use serde_json::json;

use super::{
    Ask, LedgerApi, LedgerBody,
    answer::{Code, Refusal, answer, raw},
    asked, feed,
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

impl LedgerApi {
    /// Answers an owner. What is not his is not there.
    pub(super) async fn owner(&self, ask: &Ask, owner: Caller, body: &[u8]) -> Result<Response<LedgerBody>, Refusal> {
        match ask {
            Ask::Lookup => {
                let ids = asked::ids(body)?;
                let found = self.late.lookup(owner, &ids).await?;
                let named = ids.iter().zip(&found);
                let rows = named.filter_map(|(id, found)| found.as_ref().map(|(name, call)| row(id, name, call, true)));
                Ok(page("results", rows))
            }
            Ask::Outstanding => {
                let waiting = self.late.outstanding(owner).await?;
                let rows = waiting.iter().map(|(name, call)| row(&call.id, name, call, false));
                Ok(page("outstanding", rows))
            }
            Ask::Feed => feed::open(self, owner),
            Ask::Ack(id) => {
                let name = named(id).ok_or(Refusal::of(Code::NotFound))?;
                if self.late.ack(owner, name).await? {
                    Ok(answer(StatusCode::OK, &json!({ "state": "acked" })))
                } else {
                    Err(Refusal::of(Code::NotFound))
                }
            }
            Ask::Close(session) => {
                if let Ok(session) = std::str::from_utf8(session) {
                    self.late.close(owner, session);
                    let lanes = LaneId::main_of(owner.principal().as_bytes(), session);
                    let left = lanes.map(|lane| self.sessions.close(lane, clock::now()));
                    self.telemetry
                        .record_detached_calls(Detached::Closed, left.iter().sum());
                }
                // Whether there was such a session is not told.
                Ok(answer(StatusCode::OK, &json!({ "state": "closed" })))
            }
            Ask::Result(_) | Ask::Heartbeat(_) => Err(Refusal::of(Code::NotFound)),
        }
    }
}

/// A list under its name, of rows that are JSON already.
fn page(name: &str, rows: impl Iterator<Item = String>) -> Response<LedgerBody> {
    let rows: Vec<String> = rows.collect();
    raw(StatusCode::OK, format!("{{\"{name}\":[{}]}}", rows.join(",")).into())
}

/// A settled call. The content stands as it was posted, unless it is too deep for common readers: then as text.
fn row(id: &[u8], name: &Name, call: &Call, with_content: bool) -> String {
    let Some(posted) = &call.posted else {
        return "null".to_owned();
    };
    let content = if with_content {
        format!(",\"content\":{}", readable(&posted.content))
    } else {
        String::new()
    };
    format!(
        "{{\"call_id\":{},\"tool\":{},\"delivery\":\"{}\",\"state\":\"{}\",\"is_error\":{},\"posted_at\":{}{content}}}",
        quoted(&String::from_utf8_lossy(id)),
        quoted(&String::from_utf8_lossy(&call.tool)),
        shown(name),
        call.state.label(),
        posted.failed,
        posted.posted_at.as_secs(),
    )
}

/// Returns a content, or its JSON as text where it was posted before there was a limit to its depth.
fn readable(content: &str) -> Cow<'_, str> {
    if deeper_than(content.as_bytes(), CONTENT_DEPTH_MAX).is_none() {
        return Cow::Borrowed(content);
    }
    Cow::Owned(quoted(&compact(content.as_bytes())))
}

/// How a delivery is named.
pub(super) fn shown(name: &Name) -> String {
    blake3::Hash::from_bytes(*name).to_hex().to_string()
}

fn named(text: &[u8]) -> Option<Name> {
    blake3::Hash::from_hex(text).ok().map(|hash| *hash.as_bytes())
}
