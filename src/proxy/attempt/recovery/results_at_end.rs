//! Client results that a resend moves to the end of the last message, where a provider refuses them in their places.

use bytes::Bytes;

use crate::{
    proxy::late_results::APPENDED_BYTES_MAX,
    recall::{APPENDED_CALLS_MAX, AppendedText},
    repair::{
        Anchor, CallKey, Insertions, LateCall, LateText, Paired, PlaceOptions, Placeholder, late_media, late_places,
        late_text,
    },
    wire::Format,
};

/// Body of a resend with results at the end of its last message.
pub(super) struct AppendedAtEnd {
    pub(super) body: Bytes,
    pub(super) anchor: Anchor,
    pub(super) appended: AppendedText,
}

/// Appends the results of these calls, which the client sends in their places, to the last message.
///
/// Returns `None` if that message contains no user text, or a result cannot be written there.
pub(super) fn append_at_end(
    plain: &Bytes,
    paired: &Paired<'_>,
    format: Format,
    calls: &[(CallKey, Placeholder)],
) -> Option<AppendedAtEnd> {
    // Each call is searched in the whole body: the limit bounds the work.
    if calls.len() > APPENDED_CALLS_MAX {
        return None;
    }
    // A message that a later turn answers is part of the prefix, and must stay as it is.
    let place = late_places(paired, PlaceOptions::default())
        .pop()
        .filter(|place| !place.is_answered)?;
    let is_last = place.message.saturating_add(1) == paired.message_count();
    // No text may follow while a tool runs at the provider. Only the very last message may still change.
    if paired.takes_only_results() || !is_last {
        return None;
    }
    let answered = paired.answered_calls();
    let (mut texts, mut media) = (Vec::new(), Vec::new());
    for (key, _) in calls {
        let call = answered.iter().find(|call| call.key == *key)?;
        let (id, tool) = (String::from_utf8_lossy(&call.id), String::from_utf8_lossy(&call.tool));
        let result = call.result?;
        let content = std::str::from_utf8(result.content.of(plain)).ok()?;
        texts.push(late_text(&id, &tool, content, result.failed, LateCall::InHistory));
        media.extend(late_media(format, content));
    }
    let appended = AppendedText {
        late: LateText {
            text: texts.join("\n\n"),
            media,
        },
        calls: calls.iter().map(|(call, _)| *call.as_bytes()).collect(),
    };
    // Larger results stay in their places. The text would be resent with every later request.
    if appended.late.text.len() > APPENDED_BYTES_MAX {
        return None;
    }
    let insertions = Insertions {
        texts: &[(place.message, appended.late.clone())],
        values: &[],
    };
    let body = insertions.put_into(paired, plain).ok()?;
    Some(AppendedAtEnd {
        body,
        anchor: place.anchor,
        appended,
    })
}
