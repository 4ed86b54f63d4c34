//! Judges of tool-call histories: would this provider accept the body, and with which words would it refuse?
//!
//! They are based only on the providers' documents and published error texts, never on the repair code.

mod anthropic;
mod chat;
mod contents;
mod gemini;
mod history;
mod responses;
mod rules;
mod texts;

use serde_json::Value;

use crate::{Dialect, Format};

pub use rules::{
    ArgumentReader, BridgeWords, NameReader, NoUserWords, ReasoningRule, ServerMemory, ServerRules, judge_with,
};
pub use texts::{Kind, Texts, blocks, lost, texts};

/// A provider's 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The provider's own words.
    pub message: String,
    /// The ids in the words, in order.
    pub ids: Vec<String>,
    /// The provider's code. `None` if it gives none.
    pub code: Option<&'static str>,
    /// The provider's type of the error. `None` for the format's usual one.
    pub kind: Option<&'static str>,
}

impl Refusal {
    /// Returns a 400 that names `ids`.
    pub(crate) fn new<T: Into<String>>(message: String, ids: impl IntoIterator<Item = T>) -> Self {
        Self {
            status: 400,
            message,
            ids: ids.into_iter().map(Into::into).collect(),
            code: None,
            kind: None,
        }
    }

    /// Returns a 400 without ids.
    pub(crate) fn plain(message: impl Into<String>) -> Self {
        Self::new(message.into(), std::iter::empty::<String>())
    }
}

/// `Ok` if the body is accepted.
pub type Verdict = Result<(), Refusal>;

/// Judges Messages as Anthropic does: consecutive messages of one role are one turn.
pub fn anthropic(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::STANDARD)
}

/// Judges Anthropic bodies as Bedrock does: every message is its own turn.
pub fn bedrock_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::BEDROCK)
}

/// Judges Messages as DeepSeek does: no combining, no text after a call in its message, any id.
pub fn deepseek_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::DEEPSEEK)
}

/// Judges Messages as MiniMax does: nothing beside the results of a message, any id.
pub fn minimax_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::MINIMAX)
}

/// Judges Messages as other servers do: Anthropic's rules without its id pattern.
pub fn compatible_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::COMPATIBLE)
}

/// Judges Chat Completions as OpenAI does.
pub fn openai_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::STANDARD)
}

/// Judges Chat Completions as DeepSeek does.
pub fn deepseek_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::DEEPSEEK)
}

/// Judges Chat Completions as Mistral does: a table of roles, counts, ids of nine letters and digits.
pub fn mistral_chat(body: &Value) -> Verdict {
    chat::mistral(body)
}

/// Judges Chat Completions as xAI does: a tool message without an id answers by position, and only user messages have
/// names.
pub fn xai(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::XAI)
}

/// Judges Chat Completions as other servers do: OpenAI's rules without its limit on ids.
pub fn compatible_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::COMPATIBLE)
}

/// Judges Responses as `OpenAI` does: an output for every call, by id, over the whole input.
pub fn openai_responses(body: &Value) -> Verdict {
    responses::judge(body)
}

/// Judges Responses as DeepSeek does: all outputs before the next item that is not a call.
pub fn deepseek_responses(body: &Value) -> Verdict {
    responses::deepseek(body)
}

/// Judges Responses as other servers do: `OpenAI`'s rules without its limit on ids.
pub fn compatible_responses(body: &Value) -> Verdict {
    responses::compatible(body)
}

/// Judges Gemini bodies. Signatures are required if the body names a model that signs.
pub fn gemini(body: &Value) -> Verdict {
    gemini::judge(body, gemini::Signatures::ByModel)
}

/// Judges Gemini bodies for a model that signs its calls, whatever the body names.
pub fn gemini_signed(body: &Value) -> Verdict {
    gemini::judge(body, gemini::Signatures::Wanted)
}

/// Returns the judge of a format in a provider's dialect.
pub fn judge_of(format: Format, dialect: Dialect) -> fn(&Value) -> Verdict {
    match (format, dialect) {
        (Format::Messages, Dialect::Author) => anthropic,
        (Format::Messages, Dialect::Bedrock) => bedrock_messages,
        (Format::Messages, Dialect::DeepSeek) => deepseek_messages,
        (Format::Messages, Dialect::MiniMax) => minimax_messages,
        (Format::Chat, Dialect::Author) => openai_chat,
        (Format::Chat, Dialect::DeepSeek) => deepseek_chat,
        (Format::Chat, Dialect::Mistral) => mistral_chat,
        (Format::Chat, Dialect::Xai) => xai,
        (Format::Responses, Dialect::Author) => openai_responses,
        (Format::Responses, Dialect::DeepSeek) => deepseek_responses,
        (Format::Messages, _) => compatible_messages,
        (Format::Chat, _) => compatible_chat,
        (Format::Responses, _) => compatible_responses,
        (Format::Gemini, _) => gemini,
    }
}

/// Returns a refusal that names `ids`.
fn refuse<T: Into<String>>(message: String, ids: impl IntoIterator<Item = T>) -> Verdict {
    Err(Refusal::new(message, ids))
}

/// Returns a refusal without ids.
fn refuse_plainly(message: impl Into<String>) -> Verdict {
    Err(Refusal::plain(message))
}

/// Returns the messages, or the refusal of a body without any.
fn messages(body: &Value) -> Result<&[Value], Refusal> {
    match body.get("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => Ok(messages),
        Some(Value::Array(_)) => Err(Refusal::plain("messages: at least one message is required")),
        _ => Err(Refusal::plain("messages: Field required")),
    }
}
