//! Each half of a character in the history becomes the replacement character.

use crate::{
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    splice::{Edit, Piece, Span},
    wire::json::{REPLACEMENT, find_lone_surrogate},
    work,
};

/// Returns the messages with halves of characters.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (at, message) in body.messages.iter().enumerate() {
        let bytes = message.span.of(body.bytes);
        let (mut edits, mut from) = (Vec::new(), 0);
        while let Some(escape) = find_lone_surrogate(bytes, from) {
            work::count(1);
            from = escape.saturating_add(REPLACEMENT.len());
            edits.push(Edit {
                span: Span::new(escape, from).shifted(message.span.start),
                pieces: vec![Piece::Constant(REPLACEMENT)],
            });
        }
        if !edits.is_empty() {
            // Halves are wrong in each message, so that the class is open.
            found.push(Candidate::of_message(at, "", MendChange::Edit(edits)));
        }
    }
    found
}
