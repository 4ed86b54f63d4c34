//! Writes items of the Responses format. Items of ours have no `id`: ids are the provider's to give.

use crate::{
    splice::{Edit, Piece, Span},
    wire::{
        json::{self, Json, Kind},
        openai_responses::items::{CallKind, Form, call_kind, result_kind},
        quote::{self, Quoted},
    },
};

/// Parts of an output that a user message may hold as they are.
const CARRIED: [&[u8]; 2] = [b"input_image", b"input_file"];

/// A result that nobody gave, in the form that answers the call at `call`.
pub(crate) fn placeholder(json: Json<'_>, call: Span, id: Piece, text: &'static str) -> Vec<Piece> {
    result(kind_of(json, call), id, json::constant(text), true)
}

/// A real result from elsewhere; `content` is JSON that the output takes.
pub(crate) fn restored(json: Json<'_>, call: Span, id: Piece, content: String, failed: bool) -> Vec<Piece> {
    result(kind_of(json, call), id, vec![Piece::Made(content)], failed)
}

/// A result of `kind` that says `text`, a JSON string (a list of parts too where the form is a text).
fn result(kind: Option<&CallKind>, id: Piece, text: Vec<Piece>, failed: bool) -> Vec<Piece> {
    let (item, form) = kind.map_or(("function_call_output", Form::Text), |kind| (kind.result, kind.form));
    let mut pieces = vec![
        Piece::Constant(r#"{"type":""#),
        Piece::Constant(item),
        Piece::Constant(r#"","call_id":"#),
        id,
    ];
    let (before, after) = match form {
        Form::Text | Form::Nothing => (r#","output":"#, "}"),
        Form::Shell if failed => (
            r#","output":[{"stdout":"","stderr":"#,
            r#","outcome":{"type":"exit","exit_code":1}}]}"#,
        ),
        Form::Shell => (
            r#","output":[{"stdout":"#,
            r#","stderr":"","outcome":{"type":"exit","exit_code":0}}]}"#,
        ),
        Form::Patch if failed => (r#","status":"failed","output":"#, "}"),
        Form::Patch => (r#","status":"completed","output":"#, "}"),
        // A search that found nothing: the form holds no text (codex answers an interrupted search so).
        Form::Search => {
            pieces.push(Piece::Constant(
                r#","status":"completed","execution":"client","tools":[]}"#,
            ));
            return pieces;
        }
    };
    pieces.push(Piece::Constant(before));
    pieces.extend(text);
    pieces.push(Piece::Constant(after));
    pieces
}

/// The answer of a call that the provider holds. Its kind is not known: most calls are of functions.
pub(crate) fn held_answer(id: Piece, text: &'static str) -> Vec<Piece> {
    result(None, id, json::constant(text), true)
}

/// Puts items in front of an `input` that is a bare text, which becomes a message of the user's.
pub(crate) fn in_front_of_text(json: Json<'_>, front: Vec<Vec<Piece>>) -> Option<Edit> {
    let text = json.member(json.root().ok()?, "input")?;
    if json.kind(text) != Kind::String {
        return None;
    }
    let mut items = front;
    items.push(vec![
        Piece::Constant(r#"{"type":"message","role":"user","content":"#),
        Piece::Original(text),
        Piece::Constant("}"),
    ]);
    Some(Edit {
        span: text,
        pieces: json::list(items),
    })
}

/// A result as a user message.
pub(crate) fn quote(json: Json<'_>, result: Span, id: &str, name: Option<&str>) -> Vec<Piece> {
    let said = ["output", "tools", "approve"]
        .into_iter()
        .find_map(|key| json.member(result, key));
    let part = |part| match part {
        Quoted::Block(span) => vec![Piece::Original(span)],
        Quoted::Text(mut text) => {
            text.insert(0, Piece::Constant(r#"{"type":"input_text","text":""#));
            text.push(Piece::Constant(r#""}"#));
            text
        }
    };
    let parts = quote::quote(json, id, name, said, &CARRIED).into_iter().map(part);
    let mut pieces = vec![Piece::Constant(r#"{"type":"message","role":"user","content":"#)];
    pieces.extend(json::list(parts.collect()));
    pieces.push(Piece::Constant("}"));
    pieces
}

/// A call that nobody can answer as a user message, with the reasoning items that stood right before it.
pub(crate) fn fold(json: Json<'_>, call: Span, reasoning: &[Span], id: &str, name: Option<&str>) -> Vec<Piece> {
    let mut said = Vec::new();
    for list in reasoning
        .iter()
        .flat_map(|item| ["summary", "content"].map(|key| json.member(*item, key)))
    {
        let Some(list) = list.filter(|list| json.kind(*list) == Kind::Array) else {
            continue;
        };
        let walked = json.elements(list, |part| {
            let text = (json.kind(part) == Kind::Object)
                .then(|| json.member(part, "text"))
                .flatten();
            said.extend(text.filter(|text| json.kind(*text) == Kind::String));
        });
        debug_assert!(walked.is_ok(), "the item was read before");
    }
    let input = ["action", "actions"].into_iter().find_map(|key| json.member(call, key));
    let mut pieces = vec![Piece::Constant(
        r#"{"type":"message","role":"user","content":[{"type":"input_text","text":""#,
    )];
    pieces.extend(quote::fold(json, id, name, &said, input));
    pieces.push(Piece::Constant(r#""}]}"#));
    pieces
}

/// The member that holds the id by which the call at `span` pairs.
pub(crate) fn call_id(json: Json<'_>, span: Span) -> Option<Span> {
    json.member(span, "call_id").or_else(|| json.member(span, "id"))
}

/// Gives the call at `span` another id.
pub(crate) fn set_call_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    json.set(span, "call_id", vec![id])
}

/// Gives the result at `span` another id.
pub(crate) fn set_result_id(json: Json<'_>, span: Span, id: Piece) -> Edit {
    let kind = json
        .member(span, "type")
        .and_then(|kind| result_kind(&json.decode(kind)));
    let has_call_id = json.member(span, "call_id").is_some();
    let names = kind.map_or("call_id", |kind| kind.names);
    json.set(span, if has_call_id { "call_id" } else { names }, vec![id])
}

/// Gives the result at `span` the type that answers the call at `call`.
pub(crate) fn set_result_kind(json: Json<'_>, span: Span, call: Span) -> Edit {
    let item = kind_of(json, call).map_or("function_call_output", |kind| kind.result);
    json.set(span, "type", json::constant(item))
}

/// Takes the item id away from the item at `span`.
pub(crate) fn drop_item_id(json: Json<'_>, span: Span) -> Vec<Edit> {
    json.unset(span, "id")
}

/// Returns the kind of the call at `call`. `None` if it is none that a client answers.
pub(super) fn kind_of(json: Json<'_>, call: Span) -> Option<&'static CallKind> {
    call_kind(&json.decode(json.member(call, "type")?))
}
