//! Neighbours of one role become one message.

use std::collections::HashMap;

use crate::{
    conversation::{Role, Text},
    mend::{
        body::{MendBody, MendMessage},
        candidate::{Candidate, MendChange},
        carried::carried,
        join_contents::join_contents,
        wordless::is_void,
    },
    splice::{Edit, Span},
    wire::HistoryShape,
    work,
};

/// Returns the first message of each row of neighbours. Calls and results stay where they are.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    match body.wire.format.history() {
        HistoryShape::Messages | HistoryShape::Chat => {}
        // Items are no turns, and Gemini takes neighbours of one role.
        HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    }
    let carried = carried(body);
    let is_plain = |at: usize| {
        let is_free = carried
            .get(at)
            .is_some_and(|carried| !carried.calls && !carried.results);
        let author = body.messages.get(at).map(|message| message.author);
        is_free && matches!(author, Some(Role::User | Role::Assistant))
    };
    let mut found = Vec::new();
    let mut from = 0;
    while let Some(first) = body.messages.get(from) {
        let mut to = from.saturating_add(1);
        if is_plain(from) && first.content.is_some() {
            let later = body.messages.get(to..).unwrap_or_default();
            let mut members = None;
            let joins = |(at, message): &(usize, &MendMessage<'_>)| {
                message.author == first.author && is_plain(to.saturating_add(*at)) && message.content.is_some() && {
                    let members = members.get_or_insert_with(|| members_of(body, first));
                    loses_nothing(body, members, message)
                }
            };
            let count = later.iter().enumerate().take_while(joins).count();
            to = to.saturating_add(count);
            work::count(count);
        }
        let row = body.messages.get(from..to).unwrap_or_default();
        if let [_, .., last] = row
            && let Some(mut edits) = join_contents(body, row)
        {
            edits.push(Edit {
                span: Span::new(first.span.end, last.span.end),
                pieces: Vec::new(),
            });
            found.push(Candidate::of_message(from, "", MendChange::Edit(edits)));
        }
        from = to;
    }
    found
}

/// Returns the members of a message by their names.
fn members_of<'b>(body: &MendBody<'b>, message: &MendMessage<'b>) -> HashMap<Text<'b>, Span> {
    let json = body.json;
    let mut members = HashMap::new();
    let walked = json.for_each_member_span(message.span, |member| {
        work::count(1);
        members.insert(json.decode_string(member.key), member.value);
    });
    walked.map(|()| members).unwrap_or_default()
}

/// Returns `true` if the first message of a row has each member of a later one, content aside, with the same bytes.
fn loses_nothing(body: &MendBody<'_>, first: &HashMap<Text<'_>, Span>, later: &MendMessage<'_>) -> bool {
    let json = body.json;
    let mut is_lossless = true;
    let walked = json.for_each_member(later.span, |key, value| {
        let is_known = matches!(key, b"role" | b"content") || is_void(body, value);
        work::count_bytes(value.len());
        let own = || first.get(key).map(|own| json.bytes(*own));
        is_lossless &= is_known || own() == Some(json.bytes(value));
    });
    walked.is_ok() && is_lossless
}
