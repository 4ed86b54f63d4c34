//! Reasoning goes: of finished turns, or the item that a refusal names.

use crate::{
    conversation::Role,
    mend::{
        body::{MendBody, MendMessage},
        candidate::{BlockPlace, Candidate, MendChange},
        turns::present_turn,
    },
    splice::{Edit, Piece, Span},
    wire::{HistoryShape, json::JsonKind},
    work,
};

/// The words that a row may write.
pub(in crate::mend) const REASONING_WORDS: [&str; 4] = ["blocks", "chunks", "item", "open"];
/// The class of blocks of thinking: a provider that refuses one kind refuses the other.
const THINKING: &str = "thinking";
/// The class of reasoning items, and of the items that follow them: their ids go with the reasoning.
const REASONING: &str = "reasoning";
/// Items that are nothing without their id.
pub(super) const KEEP_IDS: [&[u8]; 3] = [b"reasoning", b"item_reference", b"mcp_approval_request"];

/// Returns the reasoning that the word names.
pub(in crate::mend) fn find(body: &MendBody<'_>, word: &str) -> Vec<Candidate> {
    match (body.wire.format.history(), word) {
        (HistoryShape::Messages, "blocks") => find_blocks(body, &[b"thinking", b"redacted_thinking"], false),
        (HistoryShape::Chat, "chunks") => find_blocks(body, &[b"thinking"], true),
        (HistoryShape::Items, "item") => find_items(body, |_, _| Some(MendChange::Remove)),
        (HistoryShape::Items, "open") => find_items(body, open_text),
        (HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents, _) => Vec::new(),
    }
}

/// Returns the blocks of these kinds in finished turns.
///
/// A provider that reads no thinking refuses that of the present turn too: then what is not signed goes there as well.
fn find_blocks(body: &MendBody<'_>, kinds: &[&[u8]], of_present_too: bool) -> Vec<Candidate> {
    let present = present_turn(body);
    let mut found = Vec::new();
    for (list, blocks) in body.lists.iter().enumerate() {
        let author = body.messages.get(blocks.message).map(|message| message.author);
        if author != Some(Role::Assistant) {
            continue;
        }
        work::count(blocks.blocks.len());
        for (at, block) in blocks.blocks.iter().enumerate() {
            let is_finished = blocks.message < present;
            let is_free = || of_present_too && body.json.member(block.span, "signature").is_none();
            if kinds.contains(&&*block.kind) && (is_finished || is_free()) {
                let place = BlockPlace { list, at };
                found.push(Candidate {
                    hash: Some(body.hash_of(block.span)),
                    ..Candidate::of_block(blocks.message, place, THINKING, MendChange::Remove)
                });
            }
        }
    }
    found
}

/// Returns the reasoning items that change. The items that belong to one that goes lose their ids.
fn find_items(body: &MendBody<'_>, change: impl Fn(&MendBody<'_>, Span) -> Option<MendChange>) -> Vec<Candidate> {
    let json = body.json;
    let mut found = Vec::new();
    // The id of the reasoning that goes, until the answer that it belongs to ends.
    let mut gone: Option<Box<str>> = None;
    for (at, item) in body.messages.iter().enumerate() {
        work::count(1);
        let id = json.member_text(item.span, "id");
        if *item.kind == *b"reasoning" {
            let id: Box<str> = String::from_utf8_lossy(&id).into();
            let change =
                change(body, item.span).filter(|_| !id.is_empty() || json.member(item.span, "content").is_some());
            gone = matches!(change, Some(MendChange::Remove)).then(|| id.clone());
            found.extend(change.map(|change| of_item(body, at, item, &id, change)));
        } else if item.author != Role::Assistant {
            gone = None;
        } else if let Some(reasoning) = gone.as_deref()
            && !KEEP_IDS.contains(&&*item.kind)
        {
            let edits = json.remove_member(item.span, "id");
            if !edits.is_empty() {
                found.push(of_item(body, at, item, reasoning, MendChange::Edit(edits)));
            }
        }
    }
    found
}

fn of_item(body: &MendBody<'_>, at: usize, item: &MendMessage<'_>, id: &str, change: MendChange) -> Candidate {
    Candidate {
        hash: Some(body.hash_of(item.span)),
        id: id.into(),
        ..Candidate::of_message(at, REASONING, change)
    }
}

/// Returns the change of a reasoning item with open text: it goes, or the open text alone if it is sealed too.
fn open_text(body: &MendBody<'_>, item: Span) -> Option<MendChange> {
    let json = body.json;
    let [content, sealed] = json.members(item, ["content", "encrypted_content"]);
    let content = content.filter(|content| json.kind(*content) == JsonKind::Array && !json.is_empty(*content))?;
    let is_sealed = sealed.is_some_and(|sealed| !json.string_inside(sealed).is_empty());
    if !is_sealed {
        return Some(MendChange::Remove);
    }
    Some(MendChange::Edit(vec![Edit {
        span: content,
        pieces: vec![Piece::Constant("[]")],
    }]))
}
