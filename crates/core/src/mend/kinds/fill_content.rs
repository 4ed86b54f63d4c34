//! Empty content gets a constant text, or an empty one beside calls.

use crate::{
    conversation::Role,
    mend::{
        body::{BlockList, MendBody, MendMessage},
        candidate::{Candidate, MendChange},
        carried::carried,
        texts,
        wordless::{BlockWords, has_no_words, is_void, words_of},
    },
    splice::{Edit, Piece, Span},
    wire::{
        HistoryShape,
        json::{self, JsonKind, ListElement},
    },
    work,
};

/// Returns the messages that say nothing, and lists with blocks that say nothing.
///
/// Results and what the user says newly stay.
pub(in crate::mend) fn find(body: &MendBody<'_>) -> Vec<Candidate> {
    let (key, has_calls_beside) = match body.wire.format.history() {
        HistoryShape::Messages => ("content", false),
        HistoryShape::Chat => ("content", true),
        HistoryShape::Contents => ("parts", false),
        // No report has a provider that refuses an empty item.
        HistoryShape::Items => return Vec::new(),
    };
    let json = body.json;
    let carried = carried(body);
    let mut lists = body.lists.iter().filter(|list| !list.of_result).peekable();
    let mut found = Vec::new();
    for (at, (message, carried)) in body.messages.iter().zip(carried).enumerate() {
        work::count(1);
        // Lists are in document order, so that this one is the message's own or a later one's.
        let list = lists.next_if(|list| list.message == at);
        let is_users_newest = message.author == Role::User && at >= body.newest;
        if message.author == Role::Tool || is_users_newest {
            continue;
        }
        let edits = match list.filter(|list| !list.blocks.is_empty()) {
            Some(_) if carried.calls && has_calls_beside => Vec::new(),
            Some(list) => fill_list(body, message, list),
            None if carried.calls && has_text(body, message) => Vec::new(),
            None if carried.calls => vec![json.set_member(message.span, key, vec![Piece::Constant("\"\"")])],
            None if has_no_words(body, message, list) && !speaks_elsewhere(body, message) => {
                vec![json.set_member(message.span, key, empty_content(body, message.author))]
            }
            None => Vec::new(),
        };
        if !edits.is_empty() {
            // Some servers look at the assistant's messages only.
            let role = String::from_utf8_lossy(&message.role);
            found.push(Candidate::of_message(at, &role, MendChange::Edit(edits)));
        }
    }
    found
}

fn has_text(body: &MendBody<'_>, message: &MendMessage<'_>) -> bool {
    let kind = message.content.map(|content| body.json.kind(content));
    matches!(kind, Some(JsonKind::String | JsonKind::Object | JsonKind::Other))
}

/// Returns `true` if a message says something in a member of its own: a refusal, or spoken words.
fn speaks_elsewhere(body: &MendBody<'_>, message: &MendMessage<'_>) -> bool {
    let speaks = |value: &Span| !is_void(body, *value);
    let members = body.json.members(message.span, ["refusal", "audio"]);
    members.iter().flatten().any(speaks)
}

/// Writes the content of a message that says nothing.
fn empty_content(body: &MendBody<'_>, author: Role) -> Vec<Piece> {
    match body.wire.format.history() {
        HistoryShape::Contents => json::write_list(vec![body.constant_block(author, texts::EMPTY)]),
        HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items => json::constant_string(texts::EMPTY),
    }
}

/// Returns the edits of a list: blocks that say nothing go, and if no other says something the last of them gets the
/// constant text. Thoughts stay.
fn fill_list(body: &MendBody<'_>, message: &MendMessage<'_>, list: &BlockList<'_>) -> Vec<Edit> {
    work::count(list.blocks.len());
    let words: Vec<BlockWords> = list.blocks.iter().map(|block| words_of(body, block)).collect();
    let says_something = words.contains(&BlockWords::Something);
    let last = words.iter().rposition(|words| *words == BlockWords::Nothing);
    if says_something && last.is_none() {
        return Vec::new();
    }
    let mut wanted = Vec::new();
    for (at, (block, words)) in list.blocks.iter().zip(&words).enumerate() {
        match words {
            BlockWords::Nothing if says_something || Some(at) != last => {}
            BlockWords::Nothing => {
                let text = json::constant_string(texts::EMPTY);
                let edit = body.json.set_member(block.span, "text", text);
                wanted.push(ListElement::Kept(at, vec![edit]));
            }
            BlockWords::Thoughts | BlockWords::Something => wanted.push(ListElement::Kept(at, Vec::new())),
        }
    }
    // Thoughts alone are no answer.
    if !says_something && last.is_none() {
        wanted.push(ListElement::New(body.constant_block(message.author, texts::EMPTY)));
    }
    let spans: Vec<_> = list.blocks.iter().map(|block| block.span).collect();
    json::rebuild_list(list.span, &spans, wanted)
}
