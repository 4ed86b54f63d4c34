//! Calls that the provider holds and the body only goes on from: which of them a body must answer first, and which have
//! their answer already.

use std::collections::HashSet;

use crate::{
    conversation::{Conversation, Disowned, Field, PartKind, Text, pairing::id_of},
    repair::{answers::Answers, insist::Insistence},
    splice::Span,
    wire::{
        Format,
        json::{Json, Kind},
    },
};

/// The calls that this body answers first, by placeholders: those that are known of the answer it goes on from, and those
/// that the refusal names. None whose id stands in the body.
pub(super) fn calls(
    conversation: &Conversation<'_>,
    answers: &dyn Answers,
    insistence: Option<&Insistence<'_>>,
    format: Format,
) -> Vec<String> {
    if !conversation.calls_elsewhere {
        return Vec::new();
    }
    if insistence.is_none() && !answers.knows_held() {
        return Vec::new();
    }
    let origin = origin(conversation);
    let mut calls = origin.as_deref().map_or_else(Vec::new, |origin| answers.due(origin));
    if let Some(insistence) = insistence {
        calls.retain(|id| !insistence.names(id.as_bytes()));
        let named = insistence.held_calls(conversation, format);
        let is_news = !named.is_empty();
        calls.extend(named);
        if is_news {
            answers.answered_held(&calls, origin.as_deref());
        }
    }
    absent(conversation, calls)
}

/// Results of calls that were answered in an earlier request answer nothing.
pub(super) fn disown(conversation: &mut Conversation<'_>, answers: &dyn Answers) {
    if !conversation.calls_elsewhere || !answers.knows_held() {
        return;
    }
    let origin = origin(conversation);
    for part in &mut conversation.parts {
        if let PartKind::Result(result) = &mut part.kind
            && result.disowned == Disowned::No
            && answers.is_spent(&result.id, origin.as_deref())
        {
            result.disowned = Disowned::Spent;
        }
    }
}

/// Those of these ids that neither a call nor a result of the body bears.
pub(super) fn absent(conversation: &Conversation<'_>, mut ids: Vec<String>) -> Vec<String> {
    let parts = 0..conversation.parts.len();
    let in_body: HashSet<&[u8]> = parts.map(|part| id_of(conversation, part)).collect();
    ids.retain(|id| !in_body.contains(id.as_bytes()));
    ids
}

/// The id of the answer that the body goes on from: what the provider holds up to there never changes. None for a
/// conversation that grows under one name.
fn origin<'a>(conversation: &Conversation<'a>) -> Option<Text<'a>> {
    let json = Json::new(conversation.body);
    let fields = &conversation.noted.fields;
    let thread = |thread| json.member(thread, "previous_message_id");
    let previous = fields.get(Field::PreviousResponse);
    let is_text = |span: &Span| json.kind(*span) == Kind::String;
    let previous = previous.filter(is_text);
    let id = previous.or_else(|| fields.get(Field::Thread).and_then(thread).filter(is_text))?;
    Some(json.decode(id)).filter(|id| !id.is_empty())
}
