//! The content of a `tool_result`: a string, or a list of text, images, documents, search results and tool references
//! (Messages, 2026-11).

use crate::{
    splice::Span,
    wire::{
        anthropic::read::is_code,
        content::{
            BlockFormat, MemberCheck, PostedContent, fit_blocks, has_members, has_visible_text, is_base64_string,
            is_string,
        },
        json::{self, Json, JsonKind, quote_string},
    },
};

/// Digits of the largest index into a text.
const INDEX_DIGITS_MAX: usize = 15;

/// The kinds of blocks that a result may contain.
struct ResultBlockKinds {
    /// Set if only text is allowed: "all content must be type `text` if `is_error` is true", and for calls by code.
    text_only: bool,
}

/// Fits a posted content to the result of the call at `call`. `error` replaces an error text that is empty or blank.
pub(crate) fn fit_content(call_json: Json<'_>, call: Span, content: &str, failed: bool, error: &str) -> String {
    let kinds = ResultBlockKinds {
        text_only: failed || is_programmatic(call_json, call),
    };
    let written = fit_blocks(PostedContent::new(content), &kinds);
    // Checked last, since the fitted content may be blank where the posted one was not.
    if failed && is_blank_content(&written) {
        quote_string(error)
    } else {
        written
    }
}

/// Reports whether code at the provider made the call.
fn is_programmatic(json: Json<'_>, call: Span) -> bool {
    json.member(call, "caller").is_some_and(|caller| is_code(json, caller))
}

/// Reports whether a content is empty or blank: "content cannot be empty if `is_error` is true".
fn is_blank_content(content: &str) -> bool {
    let json = Json::new(content.as_bytes());
    json.root_span().is_ok_and(|root| match json.kind(root) {
        JsonKind::String => json::is_blank(json.bytes(root)),
        JsonKind::Array => json.is_empty(root),
        JsonKind::Object | JsonKind::Null | JsonKind::Other => false,
    })
}

impl BlockFormat for ResultBlockKinds {
    fn takes_block(&self, json: Json<'_>, block: Span) -> bool {
        match json.member_text(block, "type").as_ref() {
            b"text" => is_text(json, block),
            // Everything below is refused, and becomes text.
            _ if self.text_only => false,
            b"image" => is_image(json, block),
            b"document" => has_members(json, block, &[TYPE, ("source", is_document)], DOCUMENT),
            b"search_result" => has_members(json, block, SEARCH_RESULT, &[("citations", is_setting)]),
            b"tool_reference" => has_members(json, block, &[TYPE, ("tool_name", has_visible_text)], &[]),
            _ => false,
        }
    }

    fn text_block(&self, string: &str) -> String {
        format!(r#"{{"type":"text","text":{string}}}"#)
    }

    fn image_block(&self, media: &str, data: &str) -> Option<String> {
        let source = format!(r#"{{"type":"base64","media_type":"{media}","data":"{data}"}}"#);
        (!self.text_only).then(|| format!(r#"{{"type":"image","source":{source}}}"#))
    }
}

const TYPE: (&str, MemberCheck) = ("type", is_string);
const DOCUMENT: &[(&str, MemberCheck)] = &[("title", is_label), ("context", is_label), ("citations", is_setting)];
const SEARCH_RESULT: &[(&str, MemberCheck)] = &[
    TYPE,
    ("content", is_text_list),
    ("source", is_string),
    ("title", is_string),
];

fn is_text(json: Json<'_>, block: Span) -> bool {
    has_members(
        json,
        block,
        &[TYPE, ("text", has_visible_text)],
        &[("citations", is_citation_list)],
    )
}

fn is_image(json: Json<'_>, block: Span) -> bool {
    has_members(json, block, &[TYPE, ("source", is_image_source)], &[])
}

fn is_image_source(json: Json<'_>, source: Span) -> bool {
    match json.member_text(source, "type").as_ref() {
        b"base64" => {
            let members: [(&str, MemberCheck); 3] = [TYPE, ("media_type", is_image_type), ("data", is_base64_string)];
            has_members(json, source, &members, &[])
        }
        _ => is_reference(json, source),
    }
}

fn is_image_type(json: Json<'_>, media: Span) -> bool {
    let types: [&[u8]; 4] = [b"image/jpeg", b"image/png", b"image/gif", b"image/webp"];
    types.contains(&json.decode_string(media).as_ref())
}

/// Reports whether a source refers to its bytes by URL or file id.
fn is_reference(json: Json<'_>, source: Span) -> bool {
    match json.member_text(source, "type").as_ref() {
        b"url" => has_members(json, source, &[TYPE, ("url", is_https)], &[]),
        b"file" => has_members(json, source, &[TYPE, ("file_id", has_visible_text)], &[]),
        _ => false,
    }
}

fn is_document(json: Json<'_>, source: Span) -> bool {
    match json.member_text(source, "type").as_ref() {
        b"base64" => {
            let members: [(&str, MemberCheck); 3] = [TYPE, ("media_type", is_pdf), ("data", is_base64_string)];
            has_members(json, source, &members, &[])
        }
        b"text" => {
            let members: [(&str, MemberCheck); 3] = [TYPE, ("media_type", is_plain_text), ("data", has_visible_text)];
            has_members(json, source, &members, &[])
        }
        b"content" => has_members(json, source, &[TYPE, ("content", is_document_content)], &[]),
        _ => is_reference(json, source),
    }
}

fn is_document_content(json: Json<'_>, content: Span) -> bool {
    has_visible_text(json, content)
        || is_list_of(json, content, |json, block| {
            is_text(json, block) || is_image(json, block)
        })
}

fn is_pdf(json: Json<'_>, media: Span) -> bool {
    json.decode_string(media).as_ref() == b"application/pdf"
}

fn is_plain_text(json: Json<'_>, media: Span) -> bool {
    json.decode_string(media).as_ref() == b"text/plain"
}

fn is_https(json: Json<'_>, url: Span) -> bool {
    json.decode_string(url).starts_with(b"https://")
}

/// Reports whether a value is a string or null.
fn is_label(json: Json<'_>, value: Span) -> bool {
    matches!(json.kind(value), JsonKind::String | JsonKind::Null)
}

/// Reports whether a value switches citations on or off, or is null.
fn is_setting(json: Json<'_>, value: Span) -> bool {
    json.kind(value) == JsonKind::Null || has_members(json, value, &[], &[("enabled", is_boolean)])
}

fn is_boolean(json: Json<'_>, value: Span) -> bool {
    matches!(json.bytes(value), b"true" | b"false")
}

fn is_text_list(json: Json<'_>, list: Span) -> bool {
    is_list_of(json, list, is_text)
}

/// Reports whether a value is null or a list of citations: objects of plain values.
fn is_citation_list(json: Json<'_>, value: Span) -> bool {
    // Kinds of citations differ in their members, and new ones appear: only the types of the values are checked.
    let is_plain = |value: Span| match json.kind(value) {
        JsonKind::String | JsonKind::Null => true,
        JsonKind::Other => is_index(json.bytes(value)),
        JsonKind::Object | JsonKind::Array => false,
    };
    let is_citation = |citation: Span| {
        let mut plain = json.member_text(citation, "type").ends_with(b"_location");
        let walked = json.for_each_member(citation, |_, value| plain &= is_plain(value));
        plain && walked.is_ok()
    };
    let mut fits = true;
    let walked = json.for_each_element(value, |citation| fits &= is_citation(citation));
    json.kind(value) == JsonKind::Null || (walked.is_ok() && fits)
}

/// Reports whether a number is an index into a text.
fn is_index(number: &[u8]) -> bool {
    // Up to 15 digits are exact in a double, as which many readers take numbers.
    number.len() <= INDEX_DIGITS_MAX && number.iter().all(u8::is_ascii_digit)
}

/// Reports whether a value is a list of at least one block, all of which fit.
fn is_list_of(json: Json<'_>, list: Span, fits: impl Fn(Json<'_>, Span) -> bool) -> bool {
    let (mut all, mut some) = (true, false);
    let walked = json.for_each_element(list, |block| {
        some = true;
        all &= fits(json, block);
    });
    walked.is_ok() && all && some
}
