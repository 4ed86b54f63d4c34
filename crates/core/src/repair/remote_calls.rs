//! Calls that exist only in provider-side state to which the body refers. Some must be answered first, others have been
//! answered already.

use std::collections::HashSet;

use super::known_results::{RemoteCalls, RemoteReferences};
use crate::{
    conversation::{BodyField, Conversation, PartId, PartKind, ResultOwner, Text, pairing::id_of},
    splice::Span,
    wire::json::{Json, JsonKind},
    work,
};

/// Returns references into provider-side state. Empty for formats without remote calls.
pub(super) fn remote_references(conversation: &Conversation<'_>) -> RemoteReferences {
    if !conversation.may_have_remote_calls {
        return RemoteReferences::default();
    }
    RemoteReferences {
        origin: origin_id(conversation).map(Text::into_owned),
        results: result_ids(conversation),
    }
}

/// Marks results of remote calls that an earlier request has answered. They answer nothing.
pub(super) fn mark_answered_results(conversation: &mut Conversation<'_>, remote: &RemoteCalls) {
    if !conversation.may_have_remote_calls || remote.answered.is_empty() {
        return;
    }
    for part in &mut conversation.parts {
        work::count(1);
        if let PartKind::Result(result) = &mut part.kind
            // The refusal of this request outweighs the memory of an earlier one.
            && result.owner == ResultOwner::Unknown
            && remote.answered.contains(&*result.id)
        {
            result.owner = ResultOwner::AnsweredCall;
        }
    }
}

/// Takes back the marks of [`mark_answered_results`].
pub(super) fn unmark_answered_results(conversation: &mut Conversation<'_>) {
    if !conversation.may_have_remote_calls {
        return;
    }
    for part in &mut conversation.parts {
        work::count(1);
        if let PartKind::Result(result) = &mut part.kind
            && result.owner == ResultOwner::AnsweredCall
        {
            result.owner = ResultOwner::Unknown;
        }
    }
}

/// Returns those of the ids that belong to no call and no result of the body.
pub(super) fn not_in_body(conversation: &Conversation<'_>, mut ids: Vec<String>) -> Vec<String> {
    let parts = PartId::all(0..conversation.parts.len());
    // One set, because a refusal may name many ids and a body may have many parts.
    let in_body: HashSet<&[u8]> = parts.map(|part| id_of(conversation, part)).collect();
    work::count(ids.len());
    ids.retain(|id| !in_body.contains(id.as_bytes()));
    ids
}

/// Returns the id of the response that the body continues from, up to which provider-side state never changes.
///
/// `None` for a conversation that grows under one name.
pub(super) fn origin_id<'a>(conversation: &Conversation<'a>) -> Option<Text<'a>> {
    let json = Json::new(conversation.body);
    let fields = &conversation.notes.fields;
    // Anthropic's message threads name the origin here, Responses in a field of its own.
    let thread = |thread| json.member(thread, "previous_message_id");
    let previous = fields.get(BodyField::PreviousResponse);
    let is_text = |span: &Span| json.kind(*span) == JsonKind::String;
    let previous = previous.filter(is_text);
    let id = previous.or_else(|| fields.get(BodyField::Thread).and_then(thread).filter(is_text))?;
    Some(json.decode_string(id)).filter(|id| !id.is_empty())
}

/// Returns the ids of all results of a history.
fn result_ids(conversation: &Conversation<'_>) -> Vec<Vec<u8>> {
    work::count(conversation.parts.len());
    let id = |kind: &PartKind<'_>| match kind {
        PartKind::Result(result) => Some(result.id.to_vec()),
        _ => None,
    };
    conversation.parts.iter().filter_map(|part| id(&part.kind)).collect()
}
