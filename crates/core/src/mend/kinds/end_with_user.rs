//! A constant message of the user follows the last one, if that is the assistant's. An empty one of the assistant goes.

use crate::{
    conversation::Role,
    mend::{
        body::MendBody,
        candidate::{Candidate, Change},
        texts,
    },
    wire::json::{self, JsonKind, ListElement},
};

/// Returns the last message, if it is the assistant's.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let Some((at, last)) = body.messages.iter().enumerate().next_back() else {
        return Vec::new();
    };
    if last.author != Role::Assistant {
        return Vec::new();
    }
    let json = body.json;
    let is_empty = last.calls.is_empty()
        && last.content.is_none_or(|content| match json.kind(content) {
            JsonKind::String => json.decode_string(content).trim_ascii().is_empty(),
            JsonKind::Array => json.is_empty(content),
            JsonKind::Null => true,
            JsonKind::Object | JsonKind::Other => false,
        });
    let is_message = last.kind.is_empty() || *last.kind == *b"message";
    let stays = if is_empty && is_message {
        at
    } else {
        at.saturating_add(1)
    };
    let mut wanted: Vec<ListElement> = (0..stays).map(|at| ListElement::Kept(at, Vec::new())).collect();
    let ends_with_model = stays > at
        || at.checked_sub(1).is_none_or(|before| {
            body.messages
                .get(before)
                .is_none_or(|message| message.author == Role::Assistant)
        });
    if ends_with_model {
        let message = body.wire.format.write_text_message(true, texts::GO_ON);
        wanted.push(ListElement::New(message));
    }
    let edits = json::rebuild_list(body.history, &body.message_spans(), wanted);
    vec![Candidate::of_message(at, "assistant", Change::Edit(edits))]
}
