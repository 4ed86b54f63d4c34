//! An item of Responses loses the id of another maker. The id of its call stays.

use super::drop_reasoning::KEEP_IDS;
use crate::{
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    wire::{HistoryShape, openai_responses::write::result_id_key},
    work,
};

/// Returns the items with an id that they do not need.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Items => {}
        HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents => return Vec::new(),
    }
    let json = body.json;
    let mut found = Vec::new();
    for (at, item) in body.messages.iter().enumerate() {
        work::count(1);
        let id = json.member_text(item.span, "id");
        // The result of a local shell may name its call by this member.
        let names_call = result_id_key(json, item.span) == "id";
        if id.is_empty() || names_call || KEEP_IDS.contains(&&*item.kind) {
            continue;
        }
        let class = String::from_utf8_lossy(&item.kind);
        found.push(Candidate {
            hash: Some(body.hash_of(item.span)),
            id: String::from_utf8_lossy(&id).into(),
            ..Candidate::of_message(at, &class, MendChange::Edit(json.remove_member(item.span, "id")))
        });
    }
    found
}
