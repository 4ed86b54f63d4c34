//! A constant message of the user follows the last one, if that is the assistant's. An empty one of the assistant goes.

use crate::{
    conversation::Role,
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
        carried::carried,
        texts,
        wordless::{has_members_beside, has_no_words},
    },
    wire::json::{self, ListElement},
};

/// Members of a message that says nothing else. Reasoning stays, and so does an id that others may name.
const PLAIN: [&str; 6] = ["role", "type", "content", "parts", "name", "status"];

/// Returns the last message, if it is the assistant's and no call: behind a call stands its result.
///
/// Signed thinking stays. All formats: Gemini has words of its own for this demand (songquanpeng/one-api#836), and
/// servers of Responses give histories to models of all kinds.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let Some((at, last)) = body.messages.iter().enumerate().next_back() else {
        return Vec::new();
    };
    let is_message = last.kind.is_empty() || *last.kind == *b"message";
    let has_calls = carried(body).last().is_none_or(|carried| carried.calls);
    if last.author != Role::Assistant || !is_message || has_calls {
        return Vec::new();
    }
    let list = body.lists.iter().rev().find(|list| list.message == at);
    let is_empty = has_no_words(body, last, list) && !has_members_beside(body, last.span, &PLAIN);
    let stays = if is_empty { at } else { at.saturating_add(1) };
    let mut wanted: Vec<ListElement> = (0..stays).map(|at| ListElement::Kept(at, Vec::new())).collect();
    let before = stays.checked_sub(1).and_then(|before| body.messages.get(before));
    if !before.is_some_and(|message| matches!(message.author, Role::User | Role::Tool)) {
        let message = body.wire.format.write_text_message(true, texts::GO_ON);
        wanted.push(ListElement::New(message));
    }
    let edits = json::rebuild_list(body.history, &body.message_spans(), wanted);
    vec![Candidate::of_message(at, "assistant", MendChange::Edit(edits))]
}
