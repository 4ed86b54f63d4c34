//! The writer of parts and contents of the Gemini format.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        AnsweredCall, Format,
        json::{self, Json},
        quote::quote_result,
    },
};

/// Writes a placeholder as the response of `call`.
pub(crate) fn write_placeholder(json: Json<'_>, call: AnsweredCall, text: &'static str) -> Vec<Piece> {
    // A `response` with `error` is the documented form of a failure (Function calling, 2026-11).
    let response = json::enclose(r#"{"error":""#, vec![Piece::Constant(text)], "\"}");
    write_response(json, call, response)
}

/// Writes a real result that was not in the body.
///
/// `content` is JSON that a response takes: an object as it is, anything else under `result` or `error`.
pub(crate) fn write_result(json: Json<'_>, call: AnsweredCall, content: String, failed: bool) -> Vec<Piece> {
    let key = if failed { r#"{"error":"# } else { r#"{"result":"# };
    let is_response = json::is_object(content.as_bytes());
    let mut response = vec![Piece::Made(content)];
    if !is_response {
        response = json::enclose(key, response, "}");
    }
    write_response(json, call, response)
}

/// Writes the response to `call`, with the call's name and its id, if it has one.
fn write_response(json: Json<'_>, call: AnsweredCall, response: Vec<Piece>) -> Vec<Piece> {
    let mut pieces = vec![Piece::Constant(r#"{"functionResponse":{"#)];
    if let Some(id) = call.id {
        pieces.extend([Piece::Constant(r#""id":"#), id, Piece::Constant(",")]);
    }
    // The field is required: a call without a name gets an empty one.
    let own_name = || call_in_part(json, call.part).and_then(|call| json.member(call, "name"));
    let name = call.new_name.or_else(|| own_name().map(Piece::Original));
    pieces.extend([
        Piece::Constant(r#""name":"#),
        name.unwrap_or(Piece::Constant("\"\"")),
        Piece::Constant(r#","response":"#),
    ]);
    pieces.extend(response);
    pieces.push(Piece::Constant("}}"));
    pieces
}

/// Writes a response as parts of a user's content. Its files are carried unchanged.
pub(crate) fn write_quote(json: Json<'_>, part: Span, id: &str, name: Option<&str>) -> Vec<Vec<Piece>> {
    let response = response_in_part(json, part);
    let member = |key: &str| response.and_then(|response| json.member(response, key));
    // Without carried blocks the quotation is one text, which precedes the files.
    let quoted = quote_result(json, id, name, member("response"), &[]);
    let text = quoted.into_iter().map(|piece| piece.into_block(Format::Gemini));
    let files = member("parts").map(|files| json.elements(files)).unwrap_or_default();
    text.chain(files.into_iter().map(|file| vec![Piece::Original(file)]))
        .collect()
}

/// Locates the call in a part.
pub(crate) fn call_in_part(json: Json<'_>, part: Span) -> Option<Span> {
    json.member(part, "functionCall")
        .or_else(|| json.member(part, "function_call"))
}

/// Locates the response in a part.
pub(crate) fn response_in_part(json: Json<'_>, part: Span) -> Option<Span> {
    json.member(part, "functionResponse")
        .or_else(|| json.member(part, "function_response"))
}

/// Locates the id of the call at `part`. `None` if it is missing or empty.
pub(crate) fn call_id(json: Json<'_>, part: Span) -> Option<Span> {
    let id = json.member(call_in_part(json, part)?, "id")?;
    (!json.decode_string(id).is_empty()).then_some(id)
}

/// Sets the thought signature of the part at `span`.
pub(crate) fn set_signature(json: Json<'_>, span: Span, signature: &str) -> Edit {
    // A part that has the member in the other spelling must not get it twice.
    let has_snake = json.member(span, "thought_signature").is_some();
    let key = if has_snake {
        "thought_signature"
    } else {
        "thoughtSignature"
    };
    json.set_member(span, key, vec![Piece::Made(json::quote_string(signature))])
}
