//! The order of calls and their results in Gemini's contents.

use std::collections::VecDeque;

use super::{
    body::MendBody,
    call_keys::{CALL_KEYS, RESULT_KEYS},
};
use crate::{conversation::Text, splice::Span, work};

/// Returns `true` if names and order pair the same calls and results as the ids in the parts do.
///
/// Then a provider that knows no ids reads the same pairs.
pub(super) fn pairs_without_ids(body: &MendBody<'_>) -> bool {
    let json = body.json;
    let mut open: VecDeque<(Text<'_>, Text<'_>)> = VecDeque::new();
    let labels = |object: Span| {
        let [name, id] = json.members(object, ["name", "id"]);
        let text = |value: Option<Span>| value.map_or_else(Text::default, |value| json.decode_string(value));
        (text(name), text(id))
    };
    let parts = body.lists.iter().flat_map(|list| &list.blocks);
    for part in parts {
        work::count(1);
        if let Some(call) = inner_object(body, part.span, CALL_KEYS) {
            open.push_back(labels(call));
        } else if let Some(result) = inner_object(body, part.span, RESULT_KEYS) {
            let (name, id) = labels(result);
            let Some((called, call_id)) = open.pop_front() else {
                return false;
            };
            let same_id = id == call_id || id.is_empty() || call_id.is_empty();
            if name != called || !same_id {
                return false;
            }
        }
    }
    true
}

/// Returns the object in a part under one of these keys.
pub(super) fn inner_object(body: &MendBody<'_>, part: Span, keys: [&str; 2]) -> Option<Span> {
    body.json.members(part, keys).into_iter().flatten().next()
}
