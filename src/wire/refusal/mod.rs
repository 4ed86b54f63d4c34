//! What a provider's 400 says about the pairing of tool calls: one table of phrases for all formats, and its reader.
//!
//! Never trusts an index (`messages.7`), since providers count after their own normalising: only ids are taken. Never
//! finds a phrase inside a text, where a user's words may be echoed: only at its beginning, behind known [`LEADS`].
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod phrases;
mod read;

use memchr::memmem;

use crate::{
    splice::Span,
    wire::json::{Json, Kind},
};
use phrases::{LEADS, MEMBERS, PHRASES};
use read::read;

/// The largest body that [`refusal`] reads, in bytes.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// What a provider's 400 says about pairing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What is wrong.
    pub kind: RefusalKind,
    /// What it names, in its order, each once: call ids, or item ids where the kind says so. At most 64, of at most 256
    /// bytes each; what is longer is left out.
    ///
    /// Empty where the provider names none (Chat Completions orphans, DeepSeek and Bedrock counts) or an index in place
    /// of them (Qwen). The kind is certain all the same: look for findings of that kind, or send the original again if
    /// it was edited; never choose a call by an index in the text.
    pub ids: Vec<String>,
}

/// What may be wrong with the pairing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Calls without a result where one is due.
    Unanswered,
    /// Results without a call, or without an id; without ids also a result more than there are calls.
    Orphan,
    /// A second result for one call. DeepSeek's chat endpoint says the same of two calls of one message with one id.
    Duplicate,
    /// One id for two calls.
    RepeatedCall,
    /// A server tool's call without its result, or the reverse: what belongs together in assistant messages.
    ServerHalf,
    /// Responses: two items with one item id. The ids are item ids.
    RepeatedItem,
    /// Responses: an item without the reasoning item it was made with. The id is that of the item, not of the reasoning.
    WithoutReasoning,
    /// Anthropic: a thinking block that was made behind another prefix. Names no ids.
    Bound {
        /// Whether the text names the beta header that the setting `drop_block` needs, which the request lacked.
        header_named: bool,
    },
}

/// The beginning of the beta header's value that Anthropic's binding controls need.
const BINDING_HEADER: &[u8] = b"thinking-binding-controls-";

/// How often a text may hold an error body as text.
const LAYERS_MAX: u8 = 3;
/// Objects and arrays from an error body to its text.
const NESTING_MAX: u8 = 5;
const LEADS_MAX: usize = 6;

/// What the `body` of a provider's 400 says about pairing; none where it says nothing of the kind, or is larger than
/// [`REFUSAL_BYTES_MAX`].
///
/// The text may stand at `error`, `error.message`, `message`, `detail` or `error.metadata.raw`, in an array of such
/// objects, or be the whole body; and it may hold such a body itself, as JSON or as Python prints bytes, up to three
/// times one in the other. Never fails: what is no JSON, or broken behind the text, is read as far as it goes.
pub fn refusal(body: &[u8]) -> Option<Refusal> {
    let read = body.len() <= REFUSAL_BYTES_MAX;
    read.then(|| in_text(body, LAYERS_MAX)).flatten()
}

fn in_text(text: &[u8], layers: u8) -> Option<Refusal> {
    let mut text = text.trim_ascii();
    for _ in 0..=LEADS_MAX {
        let found = in_body(text, layers).or_else(|| PHRASES.iter().find_map(|phrase| said(phrase, text)));
        if found.is_some() {
            return found;
        }
        let (_, rest) = LEADS.iter().find_map(|lead| read(lead, text))?;
        text = rest.trim_ascii_start();
    }
    None
}

fn said(&(phrase, kind): &(&str, RefusalKind), text: &[u8]) -> Option<Refusal> {
    let (ids, _) = read(phrase, text)?;
    let kind = match kind {
        RefusalKind::Bound { .. } => RefusalKind::Bound {
            header_named: memmem::find(text, BINDING_HEADER).is_some(),
        },
        kind => kind,
    };
    Some(Refusal { kind, ids })
}

/// What an error body at the beginning of `text` says.
fn in_body(text: &[u8], layers: u8) -> Option<Refusal> {
    let layers = layers.checked_sub(1)?;
    match text {
        [b'{' | b'[', ..] => in_value(Json::new(text), Span::new(0, text.len()), NESTING_MAX, layers),
        [b'b', quote @ (b'\'' | b'"'), rest @ ..] => in_text(&unescaped(rest, *quote), layers),
        _ => None,
    }
}

fn in_value(json: Json<'_>, value: Span, nesting: u8, layers: u8) -> Option<Refusal> {
    let kind = json.kind(value);
    if kind == Kind::String {
        return in_text(&json.decode(value), layers);
    }
    let nesting = nesting.checked_sub(1)?;
    let mut found = None;
    // What stands before a fault counts: it was read.
    let _walked = match kind {
        Kind::Object => json.members(value, |key, value| {
            if found.is_none() && MEMBERS.contains(&key) {
                found = in_value(json, value, nesting, layers);
            }
        }),
        Kind::Array => json.elements(value, |element| {
            if found.is_none() && json.kind(element) == Kind::Object {
                found = in_value(json, element, nesting, layers);
            }
        }),
        _ => Ok(()),
    };
    found
}

/// The bytes that Python prints as `b'…'`, up to the closing `quote`; line ends as blanks.
fn unescaped(mut text: &[u8], quote: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    loop {
        let (byte, rest) = match text {
            [b'\\', b'n' | b'r' | b't', rest @ ..] => (b' ', rest),
            [b'\\', b'x', high, low, rest @ ..] => (hex(*high, *low), rest),
            [b'\\', byte, rest @ ..] => (*byte, rest),
            [byte, rest @ ..] if *byte != quote => (*byte, rest),
            _ => return bytes,
        };
        bytes.push(byte);
        text = rest;
    }
}

fn hex(high: u8, low: u8) -> u8 {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digit(high).zip(digit(low)).map_or(b'?', |(high, low)| high << 4 | low)
}
