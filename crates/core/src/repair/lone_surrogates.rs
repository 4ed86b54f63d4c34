//! Lone surrogates in a history. Strict JSON parsers refuse the body, and report only invalid JSON.

use super::Paired;
use crate::{
    conversation::{Conversation, Finding},
    splice::Span,
    wire::json::find_lone_surrogate,
    work,
};

/// Returns a finding for each message with a lone surrogate, at the first part that has one.
pub(super) fn lone_surrogates(paired: &Paired<'_>) -> Vec<Finding> {
    let histories = paired.histories.iter();
    histories
        .flat_map(|history| history.place_findings(in_history(&history.conversation)))
        .collect()
}

fn in_history(conversation: &Conversation<'_>) -> Vec<Finding> {
    let has_one = |span: Span| {
        work::count(1);
        find_lone_surrogate(span.of(conversation.body), 0).is_some()
    };
    let messages = conversation.messages.iter().enumerate();
    messages
        .filter(|(_, message)| has_one(message.span))
        .map(|(index, message)| {
            let mut parts = conversation.parts_of(message).iter();
            let part = parts.position(|part| part.span != message.span && has_one(part.span));
            Finding::lone_surrogate(index, part)
        })
        .collect()
}
