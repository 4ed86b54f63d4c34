//! Tool messages get the name of their call.

use std::collections::HashMap;

use crate::{
    conversation::Text,
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
        wordless::is_void,
    },
    splice::{Piece, Span},
    wire::HistoryShape,
    work,
};

/// Returns the tool messages without a name whose call stands before them.
///
/// Of several calls with one id the last one counts.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Chat => {}
        // The results of Gemini have names, those of the other formats never.
        HistoryShape::Messages | HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let json = body.json;
    let mut names: HashMap<Text<'_>, Span> = HashMap::new();
    let mut found = Vec::new();
    for (at, message) in body.messages.iter().enumerate() {
        work::count(message.calls.len().saturating_add(1));
        for call in &message.calls {
            if let Some(name) = name_of(body, *call) {
                names.insert(json.member_text(*call, "id"), name);
            }
        }
        if *message.role != *b"tool" {
            continue;
        }
        let [name, id] = json.members(message.span, ["name", "tool_call_id"]);
        let id = id.map_or_else(Text::default, |id| json.decode_string(id));
        if id.is_empty() || name.is_some_and(|name| !is_void(body, name)) {
            continue;
        }
        if let Some(name) = names.get(&id) {
            let edit = json.set_member(message.span, "name", vec![Piece::Original(*name)]);
            found.push(Candidate::of_message(at, "tool", MendChange::Edit(vec![edit])));
        }
    }
    found
}

/// Returns the name of a call, quotes included. `None` if it has none.
fn name_of(body: &MendBody<'_>, call: Span) -> Option<Span> {
    let json = body.json;
    let [function, custom] = json.members(call, ["function", "custom"]);
    let name = json.string_member(function.or(custom)?, "name")?;
    (!json.string_inside(name).is_empty()).then_some(name)
}
