//! Thinking is off while a tool loop is open whose thinking is lost (Messages).

use crate::{
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    splice::Piece,
    wire::HistoryShape,
    work,
};

/// Returns the change of `thinking`, if it is enabled and the last answer waits for the model to go on after its calls.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Messages => {}
        HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let json = body.json;
    let thinking = json.member(body.root, "thinking");
    let is_enabled = thinking.is_some_and(|thinking| *json.member_text(thinking, "type") == *b"enabled");
    let mut newest = body
        .lists
        .iter()
        .filter(|list| list.message >= body.newest && !list.of_result);
    let is_open = newest.any(|list| {
        work::count(list.blocks.len());
        list.blocks.iter().any(|block| *block.kind == *b"tool_result")
    });
    if !is_enabled || !is_open {
        return Vec::new();
    }
    let edit = json.set_member(body.root, "thinking", vec![Piece::Constant(r#"{"type":"disabled"}"#)]);
    vec![Candidate::of_message(body.newest, "", MendChange::Edit(vec![edit]))]
}
