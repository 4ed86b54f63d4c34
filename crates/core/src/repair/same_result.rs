//! Comparison of results by their bytes, without `cache_control`, item ids and the order of members.

use std::collections::HashMap;

use crate::{
    conversation::{Conversation, PartId, pairing::id_of},
    repair::RealResult,
    splice::Span,
    wire::json::{Json, JsonKind},
    work,
};

/// Members of a result: decoded key and raw value, sorted by key. The last of a repeated key counts.
type ResultMembers<'a> = Vec<(Vec<u8>, Vec<&'a [u8]>)>;

/// Results that others repeat. Each is read once, however often it is repeated.
pub(super) struct RepeatedResults<'c> {
    conversation: &'c Conversation<'c>,
    read: HashMap<PartId, RepeatedResult<'c>>,
}

/// A result that others repeat.
struct RepeatedResult<'c> {
    bytes: &'c [u8],
    /// Its members. `None` if it is no object.
    members: Option<ResultMembers<'c>>,
    /// `true` if the client has shortened it.
    is_shortened: bool,
}

impl<'c> RepeatedResults<'c> {
    /// Returns an empty cache for `conversation`.
    pub(super) fn new(conversation: &'c Conversation<'c>) -> Self {
        Self {
            conversation,
            read: HashMap::new(),
        }
    }

    /// Returns `true` if the results at `original` and `other` are the same.
    pub(super) fn is_repeated(&mut self, original: PartId, other: PartId) -> bool {
        let json = Json::new(self.conversation.body);
        let Some(other) = self.conversation.part(other) else {
            return false;
        };
        let other = result_object(json, other.span);
        let original = self.read_once(original);
        let said = original.members.as_ref();
        work::count_bytes(other.len());
        // Most duplicates are equal in every byte, which spares reading their members.
        original.bytes == json.bytes(other)
            || said.is_some_and(|said| Some(said) == result_members(json, other).as_ref())
    }

    /// Returns `true` if the client has shortened one of two results of a call.
    ///
    /// Their contents are not compared, because a shortened one names a file in place of its content. The client wants
    /// that in its history, so the long one must not come back as a quote.
    pub(super) fn is_shortened_copy(&mut self, original: PartId, other: PartId) -> bool {
        let conversation = self.conversation;
        // Without an id the results may belong to two calls of one tool.
        if id_of(conversation, other).is_empty() {
            return false;
        }
        self.read_once(original).is_shortened || conversation.is_shortened_result(other)
    }

    fn read_once(&mut self, original: PartId) -> &RepeatedResult<'c> {
        let (conversation, json) = (self.conversation, Json::new(self.conversation.body));
        self.read.entry(original).or_insert_with(|| {
            let object = conversation.part(original).map(|part| result_object(json, part.span));
            RepeatedResult {
                bytes: object.map_or(b"", |object| json.bytes(object)),
                members: object.and_then(|object| result_members(json, object)),
                is_shortened: conversation.is_shortened_result(original),
            }
        })
    }
}

/// Returns the content of a result block, as JSON. `None` if it has none.
pub fn block_content(block: &str) -> Option<&str> {
    let json = Json::new(block.as_bytes());
    let content = content_span(json, result_object(json, json.root_span().ok()?))?;
    std::str::from_utf8(json.bytes(content)).ok()
}

/// Returns the content of a result object. The formats differ in the name of the member.
pub(super) fn content_span(json: Json<'_>, result: Span) -> Option<Span> {
    // Anthropic and Chat Completions, Responses, Gemini.
    let mut names = ["content", "output", "response"].into_iter();
    names.find_map(|name| json.member(result, name))
}

/// Returns `true` if the result at `part` is the same as `real`.
pub(super) fn is_same_result(conversation: &Conversation<'_>, part: PartId, real: &RealResult) -> bool {
    let json = Json::new(conversation.body);
    let Some(span) = conversation.part(part).map(|part| part.span) else {
        return false;
    };
    let span = result_object(json, span);
    match real {
        RealResult::Block(block) => {
            let other = Json::new(block.as_bytes());
            let said = other
                .root_span()
                .ok()
                .map(|root| result_members(other, result_object(other, root)));
            said.flatten()
                .is_some_and(|said| Some(said) == result_members(json, span))
        }
        RealResult::Content { content, failed } => {
            let other = Json::new(content.as_bytes());
            // The formats differ in the name of the member: Anthropic and chat, Responses, Gemini.
            let content = ["content", "output", "response"]
                .into_iter()
                .find_map(|key| json.member(span, key));
            let content = content.map(|content| content_values(json, content));
            let says_failed = json
                .member(span, "is_error")
                .is_some_and(|value| json.bytes(value) == b"true");
            let remembered = other.root_span().map(|root| content_values(other, root));
            says_failed == *failed && content.is_some() && content == remembered.ok()
        }
    }
}

/// Returns the object with the content. Gemini wraps a response into a part.
pub(super) fn result_object(json: Json<'_>, result: Span) -> Span {
    let wrapped = ["functionResponse", "function_response"]
        .into_iter()
        .find_map(|key| json.member(result, key));
    wrapped
        .filter(|wrapped| json.kind(*wrapped) == JsonKind::Object)
        .unwrap_or(result)
}

/// Returns the members of a result, sorted and without labels. `None` if it is no object.
fn result_members(json: Json<'_>, object: Span) -> Option<ResultMembers<'_>> {
    let mut members: ResultMembers<'_> = Vec::new();
    json.for_each_member(object, |key, value| {
        // An item's own id is only a label. In Gemini `id` names the call, which pairing has compared already.
        if key != b"cache_control" && key != b"id" {
            let value = if key == b"content" || key == b"output" {
                content_values(json, value)
            } else {
                vec![json.bytes(value)]
            };
            members.push((key.to_vec(), value));
        }
    })
    .ok()?;
    work::count(members.len());
    // The sort is stable, so that the last of a repeated key survives the removal of duplicates.
    members.sort_by(|(one, _), (other, _)| one.cmp(other));
    members.reverse();
    members.dedup_by(|(one, _), (other, _)| one == other);
    Some(members)
}

/// Returns a content's raw bytes, or those of its blocks' members without `cache_control`.
fn content_values(json: Json<'_>, content: Span) -> Vec<&[u8]> {
    if json.kind(content) != JsonKind::Array {
        return vec![json.bytes(content)];
    }
    let mut said = Vec::new();
    let walked = json.for_each_element(content, |block| {
        let plain = json.for_each_member_span(block, |member| {
            if *json.decode_string(member.key) != *b"cache_control" {
                said.push(json.bytes(member.key));
                said.push(json.bytes(member.value));
            }
        });
        // A block that is no object, such as a bare string in a list.
        if plain.is_err() {
            said.push(json.bytes(block));
        }
        // Separates blocks, so that members of two blocks are not taken for those of one.
        said.push(b"|");
    });
    if walked.is_ok() {
        said
    } else {
        vec![json.bytes(content)]
    }
}
