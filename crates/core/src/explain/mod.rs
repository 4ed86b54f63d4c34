//! Errors that a client of the format can act on: appends the sentence of the format's author to the words of another
//! vendor's server.
//!
//! The words stay first and in their bytes. Numbers are those of the words: none is counted or guessed.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod message;
mod sentence;
mod tool;

pub use tool::tool_name;

use bytes::Bytes;

use crate::{
    splice::{Edit, EditList, Piece, Span},
    wire::{
        ErrorMeaning, Format,
        json::{self, Json, JsonKind},
    },
};
use message::{ErrorMessage, find_message};
use sentence::Sentence;

/// The code with which OpenAI refuses a prompt that is too long.
const OVERFLOW_CODE: &str = "context_length_exceeded";

/// Returns the body of an error with what its text lacks for clients of the format. `tool` is the name of the tool that
/// the error means.
///
/// `None` if it lacks nothing, if nothing can be said, or if the body is not JSON with exactly one message.
pub fn explain_error(body: &Bytes, format: Format, meaning: ErrorMeaning, tool: Option<&str>) -> Option<Bytes> {
    json::validate(body).ok()?;
    let json = Json::new(body);
    let message = find_message(json)?;
    let edits: Vec<Edit> = [
        Sentence::new(format, meaning, tool).and_then(|sentence| append(json, message, &sentence)),
        set_code(json, format, meaning, message),
    ]
    .into_iter()
    .flatten()
    .collect();
    let edits = EditList::new(edits, body.len()).ok()?;
    if edits.is_empty() {
        return None;
    }
    let explained: Bytes = edits.apply(body).to_vec().into();
    // An error that is no JSON any more would be a bug: then the client gets the provider's.
    json::validate(&explained).ok()?;
    Some(explained)
}

/// Appends a sentence to a message that does not contain it.
fn append(json: Json<'_>, message: ErrorMessage, sentence: &Sentence) -> Option<Edit> {
    let words = json.decode_string(message.text);
    if sentence.is_in(&words) {
        return None;
    }
    let inside = json.string_inside(message.text);
    let blank = if inside.is_empty() { "" } else { " " };
    Some(Edit {
        span: Span::at(inside.end),
        pieces: vec![
            Piece::Constant(blank),
            Piece::Made(json::escape_string(&format!("({})", sentence.text))),
        ],
    })
}

/// Sets the code of an overflow beside the message, in formats that have one. A code of the provider's own stays.
fn set_code(json: Json<'_>, format: Format, meaning: ErrorMeaning, message: ErrorMessage) -> Option<Edit> {
    let has_codes = match format {
        Format::OpenAiChat | Format::OpenAiResponses => true,
        Format::Anthropic | Format::Gemini => false,
    };
    if !has_codes || !matches!(meaning, ErrorMeaning::Overflow(_)) {
        return None;
    }
    let holder = message.holder?;
    let is_own = json.member(holder, "code").is_some_and(|code| {
        // Gateways repeat the status there, as a number or as a text.
        let text = json.decode_string(code);
        let is_status = text.len() <= 3 && text.iter().all(u8::is_ascii_digit);
        json.kind(code) == JsonKind::String && !is_status
    });
    (!is_own).then(|| json.set_member(holder, "code", vec![Piece::Made(json::quote_string(OVERFLOW_CODE))]))
}
