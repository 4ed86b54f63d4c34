//! What a client has put into a gap that the provider has seen otherwise, at the end of the user's words.

use bytes::Bytes;

use super::owed::APPENDED_BYTES_MAX;
use crate::{
    recall::{APPENDED_CALLS_MAX, Appended},
    repair::{Anchor, CallKey, Placeholder, RepairPolicy, append, late_text, places, views},
    wire::Wire,
};

/// A body with results at the end of its last message.
#[derive(Debug)]
pub(super) struct AtTheEnd {
    pub(super) body: Bytes,
    pub(super) anchor: Anchor,
    pub(super) appended: Appended,
}

/// Puts the results of these calls, which stand in their places, at the end of the last message. None where that holds no
/// words of the user's, or one of them says nothing that can be put.
pub(super) fn at_the_end(
    plain: &Bytes,
    wire: Wire,
    policy: &RepairPolicy,
    calls: &[(CallKey, Placeholder)],
) -> Option<AtTheEnd> {
    let place = places(plain, wire).pop().filter(|place| !place.is_answered)?;
    let body = views(plain, wire, policy);
    if body.only_results || !body.ends_at(place.message) {
        return None;
    }
    let said = |(key, _): &(CallKey, Placeholder)| {
        let view = body.calls.iter().find(|view| view.key == *key)?;
        let (id, tool) = (String::from_utf8_lossy(&view.id), String::from_utf8_lossy(&view.tool));
        let said = view.said?;
        let content = std::str::from_utf8(said.content.of(plain)).ok()?;
        Some(late_text(&id, &tool, content, said.failed))
    };
    let texts: Option<Vec<String>> = calls.iter().map(said).collect();
    let appended = Appended {
        text: texts?.join("\n\n"),
        calls: calls.iter().map(|(call, _)| *call.as_bytes()).collect(),
    };
    if appended.text.len() > APPENDED_BYTES_MAX || appended.calls.len() > APPENDED_CALLS_MAX {
        return None;
    }
    let body = append(plain, wire, &[(place.message, appended.text.clone())]).ok()?;
    Some(AtTheEnd {
        body,
        anchor: place.anchor,
        appended,
    })
}
