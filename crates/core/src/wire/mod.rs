//! The wire formats: reading a request body, writing one block, watching a response.
//!
//! Each format has a folder with the same files in the same order. Formats whose histories have one shape share the
//! reader and the writer, and have rules and watchers of their own. Every choice names every format, or every shape.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod body_fields;
mod call_checks;
mod call_faults;
mod content;
mod detect;
mod error_shape;
mod facts;
mod flaw_edits;
mod format;
mod interactions;
mod item_chain;
mod names;
mod nested_requests;
mod plain_text;
mod read_steps;
mod refusal;
mod signatures;
mod thinking_switch;
mod unreadable;

pub(crate) mod anthropic;
pub mod frames;
pub(crate) mod gemini;
pub mod json;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod quote;
pub mod watch;

pub(crate) use call_faults::{bad_result_name, declared_names, find_call_fault, judged_name};
pub use content::CONTENT_DEPTH_MAX;
pub(crate) use content::{media_label, readable_blocks, user_media};
pub use detect::{Undetected, detect_wire, is_message, plainly_other_format};
pub use error_shape::{ErrorShape, openai_error_type};
pub(crate) use flaw_edits::{FlawTexts, flaw_edits};
pub use format::Format;
pub(crate) use format::{AnsweredCall, HistoryShape};
pub use item_chain::{CHAIN_BYTES, ChainItem, ContinuedBody, ItemChain, UnjoinedItems, remove_previous_id};
pub use names::UnknownWire;
pub use nested_requests::NestedRequest;
pub use refusal::{
    Demand, ErrorMeaning, FoundRefusal, Learning, MASKED_BYTES_MAX, MendKind, MendReach, MendVariable,
    REFUSAL_BYTES_MAX, Refusal, RefusalKind, RefusalRow, RefusalTable, RefusalTexts, RowFault, RowMend, RowTexts,
    RowTrial, TextTrial, TokenCounts, TrialOutcome, names_history,
};
pub(crate) use signatures::{
    cannot_be_anthropics, remove_gemini_signature, thinking_signature, thinking_text, verifies_signatures,
};
pub use thinking_switch::is_thinking_off;
pub use unreadable::Unreadable;

use self::json::Json;
use crate::{
    conversation::{Conversation, rules::PairingRules},
    splice::Span,
};

/// The way in which one kind of provider reads a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The format's author: api.anthropic.com, api.openai.com.
    #[default]
    Standard,
    /// Amazon Bedrock with Anthropic bodies: consecutive messages of one role are not combined.
    Bedrock,
    /// DeepSeek: results must match calls exactly, no messages are combined, and ids carry state.
    DeepSeek,
    /// Mistral: ids of nine letters or digits, and no user text directly after a tool message.
    Mistral,
    /// xAI: a tool message without an id answers by position.
    Xai,
    /// MiniMax: with Anthropic bodies a message with results contains nothing else, and in chat arguments are parsed.
    MiniMax,
    /// Any other server that speaks the format: ids are left as they are.
    Compatible,
}

/// A format as one kind of provider reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// The format.
    pub format: Format,
    /// The provider's reading of it.
    pub dialect: Dialect,
}

impl Wire {
    /// Anthropic Messages as Anthropic reads it.
    pub const ANTHROPIC: Self = Self::new(Format::Anthropic, Dialect::Standard);
    /// Chat Completions as OpenAI reads it.
    pub const OPENAI_CHAT: Self = Self::new(Format::OpenAiChat, Dialect::Standard);
    /// Responses as OpenAI reads it.
    pub const OPENAI_RESPONSES: Self = Self::new(Format::OpenAiResponses, Dialect::Standard);
    /// generateContent as Google reads it.
    pub const GEMINI: Self = Self::new(Format::Gemini, Dialect::Standard);

    const fn new(format: Format, dialect: Dialect) -> Self {
        Self { format, dialect }
    }

    /// The names that `--wire` takes, with their wires.
    pub const NAMES: &'static [(&'static str, Self)] = names::NAMES;

    /// Shorter spellings of [`Wire::NAMES`]; each may also be written with `_` for `-`.
    pub const ALIASES: &'static [(&'static str, &'static str)] = names::ALIASES;

    /// Reads a body into a conversation of spans.
    ///
    /// Values that are skipped are not validated. Callers that edit the body use [`json::validate`] first.
    pub fn read(self, body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
        let read = match self.format.history() {
            HistoryShape::Messages => anthropic::read_body(body),
            HistoryShape::Chat => openai_chat::read_body(body),
            HistoryShape::Items => openai_responses::read_body(body, self.dialect),
            HistoryShape::Contents => gemini::read_body(body),
        };
        // The walk cannot tell a wrong shape from broken JSON; only a failed read pays for the full parse.
        read.or_else(|unreadable| json::validate(body).and(Err(unreadable)))
    }

    /// Returns the pairing rules of the format in this dialect.
    pub const fn pairing_rules(self) -> PairingRules {
        match self.format {
            Format::Anthropic => anthropic::pairing_rules(self.dialect),
            Format::OpenAiChat => openai_chat::pairing_rules(self.dialect),
            Format::OpenAiResponses => openai_responses::pairing_rules(self.dialect),
            Format::Gemini => gemini::pairing_rules(),
        }
    }

    /// Returns posted JSON content in the shape that the result of the call at `call` takes.
    ///
    /// `error` is the text of a failed result whose content is empty or blank.
    pub(crate) fn fit_content(self, json: Json<'_>, call: Span, content: &str, failed: bool, error: &str) -> String {
        match self.format {
            Format::Anthropic => anthropic::content::fit_content(json, call, content, failed, error),
            Format::OpenAiChat => openai_chat::content::fit_content(self.dialect, content),
            Format::OpenAiResponses => openai_responses::content::fit_content(json, call, content),
            Format::Gemini => gemini::content::fit_content(content),
        }
    }
}
