//! Reads refusals: error responses in which a provider objects to the history of a request.
//!
//! One table of phrases serves all formats. Indices such as `messages.7` are ignored, since providers count after their
//! own normalization; only ids are read. A phrase must begin the text, apart from known [`LEADS`], since an error may
//! quote the user further on.

mod phrase_match;
mod phrases;

use memchr::memmem;

use crate::{
    splice::Span,
    wire::json::{Json, JsonKind},
};
use phrase_match::match_phrase;
use phrases::{LEADS, PHRASES, TEXT_MEMBERS};

/// The largest body that [`read_refusal`] reads, in bytes.
pub const REFUSAL_BYTES_MAX: usize = 64 * 1024;

/// A provider's objection to a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The kind of fault.
    pub kind: RefusalKind,
    /// The ids that the text names, in its order, each once: call ids, or item ids for the kinds that say so.
    ///
    /// At most 64 ids are read, and none of more than 256 bytes. The list is empty if the provider names none (Chat
    /// Completions orphans, DeepSeek and Bedrock counts) or an index instead (Qwen). The kind is certain all the same:
    /// the repair looks for findings of that kind, or resends the original body if it was edited. It never chooses a
    /// call by an index in the text.
    pub ids: Vec<String>,
}

/// The faults of a history that providers name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusalKind {
    /// Any fault of the history. Names no ids.
    AnyFault,
    /// Calls without a required result.
    Unanswered,
    /// Results without a call or without an id. If the refusal names no ids, also more results than calls.
    Orphan,
    /// A second result for one call. DeepSeek's chat endpoint also uses this text for two calls with one id.
    Duplicate,
    /// One id for two calls.
    RepeatedCall,
    /// A call whose input is no JSON object, or whose name breaks the provider's pattern. Few texts name an id.
    MalformedCall,
    /// Mistral and its templates: a user's message directly after a tool message. Names no ids.
    UserAfterResults,
    /// Chat templates: a history without a user's message at its beginning. Names no ids.
    NoUserTurn,
    /// A server tool's call without its result, or the reverse, in assistant messages.
    ServerHalf,
    /// Responses: two items with the same item id. The ids are item ids.
    RepeatedItem,
    /// Responses: an item without its reasoning item. The id is that of the item, not of the reasoning.
    WithoutReasoningItem,
    /// Anthropic: a thinking block that was generated after another prefix. Names no ids.
    Bound {
        /// Set if the text names the beta header that the setting `drop_block` needs and the request lacked.
        header_named: bool,
    },
    /// Chat Completions: an assistant message with calls lacks its `reasoning_content`. Names no ids.
    WithoutReasoningContent,
    /// Gemini: the first call of a step lacks its thought signature. Names no ids.
    WithoutSignature,
    /// Anthropic: a call of code waits for its result, and the body does not name its container. Names no ids.
    WithoutContainer,
    /// Signed or encrypted reasoning that another provider, account or organisation generated.
    ///
    /// The id, if any, is that of the reasoning item.
    ForeignThinking,
    /// Responses: the provider has lost the response that the request continues from. The id, if any, is its id.
    DeadResponse,
}

/// The beginning of the beta header value that Anthropic's binding controls need.
const BINDING_HEADER: &[u8] = b"thinking-binding-controls-";

/// Largest number of error bodies that are nested as text.
const LAYERS_MAX: u8 = 3;
/// Largest number of objects and arrays around the text of an error body.
const NESTING_MAX: u8 = 5;
/// Largest number of leads before a phrase.
const LEADS_MAX: usize = 6;

/// Reads the `body` of a provider's refusal. `None` if it is not about the history, or larger than
/// [`REFUSAL_BYTES_MAX`].
///
/// The text may be at `error`, `error.message`, `message`, `detail` or `error.metadata.raw`, in an array of such
/// objects, or the whole body. It may itself contain such a body, as JSON or as Python prints bytes, nested up to three
/// times. Broken JSON is read up to the fault.
pub fn read_refusal(body: &[u8]) -> Option<Refusal> {
    let read = body.len() <= REFUSAL_BYTES_MAX;
    read.then(|| find_in_text(body, LAYERS_MAX)).flatten()
}

fn find_in_text(text: &[u8], layers: u8) -> Option<Refusal> {
    let mut text = text.trim_ascii();
    // Gateways and SDKs put their own words before the provider's, several of them in a chain.
    for _ in 0..=LEADS_MAX {
        let of_kind = |(kind, phrases): &(RefusalKind, &[&str])| {
            let mut phrases = phrases.iter();
            phrases.find_map(|phrase| refusal_by_phrase(phrase, *kind, text))
        };
        let found = find_in_body(text, layers).or_else(|| PHRASES.iter().find_map(of_kind));
        if found.is_some() {
            return found;
        }
        let (_, rest) = LEADS.iter().find_map(|lead| match_phrase(lead, text))?;
        text = rest.trim_ascii_start();
    }
    None
}

fn refusal_by_phrase(phrase: &str, kind: RefusalKind, text: &[u8]) -> Option<Refusal> {
    let (ids, _) = match_phrase(phrase, text)?;
    // The header is named after the phrase, or not at all.
    let kind = match kind {
        RefusalKind::Bound { .. } => RefusalKind::Bound {
            header_named: memmem::find(text, BINDING_HEADER).is_some(),
        },
        kind => kind,
    };
    Some(Refusal { kind, ids })
}

/// Reads the error body at the beginning of `text`.
fn find_in_body(text: &[u8], layers: u8) -> Option<Refusal> {
    let layers = layers.checked_sub(1)?;
    match text {
        [b'{' | b'[', ..] => find_in_value(Json::new(text), Span::new(0, text.len()), NESTING_MAX, layers),
        [b'b', quote @ (b'\'' | b'"'), rest @ ..] => find_in_text(&unescape_python(rest, *quote), layers),
        _ => None,
    }
}

fn find_in_value(json: Json<'_>, value: Span, nesting: u8, layers: u8) -> Option<Refusal> {
    let kind = json.kind(value);
    if kind == JsonKind::String {
        return find_in_text(&json.decode_string(value), layers);
    }
    let nesting = nesting.checked_sub(1)?;
    let mut found = None;
    // A phrase before a fault in the JSON counts, so the result of the walk does not matter.
    let _walked = match kind {
        JsonKind::Object => json.for_each_member(value, |key, value| {
            if found.is_none() && TEXT_MEMBERS.contains(&key) {
                found = find_in_value(json, value, nesting, layers);
            }
        }),
        JsonKind::Array => json.for_each_element(value, |element| {
            if found.is_none() && json.kind(element) == JsonKind::Object {
                found = find_in_value(json, element, nesting, layers);
            }
        }),
        _ => Ok(()),
    };
    found
}

/// Decodes bytes that Python printed as `b'…'`, up to the closing `quote`. Line breaks become blanks.
fn unescape_python(mut text: &[u8], quote: u8) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    loop {
        let (byte, rest) = match text {
            [b'\\', b'n' | b'r' | b't', rest @ ..] => (b' ', rest),
            [b'\\', b'x', high, low, rest @ ..] => (hex_byte(*high, *low), rest),
            [b'\\', byte, rest @ ..] => (*byte, rest),
            [byte, rest @ ..] if *byte != quote => (*byte, rest),
            _ => return bytes,
        };
        bytes.push(byte);
        text = rest;
    }
}

/// Returns the byte of two hexadecimal digits, or `?` if they are none.
fn hex_byte(high: u8, low: u8) -> u8 {
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    digit(high).zip(digit(low)).map_or(b'?', |(high, low)| high << 4 | low)
}
