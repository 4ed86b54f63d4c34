//! Of more cache markers than a provider takes, the oldest of messages go.

use crate::{
    mend::{
        body::MendBody,
        candidate::{Candidate, MendChange},
    },
    splice::Span,
    wire::json::JsonKind,
    work,
};

const MARKER: &str = "cache_control";

/// Returns the oldest markers of messages, as many as the body has above the limit in the word.
pub(in crate::mend) fn find(body: &MendBody<'_>, word: &str) -> Vec<Candidate> {
    let Ok(limit) = word.parse::<usize>() else {
        return Vec::new();
    };
    let json = body.json;
    let is_marked = |object: Span| {
        let marker = json.member(object, MARKER);
        marker.is_some_and(|marker| json.kind(marker) == JsonKind::Object)
    };
    let mut marked: Vec<(Span, usize)> = Vec::new();
    let messages = body.messages.iter().enumerate().map(|(at, message)| (message.span, at));
    marked.extend(messages.filter(|(message, _)| is_marked(*message)));
    for list in &body.lists {
        work::count(list.blocks.len());
        let blocks = list.blocks.iter().map(|block| (block.span, list.message));
        marked.extend(blocks.filter(|(block, _)| is_marked(*block)));
    }
    // Blocks of a result stand inside of its block, so that their ends tell the order in which the provider reads them.
    marked.sort_by_key(|(object, _)| object.end);
    let [system, tools] = json.members(body.root, ["system", "tools"]);
    let above = [system, tools].into_iter().flatten().flat_map(|list| {
        work::count(1);
        json.elements(list)
    });
    let others = above.filter(|element| is_marked(*element)).count();
    let others = others.saturating_add(usize::from(is_marked(body.root)));
    let surplus = others.saturating_add(marked.len()).saturating_sub(limit);
    let oldest = marked.into_iter().take(surplus);
    oldest
        .map(|(object, message)| {
            Candidate::of_message(message, "", MendChange::Edit(json.remove_member(object, MARKER)))
        })
        .collect()
}
