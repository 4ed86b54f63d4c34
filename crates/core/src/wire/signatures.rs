//! Signatures of reasoning: their places in each format, and values that cannot be the provider's own.

use crate::{
    conversation::Text,
    splice::{Edit, Piece, Span},
    wire::{
        Dialect, Format, HistoryShape, Wire,
        json::{Json, JsonKind},
    },
    work,
};

/// Values that translators between providers write where they have no signature (openclaw/openclaw#91205, 2026-06).
const INVENTED: &[&[u8]] = &[b"reasoning_content", b"skip_thought_signature_validator"];

/// The signature with which Gemini validates nothing, as a JSON string.
const SKIP_VALIDATOR: &str = "\"skip_thought_signature_validator\"";

/// The beginning of OpenAI's encrypted content: a Fernet token of this century.
const OPENAI_BEGIN: &[u8] = b"gAAAAA";

/// Returns `true` if the value at `signature` cannot be a signature of Anthropic.
///
/// Such values are empty, JSON, OpenAI's, invented, or not base64.
pub(crate) fn cannot_be_anthropics(json: Json<'_>, signature: Span) -> bool {
    if json.kind(signature) != JsonKind::String {
        return true;
    }
    let text = json.decode_string(signature);
    work::count(text.len());
    // Both alphabets of base64 count: a change of Anthropic's must not cost a session its thinking.
    let is_base64 = |byte: &u8| byte.is_ascii_alphanumeric() || b"+/-_=".contains(byte);
    text.is_empty()
        || text.starts_with(OPENAI_BEGIN)
        || INVENTED.contains(&text.as_ref())
        || !text.iter().all(is_base64)
}

/// Returns `true` if the provider verifies the signatures of thinking, so that a foreign one is refused for certain.
pub(crate) const fn verifies_signatures(wire: Wire) -> bool {
    match wire.format {
        // Servers that only speak the format write signatures of their own, or none.
        Format::Anthropic => matches!(wire.dialect, Dialect::Standard | Dialect::Bedrock),
        Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => false,
    }
}

/// Locates the signature, or the encrypted content, of the reasoning at `part`.
///
/// `None` if it has none, and for Chat Completions, whose reasoning is not signed.
pub(crate) fn thinking_signature(format: Format, json: Json<'_>, part: Span) -> Option<Span> {
    let member = |name: &str| json.member(part, name);
    match format.history() {
        HistoryShape::Messages => member("signature").or_else(|| member("data")),
        HistoryShape::Items => member("encrypted_content").filter(|value| json.kind(*value) == JsonKind::String),
        HistoryShape::Contents => member("thoughtSignature").or_else(|| member("thought_signature")),
        HistoryShape::Chat => None,
    }
}

/// Returns the text of the thinking at `part` where thinking without a signature is foreign too: blocks of that kind
/// differ by their text alone. `None` where only a signature can be foreign.
pub(crate) fn thinking_text(format: Format, json: Json<'_>, part: Span) -> Option<Text<'_>> {
    match format.history() {
        // Anthropic requires a signature, so thinking without one is as foreign as thinking with a wrong one.
        HistoryShape::Messages => Some(json.member_text(part, "thinking")),
        HistoryShape::Chat | HistoryShape::Items | HistoryShape::Contents => None,
    }
}

/// Removes the signature of the Gemini part at `part`, or replaces it where the part needs one.
///
/// A call gets the value that Google documents for calls without a valid signature ("Thought signatures", 2026-11). Text
/// needs no signature, but a part without text exists for its signature alone.
pub(crate) fn remove_gemini_signature(json: Json<'_>, part: Span) -> Vec<Edit> {
    let (mut signatures, mut needs_one) = (Vec::new(), true);
    let walked = json.for_each_member(part, |key, value| match key {
        b"thoughtSignature" | b"thought_signature" => signatures.push(value),
        b"text" => needs_one &= json.string_inside(value).is_empty(),
        // A mark of the text beside it.
        b"thought" => {}
        _ => needs_one = false,
    });
    let has_call = json
        .member(part, "functionCall")
        .or_else(|| json.member(part, "function_call"));
    if walked.is_err() {
        return Vec::new();
    }
    if needs_one || has_call.is_some() {
        // Proto JSON allows both spellings, and a body may repeat them.
        let set = |span| Edit {
            span,
            pieces: vec![Piece::Constant(SKIP_VALIDATOR)],
        };
        return signatures.into_iter().map(set).collect();
    }
    json.remove_members(part, &["thoughtSignature", "thought_signature"])
}
