//! Messages with a role that a server does not know get the role `system`.

use crate::{
    mend::{
        body::{MendBody, MendMessage},
        candidate::{Candidate, MendChange},
    },
    splice::{Edit, Piece},
    wire::HistoryShape,
    work,
};

/// Roles that every server knows: none of them changes.
pub(in crate::mend) const KNOWN_ROLES: [&str; 6] = ["", "system", "user", "assistant", "tool", "function"];

/// Returns the messages with this role.
pub(in crate::mend) fn find(body: &MendBody<'_>, role: &str) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Chat => {}
        // Responses has `developer` in its format, the others have no instructions with a role of that kind.
        HistoryShape::Messages | HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    if KNOWN_ROLES.contains(&role) {
        return Vec::new();
    }
    work::count(body.messages.len());
    let named = body.messages.iter().enumerate();
    let named = named.filter(|(_, message)| *message.role == *role.as_bytes());
    let rename = |(at, message): (usize, &MendMessage<'_>)| {
        let edit = Edit {
            span: body.json.string_member(message.span, "role")?,
            pieces: vec![Piece::Constant("\"system\"")],
        };
        Some(Candidate::of_message(at, role, MendChange::Edit(vec![edit])))
    };
    named.filter_map(rename).collect()
}
