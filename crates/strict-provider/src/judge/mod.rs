//! A judge of tool-call histories: would this provider accept the body, and if not, in which words does it refuse?
//!
//! Written from the providers' documents and published error texts alone. Never looks at how repair works.

mod anthropic;
mod chat;
mod contents;
mod gemini;
mod history;
mod responses;
mod texts;

use serde_json::Value;

use crate::{Dialect, Format};

pub use texts::{Kind, Texts, blocks, lost, texts};

/// A provider's 400.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// The provider's own words.
    pub message: String,
    /// The ids that the words name, in order.
    pub ids: Vec<String>,
}

/// Accepted, or the refusal.
pub type Verdict = Result<(), Refusal>;

/// Anthropic Messages as Anthropic reads it: consecutive messages of one role are one turn.
pub fn anthropic(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::STANDARD)
}

/// Anthropic bodies on Bedrock: every message is a turn of its own.
pub fn bedrock_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::BEDROCK)
}

/// DeepSeek's Messages endpoint: no combining, no text behind a call in its message, any id.
pub fn deepseek_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::DEEPSEEK)
}

/// MiniMax's Messages endpoint: nothing beside the results of a message, any id.
pub fn minimax_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::MINIMAX)
}

/// Another server that speaks Messages: Anthropic's rules without its id pattern.
pub fn compatible_messages(body: &Value) -> Verdict {
    anthropic::judge(body, &anthropic::Rules::COMPATIBLE)
}

/// Chat Completions as OpenAI reads it.
pub fn openai_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::STANDARD)
}

/// Chat Completions as DeepSeek reads it.
pub fn deepseek_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::DEEPSEEK)
}

/// Chat Completions as Mistral reads it: roles by a table, counts, ids of nine letters and digits.
pub fn mistral_chat(body: &Value) -> Verdict {
    chat::mistral(body)
}

/// Chat Completions as xAI reads it: a tool message without an id answers by position; only users have names.
pub fn xai(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::XAI)
}

/// Another server that speaks Chat Completions: OpenAI's rules without its limit on ids.
pub fn compatible_chat(body: &Value) -> Verdict {
    chat::judge(body, &chat::Rules::COMPATIBLE)
}

/// Responses as `OpenAI` reads it: an output for every call, by id, over the whole input.
pub fn openai_responses(body: &Value) -> Verdict {
    responses::judge(body)
}

/// Responses as DeepSeek reads it: outputs before the next item that is no call.
pub fn deepseek_responses(body: &Value) -> Verdict {
    responses::deepseek(body)
}

/// Another server that speaks Responses: `OpenAI`'s rules without its limit on ids.
pub fn compatible_responses(body: &Value) -> Verdict {
    responses::compatible(body)
}

/// Gemini; signatures are wanted where the body names a model that gives them.
pub fn gemini(body: &Value) -> Verdict {
    gemini::judge(body, gemini::Signatures::ByModel)
}

/// Gemini, for a model that signs its calls, whatever the body names.
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

/// A refusal that names `ids`.
fn refuse<T: Into<String>>(message: String, ids: impl IntoIterator<Item = T>) -> Verdict {
    Err(Refusal {
        status: 400,
        message,
        ids: ids.into_iter().map(Into::into).collect(),
    })
}

/// A refusal that names no id.
fn refuse_plainly(message: impl Into<String>) -> Verdict {
    refuse(message.into(), std::iter::empty::<String>())
}

/// The history, or the refusal of a body without one.
fn messages(body: &Value) -> Result<&[Value], Refusal> {
    match body.get("messages") {
        Some(Value::Array(messages)) if !messages.is_empty() => Ok(messages),
        Some(Value::Array(_)) => Err(Refusal {
            status: 400,
            message: "messages: at least one message is required".into(),
            ids: Vec::new(),
        }),
        _ => Err(Refusal {
            status: 400,
            message: "messages: Field required".into(),
            ids: Vec::new(),
        }),
    }
}
