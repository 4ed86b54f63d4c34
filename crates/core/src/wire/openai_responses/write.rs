//! The writer of items of the Responses format. It writes no item `id`, since the provider assigns those.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        Format,
        json::{self, Json, JsonKind},
        openai_responses::items::{CallKind, OutputForm, call_kind, result_kind},
        quote::{QuotedPiece, quote_call, quote_result},
    },
};

/// Types of parts in an output that a user message may contain unchanged.
const CARRIED_TYPES: [&[u8]; 2] = [b"input_image", b"input_file"];

/// The JSON in front of the content of a user message.
const USER_MESSAGE_START: &str = r#"{"type":"message","role":"user","content":"#;

/// Writes a placeholder in the form that answers the call at `call`.
pub(crate) fn write_placeholder(json: Json<'_>, call: Span, id: Piece, text: &'static str) -> Vec<Piece> {
    write_output_item(call_kind_at(json, call), id, json::constant_string(text), true)
}

/// Writes a real result that was not in the body. `content` is JSON that the output takes.
pub(crate) fn write_result(json: Json<'_>, call: Span, id: Piece, content: String, failed: bool) -> Vec<Piece> {
    write_output_item(call_kind_at(json, call), id, vec![Piece::Made(content)], failed)
}

/// Writes a result for a call of `kind`. `text` is a JSON string, or for [`OutputForm::Text`] also a list of parts.
fn write_output_item(kind: Option<&CallKind>, id: Piece, text: Vec<Piece>, failed: bool) -> Vec<Piece> {
    // Most calls are of functions, which an unknown call is taken for.
    let (item, form) = kind.map_or(("function_call_output", OutputForm::Text), |kind| {
        (kind.result, kind.form)
    });
    let (before, after) = match form {
        OutputForm::Text | OutputForm::Unwritable(_) => (r#","output":"#, "}"),
        OutputForm::Shell if failed => (
            r#","output":[{"stdout":"","stderr":"#,
            r#","outcome":{"type":"exit","exit_code":1}}]}"#,
        ),
        OutputForm::Shell => (
            r#","output":[{"stdout":"#,
            r#","stderr":"","outcome":{"type":"exit","exit_code":0}}]}"#,
        ),
        OutputForm::Patch if failed => (r#","status":"failed","output":"#, "}"),
        OutputForm::Patch => (r#","status":"completed","output":"#, "}"),
        // The form has no text. An empty list is a search without hits, as codex answers an interrupted search.
        OutputForm::Search => (r#","status":"completed","execution":"client","tools":["#, "]}"),
    };
    let text = if form == OutputForm::Search { Vec::new() } else { text };
    let item = [item, r#"","call_id":"#].map(Piece::Constant);
    let mut pieces = vec![Piece::Constant(r#"{"type":""#)];
    pieces.extend(item);
    pieces.push(id);
    pieces.extend(json::enclose(before, text, after));
    pieces
}

/// Writes the answer of a remote call, whose kind is not known.
pub(crate) fn write_remote_result(id: Piece, text: &'static str) -> Vec<Piece> {
    write_output_item(None, id, json::constant_string(text), true)
}

/// Inserts items before an `input` that is a string, which becomes a message of the user.
pub(crate) fn insert_before_text(json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
    let text = json.member(json.root_span().ok()?, "input")?;
    if json.kind(text) != JsonKind::String {
        return None;
    }
    let mut items = front;
    items.push(json::enclose(USER_MESSAGE_START, vec![Piece::Original(text)], "}"));
    Some(Edit {
        span: text,
        pieces: json::write_list(items),
    })
}

/// Writes a result as a user message.
pub(crate) fn write_quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
    // The key of the content depends on the kind of the result.
    let said = ["output", "tools", "approve"]
        .into_iter()
        .find_map(|key| json.member(result, key));
    write_user_message(quote_result(json, id, name, said, &CARRIED_TYPES))
}

fn write_user_message(quoted: Vec<QuotedPiece>) -> Vec<Piece> {
    let parts = quoted
        .into_iter()
        .map(|piece| piece.into_block(Format::OpenAiResponses));
    json::enclose(USER_MESSAGE_START, json::write_list(parts.collect()), "}")
}

/// Writes a call that cannot be answered as a user message, with the reasoning items directly before it.
pub(crate) fn write_call_as_text(
    json: Json<'_>,
    call: Span,
    reasoning: &[Span],
    id: &str,
    name: Option<&str>,
) -> Vec<Piece> {
    // Reasoning items are refused without the call that follows them; their text is kept.
    let lists = reasoning
        .iter()
        .flat_map(|item| ["summary", "content"].map(|key| json.member(*item, key)));
    let parts = lists.flatten().flat_map(|list| json.elements(list));
    let said: Vec<Span> = parts.filter_map(|part| json.string_member(part, "text")).collect();
    let input = ["action", "actions"].into_iter().find_map(|key| json.member(call, key));
    write_user_message(quote_call(json, id, name, &said, input))
}

/// Locates the id by which the call at `span` pairs.
pub(crate) fn call_id(json: Json<'_>, span: Span) -> Option<Span> {
    // Approval requests and some local shell calls pair by their item id.
    json.member(span, "call_id").or_else(|| json.member(span, "id"))
}

/// Returns the key of the call id in the result at `span`.
pub(crate) fn result_id_key(json: Json<'_>, span: Span) -> &'static str {
    // The result of a local shell may name its call by `call_id` instead of `id`.
    let has_call_id = json.member(span, "call_id").is_some();
    let kind = result_kind(&json.member_text(span, "type")).filter(|_| !has_call_id);
    kind.map_or("call_id", |kind| kind.id_key)
}

/// Sets the type of the result at `span` to the one that answers the call at `call`.
pub(crate) fn set_result_kind(json: Json<'_>, span: Span, call: Span) -> Edit {
    let item = call_kind_at(json, call).map_or("function_call_output", |kind| kind.result);
    json.set_member(span, "type", json::constant_string(item))
}

/// Locates the types of the parts of type `input_text` in the list at `content`.
pub(super) fn input_part_types(json: Json<'_>, content: Span) -> Vec<Span> {
    let types = json
        .elements(content)
        .into_iter()
        .filter_map(|part| json.member(part, "type"));
    types
        .filter(|kind| *json.decode_string(*kind) == *b"input_text")
        .collect()
}

/// Sets the type of every part of type `input_text` in the message at `span` to that of the assistant's texts.
pub(crate) fn set_output_types(json: Json<'_>, span: Span) -> Vec<Edit> {
    let content = json.member(span, "content");
    let types = content
        .map(|content| input_part_types(json, content))
        .unwrap_or_default();
    let set = |kind| Edit {
        span: kind,
        pieces: json::constant_string("output_text"),
    };
    types.into_iter().map(set).collect()
}

/// Removes the item id of the item at `span`.
pub(crate) fn drop_item_id(json: Json<'_>, span: Span) -> Vec<Edit> {
    json.remove_member(span, "id")
}

/// Returns the kind of the call at `call`. `None` if it is not in the table of calls.
pub(super) fn call_kind_at(json: Json<'_>, call: Span) -> Option<&'static CallKind> {
    call_kind(&json.member_text(call, "type"))
}
