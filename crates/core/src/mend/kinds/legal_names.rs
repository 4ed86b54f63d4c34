//! Names of messages get `_` for each character that the provider forbids. An empty name goes.

use crate::{
    conversation::Role,
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    splice::{Edit, Piece},
    wire::HistoryShape,
    work,
};

/// Returns the messages with a name that is not `^[a-zA-Z0-9_-]+$`. The names of results are those of tools.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Chat => {}
        // Messages of these formats have no names.
        HistoryShape::Messages | HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let json = body.json;
    let mut found = Vec::new();
    for (at, message) in body.messages.iter().enumerate() {
        work::count(1);
        if message.author == Role::Tool {
            continue;
        }
        let Some(span) = json.string_member(message.span, "name") else {
            continue;
        };
        let name = json.decode_string(span);
        let edits = if name.is_empty() {
            json.remove_member(message.span, "name")
        } else if let Some(name) = legal_name(&name) {
            let pieces = vec![Piece::Made(format!("\"{name}\""))];
            vec![Edit { span, pieces }]
        } else {
            continue;
        };
        found.push(Candidate::of_message(at, "", MendChange::Edit(edits)));
    }
    found
}

/// Returns a name with `_` for each other character. `None` if there is none.
fn legal_name(name: &[u8]) -> Option<String> {
    work::count(name.len());
    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
    let name = String::from_utf8_lossy(name);
    let legal: String = name
        .chars()
        .map(|letter| if is_legal(letter) { letter } else { '_' })
        .collect();
    (legal != name).then_some(legal)
}
