//! The marks by which a request is told to go on with a conversation, or to be unrelated to it.
//!
//! Clients ask for titles, topics and quotas under the session of a conversation. Such a request proves nothing about
//! the calls of the conversation.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::{BodyField, Outline},
    digest::Digest,
    splice::Span,
    wire::json::{Json, JsonKind},
};

/// Bytes of a text that are hashed, together with its length.
const TEXT_BYTES: usize = 1024;

/// The evidence of a request about one call of its lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallEvidence {
    /// It goes on with the conversation of the call.
    GoesOn,
    /// It goes on without the call.
    Left,
    /// It is unrelated to the conversation, and proves nothing.
    Unrelated,
}

/// The marks of one request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TurnMark {
    /// The number of messages. In Responses: items.
    messages: usize,
    /// The number of messages up to the last one of the assistant.
    assistant_end: usize,
    declares_tools: bool,
    /// `true` if it forces the model to call a tool, or forbids all tools.
    forces_choice: bool,
    /// `true` if its history is at the provider, and the body has the new messages alone.
    continues_by_id: bool,
    /// The hash of the user's first text. Zero if there is none.
    beginning: u64,
    /// The hash of the instructions. Zero if there are none.
    instructions: u64,
}

impl TurnMark {
    /// Returns the marks of a request whose user's first text is at this span.
    pub fn of_request(body: &[u8], outline: &Outline, first_text: Option<Span>) -> Self {
        let json = Json::new(body);
        Self {
            messages: outline.messages,
            assistant_end: outline.assistant_end,
            declares_tools: outline.declares_tools,
            forces_choice: outline
                .field(BodyField::ToolChoice)
                .is_some_and(|choice| is_choice_forced(json, choice)),
            continues_by_id: continues_by_id(outline),
            beginning: text_hash(json, first_text),
            instructions: text_hash(json, outline.system),
        }
    }

    /// Returns `true` if the request declares at least one tool.
    pub const fn declares_tools(&self) -> bool {
        self.declares_tools
    }

    /// Returns `true` if the model may choose between its tools and words. Clients force a tool to get a title in its input.
    pub const fn has_free_choice(&self) -> bool {
        !self.forces_choice
    }

    /// Returns `true` if the history of the request is at the provider.
    pub const fn continues_by_id(&self) -> bool {
        self.continues_by_id
    }

    /// Returns `true` if the request can be a turn of the conversation of an earlier one, whatever its history says.
    pub const fn may_continue(&self, earlier: &Self) -> bool {
        // Agents declare their tools in every turn. Titles and topics need none.
        self.declares_tools || !earlier.declares_tools
    }

    /// Returns `true` if the request goes on with the conversation of an earlier one, although its history may lack the
    /// answer to that.
    pub const fn goes_on_from(&self, earlier: &Self) -> bool {
        if !self.may_continue(earlier) {
            return false;
        }
        if self.continues_by_id {
            return true;
        }
        // Some agents force a tool in every turn. A request that does so beside others asks for a title, perhaps.
        if self.forces_choice && !earlier.forces_choice {
            return false;
        }
        // Some clients write the time into the instructions. An answer in place of the earlier one proves more.
        let is_its_turn = self.instructions == earlier.instructions || self.assistant_end > earlier.messages;
        // A request with as many messages may be the earlier one, sent once more.
        self.messages > earlier.messages && self.beginning == earlier.beginning && is_its_turn
    }
}

/// Returns `true` if the request goes on from a history at the provider.
pub fn continues_by_id(outline: &Outline) -> bool {
    [BodyField::PreviousResponse, BodyField::Thread, BodyField::Conversation]
        .into_iter()
        .any(|field| outline.field(field).is_some())
}

/// Returns `true` if a choice of tools forces the model to call one, or forbids all.
fn is_choice_forced(json: Json<'_>, choice: Span) -> bool {
    if json.kind(choice) == JsonKind::String {
        return [&b"required"[..], b"any", b"none"].contains(&&*json.decode_string(choice));
    }
    for name in ["functionCallingConfig", "function_calling_config"] {
        if let Some(config) = json.member(choice, name) {
            return [&b"ANY"[..], b"NONE"].contains(&&*json.member_text(config, "mode"));
        }
    }
    match &*json.member_text(choice, "type") {
        b"" | b"auto" => false,
        // Chat has the mode in an object of its own.
        b"allowed_tools" => {
            let config = json.member(choice, "allowed_tools").unwrap_or(choice);
            *json.member_text(config, "mode") == *b"required"
        }
        // `any` and `none`. Every other type names a tool.
        _ => true,
    }
}

/// Returns the hash of a text's length and beginning.
///
/// Long texts count as the same if they have one length, and differ only after their first kilobyte.
fn text_hash(json: Json<'_>, text: Option<Span>) -> u64 {
    let Some(text) = text.map(|span| json.bytes(span)) else {
        return 0;
    };
    let mut hash = Digest::new_unkeyed();
    // The length separates long texts that begin alike.
    hash.update(&text.len().to_le_bytes());
    hash.update(text.get(..text.len().min(TEXT_BYTES)).unwrap_or_default());
    let digest = hash.finish();
    digest.first_chunk().map_or(0, |head| u64::from_le_bytes(*head))
}
