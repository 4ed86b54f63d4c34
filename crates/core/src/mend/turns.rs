//! The present turn of a body: what stands behind the last words of the user.

use super::body::MendBody;
use crate::{conversation::Role, splice::Span, wire::json::JsonKind, work};

/// The beginning of every text of the proxy, as a JSON string.
const MARK: &[u8] = b"\"[antiphon:";

/// Returns the index of the first message behind the last words of the user: an open tool loop, if there are any.
///
/// Results of tools are no words of the user, and texts of the proxy stand for results.
pub(super) fn present_turn(body: &MendBody<'_>) -> usize {
    let json = body.json;
    let mut speaks: Vec<bool> = body
        .messages
        .iter()
        .map(|message| {
            let is_list = message
                .content
                .is_some_and(|content| json.kind(content) == JsonKind::Array);
            message.author == Role::User && !is_list
        })
        .collect();
    let is_mark = |block: Span| {
        let text = json.member(block, "text");
        text.is_some_and(|text| json.bytes(text).starts_with(MARK))
    };
    for list in body.lists.iter().filter(|list| !list.of_result) {
        work::count(list.blocks.len());
        let is_result = |kind: &[u8]| matches!(kind, b"tool_result" | b"functionResponse" | b"function_response");
        let has_words = list
            .blocks
            .iter()
            .any(|block| !is_result(&block.kind) && !is_mark(block.span));
        let author = body.messages.get(list.message).map(|message| message.author);
        if let Some(speaks) = speaks.get_mut(list.message) {
            *speaks |= author == Some(Role::User) && has_words;
        }
    }
    work::count(speaks.len());
    let last = speaks.iter().rposition(|speaks| *speaks);
    last.map_or(0, |at| at.saturating_add(1))
}
