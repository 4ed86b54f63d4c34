//! The message of an error body: the text that clients read.

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// The members of error bodies that are a message, or the object that has it.
const MESSAGE_MEMBERS: [&[u8]; 4] = [b"error", b"message", b"Message", b"detail"];
/// Largest number of objects and lists around a message.
const NESTING_MAX: u8 = 3;

/// The message of an error.
#[derive(Clone, Copy, Debug)]
pub(super) struct ErrorMessage {
    /// The string, quotes included.
    pub(super) text: Span,
    /// The object that has it as its member `message`. `None` if the string is the error itself.
    pub(super) holder: Option<Span>,
}

/// Finds the message of an error body. `None` if there is none, or more than one: clients may read either.
pub(super) fn find_message(json: Json<'_>) -> Option<ErrorMessage> {
    find_in(json, json.root_span().ok()?, NESTING_MAX)
}

fn find_in(json: Json<'_>, value: Span, nesting: u8) -> Option<ErrorMessage> {
    let nesting = nesting.checked_sub(1)?;
    match json.kind(value) {
        JsonKind::Object => {
            let mut found = Vec::new();
            let walked = json.for_each_member(value, |key, value| {
                let name = MESSAGE_MEMBERS.into_iter().find(|name| *name == key);
                found.extend(name.map(|name| (name, value)));
            });
            walked.ok()?;
            found.sort_unstable_by_key(|(name, _)| *name);
            let is_twice = found
                .windows(2)
                .any(|pair| matches!(pair, [(one, _), (other, _)] if one == other));
            // Neither `null` nor `true` is a message.
            let has_text = |kind| matches!(kind, JsonKind::String | JsonKind::Object | JsonKind::Array);
            found.retain(|(_, value)| has_text(json.kind(*value)));
            let &[(name, inner)] = found.as_slice() else {
                return None;
            };
            match json.kind(inner) {
                _ if is_twice => None,
                JsonKind::String => Some(ErrorMessage {
                    text: inner,
                    holder: (name == b"message").then_some(value),
                }),
                _ => find_in(json, inner, nesting),
            }
        }
        // Google's list of one error. A list of several has several messages.
        JsonKind::Array => match *json.elements(value).as_slice() {
            [only] => find_in(json, only, nesting),
            _ => None,
        },
        _ => None,
    }
}
