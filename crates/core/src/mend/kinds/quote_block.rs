//! A block that a provider refuses becomes marked text, which says what stood there.

use crate::{
    mend::{
        body::MendBody,
        candidate::{BlockPlace, Candidate, MendChange},
        marked_block::{candidate, quote, quote_media},
        media::{self, Media, MediaKind},
        pixels, server_pairs, texts,
    },
    splice::{Edit, Piece},
    wire::{Demand, HistoryShape, quote::mark_label},
    work,
};

/// Images that a provider cannot read.
pub(super) const BROKEN_IMAGE: &str = "broken_image";
/// Images without data.
pub(super) const EMPTY_IMAGE: &str = "empty_image";
/// Images with a side of more pixels than the number behind the word.
const LARGE_IMAGE: &str = "large_image";
/// References to the tool behind the word, which the request does not declare.
const TOOL_REFERENCE: &str = "tool_reference";
/// The words that a row may write.
pub(in crate::mend) const BLOCK_WORDS: [&str; 8] = [
    "image",
    "broken_image",
    EMPTY_IMAGE,
    LARGE_IMAGE,
    "document",
    TOOL_REFERENCE,
    "server_pair",
    "compaction",
];
/// Items of Responses with a sealed summary. The second name is the older one.
const COMPACTIONS: [&[u8]; 2] = [b"compaction", b"compaction_summary"];

/// Returns the word of the mend: with the number or the name of the refusal behind it, where it needs one and has none.
pub(super) fn word_of(word: &str, demand: &Demand) -> Box<str> {
    let argument = match word {
        LARGE_IMAGE => demand.numbers.first().map(u64::to_string),
        TOOL_REFERENCE => demand.name.as_deref().map(str::to_owned),
        _ => None,
    };
    argument.map_or_else(|| word.into(), |argument| format!("{word} {argument}").into())
}

/// Returns the blocks of the type in the word. A number or a name may follow it: `large_image 2000`.
pub(in crate::mend) fn find(body: &MendBody<'_>, word: &str) -> Vec<Candidate> {
    let (kind, argument) = word.split_once(' ').unwrap_or((word, ""));
    let limit = argument.parse::<u32>().ok();
    let is_large = |media: &Media<'_>| {
        let size = pixels::pixels_of(&media.head(pixels::HEAD_DIGITS));
        limit.is_some_and(|limit| size.is_some_and(|(width, height)| width.max(height) > limit))
    };
    match kind {
        // Which of several images is broken, the refusal says or nobody.
        "image" | BROKEN_IMAGE => find_media(body, |media| media.kind == MediaKind::Image),
        EMPTY_IMAGE => find_media(body, |media| media.kind == MediaKind::Image && media.is_empty()),
        LARGE_IMAGE => find_media(body, |media| media.kind == MediaKind::Image && is_large(media)),
        "document" => find_media(body, |media| media.kind == MediaKind::Document),
        TOOL_REFERENCE => find_references(body, argument),
        "server_pair" => server_pairs::find(body),
        "compaction" => find_compactions(body),
        _ => Vec::new(),
    }
}

fn find_media(body: &MendBody<'_>, is_meant: impl Fn(&Media<'_>) -> bool) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (list, blocks) in body.lists.iter().enumerate() {
        work::count(blocks.blocks.len());
        for (at, block) in blocks.blocks.iter().enumerate() {
            if let Some(media) = media::read(body, block).filter(|media| is_meant(media)) {
                let edit = quote_media(body, blocks, block, media.mark(body));
                found.push(candidate(body, BlockPlace { list, at }, vec![edit]));
            }
        }
    }
    found
}

/// Returns the references to a tool that the request does not declare.
fn find_references(body: &MendBody<'_>, name: &str) -> Vec<Candidate> {
    let json = body.json;
    let tools = json
        .member(body.root, "tools")
        .map_or_else(Vec::new, |tools| json.elements(tools));
    work::count(tools.len());
    let is_declared = tools
        .iter()
        .any(|tool| *json.member_text(*tool, "name") == *name.as_bytes());
    let mut found = Vec::new();
    if name.is_empty() || is_declared {
        return found;
    }
    let text = format!(
        "[antiphon: a reference to the tool {} stood here; this provider refuses it.]",
        mark_label(name)
    );
    for (list, blocks) in body.lists.iter().enumerate() {
        work::count(blocks.blocks.len());
        for (at, block) in blocks.blocks.iter().enumerate() {
            if *block.kind == *b"tool_reference" && *json.member_text(block.span, "tool_name") == *name.as_bytes() {
                let edit = quote(body, blocks.message, block.span, vec![Piece::Made(text.clone())]);
                found.push(candidate(body, BlockPlace { list, at }, vec![edit]));
            }
        }
    }
    found
}

/// Returns the items with a sealed summary of what was before them.
fn find_compactions(body: &MendBody<'_>) -> Vec<Candidate> {
    let items = match body.wire.format.history() {
        HistoryShape::Items => body.messages.iter().enumerate(),
        HistoryShape::Messages | HistoryShape::Chat | HistoryShape::Contents => [].iter().enumerate(),
    };
    let sealed = items.filter(|(_, item)| {
        work::count(1);
        COMPACTIONS.contains(&&*item.kind)
    });
    sealed
        .map(|(at, item)| {
            let edit = Edit {
                span: item.span,
                pieces: body.wire.format.write_text_message(true, texts::SEALED_SUMMARY),
            };
            let hash = Some(body.hash_of(item.span));
            let class = String::from_utf8_lossy(&item.kind);
            Candidate {
                hash,
                ..Candidate::of_message(at, &class, MendChange::Edit(vec![edit]))
            }
        })
        .collect()
}
