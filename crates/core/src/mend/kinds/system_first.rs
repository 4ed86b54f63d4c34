//! Instructions stand at the beginning only: leading ones are joined, and a later one becomes marked text of the user.

use crate::{
    conversation::Role,
    mend::{
        body::{MendBody, MendMessage},
        candidate::{Candidate, MendChange},
        carried::carried,
        join_contents::join_contents,
        texts,
    },
    splice::{Edit, Piece, Span},
    wire::{
        HistoryShape,
        json::{self, JsonKind, ListElement},
    },
    work,
};

/// Returns the history as one place, if instructions stand elsewhere than in one message at its beginning.
///
/// In Messages each of them changes: that format has a place for instructions outside of the history.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let messages = &body.messages;
    work::count(messages.len());
    let leading = match body.wire.format.history() {
        HistoryShape::Chat => messages.iter().take_while(|message| is_instruction(message)).count(),
        HistoryShape::Messages => 0,
        HistoryShape::Items | HistoryShape::Contents => return Vec::new(),
    };
    let joined = messages.get(..leading).and_then(|leading| join_contents(body, leading));
    let is_joined = leading > 1 && joined.is_some();
    let followed = followed_by_results(body);
    let mut is_changed = is_joined;
    let mut wanted = Vec::new();
    let mut waiting = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        work::count(1);
        let is_followed = followed.get(at).copied().unwrap_or_default();
        if at < leading {
            match &joined {
                Some(edits) if is_joined && at == 0 => wanted.push(ListElement::Kept(at, edits.clone())),
                Some(_) if is_joined => {}
                Some(_) | None => wanted.push(ListElement::Kept(at, Vec::new())),
            }
            continue;
        }
        let Some(edits) = is_instruction(message).then(|| as_users(body, message)).flatten() else {
            wanted.push(ListElement::Kept(at, Vec::new()));
            if !is_followed {
                wanted.append(&mut waiting);
            }
            continue;
        };
        is_changed = true;
        if is_followed {
            // A message of the user may not stand between a call and its result.
            waiting.push(ListElement::New(json::edited_value(message.span, edits)));
        } else {
            wanted.push(ListElement::Kept(at, edits));
        }
    }
    wanted.append(&mut waiting);
    if !is_changed {
        return Vec::new();
    }
    let edits = json::rebuild_list(body.history, &body.message_spans(), wanted);
    vec![Candidate::of_message(0, "", MendChange::Edit(edits))]
}

fn is_instruction(message: &MendMessage<'_>) -> bool {
    matches!(&*message.role, b"system" | b"developer")
}

/// Returns for each message `true` if the next one, instructions aside, carries results.
fn followed_by_results(body: &MendBody<'_>) -> Vec<bool> {
    let carried = carried(body);
    let mut followed = vec![false; body.messages.len()];
    let mut has_results = false;
    let messages = body.messages.iter().zip(carried).zip(&mut followed);
    for ((message, carried), followed) in messages.rev() {
        *followed = has_results;
        if !is_instruction(message) {
            has_results = carried.results && message.author != Role::Assistant;
        }
    }
    followed
}

/// Returns the edits that make marked text of the user from instructions.
///
/// `None` if their content is neither a text nor a list.
fn as_users(body: &MendBody<'_>, message: &MendMessage<'_>) -> Option<Vec<Edit>> {
    let json = body.json;
    let role = Edit {
        span: json.string_member(message.span, "role")?,
        pieces: vec![Piece::Constant("\"user\"")],
    };
    let content = message.content.filter(|content| json.kind(*content) != JsonKind::Null);
    let Some(content) = content else {
        let mark = json::constant_string(texts::INSTRUCTIONS);
        return Some(vec![role, json.set_member(message.span, "content", mark)]);
    };
    let mut edits = match json.kind(content) {
        JsonKind::String => vec![Edit {
            span: Span::at(json.string_inside(content).start),
            pieces: vec![Piece::Constant(texts::INSTRUCTIONS), Piece::Constant(r"\n")],
        }],
        JsonKind::Array => {
            let blocks = json.elements(content);
            let kept = (0..blocks.len()).map(|at| ListElement::Kept(at, Vec::new()));
            let mark = ListElement::New(body.constant_block(Role::User, texts::INSTRUCTIONS));
            json::rebuild_list(content, &blocks, std::iter::once(mark).chain(kept).collect())
        }
        JsonKind::Null | JsonKind::Object | JsonKind::Other => return None,
    };
    edits.push(role);
    Some(edits)
}
