//! The wire formats: read a body, write one block, watch an answer. One format a folder, the same parts in the same order.

use std::{fmt, str::FromStr};

use crate::{
    conversation::{CallDetails, Conversation, Finding, rules::PairingRules},
    splice::Span,
};

pub(crate) mod anthropic;
mod content;
mod detect;
mod entries;
mod fields;
pub mod frames;
pub(crate) mod gemini;
pub mod json;
pub(crate) mod openai_chat;
pub(crate) mod openai_responses;
pub(crate) mod quote;
mod refusal;
mod said;
pub mod watch;
mod write;

pub use content::CONTENT_DEPTH_MAX;
pub use detect::{Undetected, detect};
pub use entries::Entry;
pub use refusal::{REFUSAL_BYTES_MAX, Refusal, RefusalKind, refusal};
pub(crate) use write::mended;

/// A wire format whose history we read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Format {
    /// Anthropic Messages: `messages[]` with content blocks.
    Anthropic,
    /// OpenAI Chat Completions: `messages[]` with `tool_calls` and role `tool`.
    OpenAiChat,
    /// OpenAI Responses: `input[]` of items.
    OpenAiResponses,
    /// Gemini generateContent: `contents[]` with `functionCall` and `functionResponse` parts.
    Gemini,
}

/// How one provider's reading of a format differs from the format's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Dialect {
    /// The format's author: api.anthropic.com, api.openai.com.
    #[default]
    Standard,
    /// Amazon Bedrock with Anthropic bodies: consecutive messages of one role are not combined.
    Bedrock,
    /// DeepSeek: counts exactly, combines nothing, ids carry state.
    DeepSeek,
    /// Mistral: nine letters or digits an id; no user words directly behind a tool message.
    Mistral,
    /// xAI: a tool message without id answers by position.
    Xai,
    /// MiniMax with Anthropic bodies: a message of results holds nothing else.
    MiniMax,
    /// Any other server that speaks the format: ids are left as they are.
    Compatible,
}

/// A format as one kind of provider reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wire {
    /// The format.
    pub format: Format,
    /// Whose reading of it.
    pub dialect: Dialect,
}

impl Format {
    /// Every format, in the order of the documentation.
    pub const ALL: [Self; 4] = [Self::Anthropic, Self::OpenAiChat, Self::OpenAiResponses, Self::Gemini];

    /// The name in metrics, logs and `--wire`: lower case, underscores.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiChat => "openai_chat",
            Self::OpenAiResponses => "openai_responses",
            Self::Gemini => "gemini",
        }
    }

    /// Returns `true` if a refusal may name calls that exist only in provider-side state.
    pub const fn names_remote_calls(self) -> bool {
        matches!(self, Self::Anthropic | Self::OpenAiResponses)
    }

    /// Returns `true` if a request may continue from an earlier response by its id alone.
    pub const fn continues_by_id(self) -> bool {
        matches!(self, Self::OpenAiResponses)
    }

    /// Returns `true` if quotes need a message of their own, because the provider counts the parts beside results.
    pub const fn quotes_apart(self) -> bool {
        matches!(self, Self::Gemini)
    }

    /// Returns the JSON in front of the text of a user's text block, up to the text's opening quote.
    pub const fn text_block_start(self) -> &'static str {
        match self {
            Self::Gemini => r#"{"text":"#,
            Self::OpenAiResponses => r#"{"type":"input_text","text":"#,
            Self::Anthropic | Self::OpenAiChat => r#"{"type":"text","text":"#,
        }
    }

    /// What the call at `call` says.
    pub fn details(self, body: &[u8], call: Span) -> CallDetails {
        let details = match self {
            Self::Anthropic => anthropic::read::details,
            Self::OpenAiChat => openai_chat::read::details,
            Self::OpenAiResponses => openai_responses::read::details,
            Self::Gemini => gemini::read::details,
        };
        details(body, call)
    }

    /// Where a finding stands, as a path into the body: `messages[3].content[1]`.
    pub fn place(self, finding: &Finding) -> String {
        let (history, list) = match self {
            Self::Anthropic => ("messages", "content"),
            Self::OpenAiChat => ("messages", "tool_calls"),
            Self::OpenAiResponses => ("input", "content"),
            Self::Gemini => ("contents", "parts"),
        };
        let within = &finding.within;
        match finding.part {
            Some(part) => format!("{within}{history}[{}].{list}[{part}]", finding.message),
            None => format!("{within}{history}[{}]", finding.message),
        }
    }
}

impl Wire {
    /// Reads a body into a conversation of spans. What is not looked at is not checked either: [`json::validate`] is the
    /// full parse, for those who go on to edit.
    pub fn read(self, body: &[u8]) -> Result<Conversation<'_>, Unreadable> {
        let read = match self.format {
            Format::Anthropic => anthropic::read(body),
            Format::OpenAiChat => openai_chat::read(body),
            Format::OpenAiResponses => openai_responses::read(body, self.dialect),
            Format::Gemini => gemini::read(body),
        };
        // Off the fast path: what the walk stumbled over may be no JSON at all.
        read.or_else(|unreadable| json::validate(body).and(Err(unreadable)))
    }

    /// What the provider wants of a history.
    pub const fn rules(self) -> PairingRules {
        match self.format {
            Format::Anthropic => anthropic::rules(self.dialect),
            Format::OpenAiChat => openai_chat::rules(self.dialect),
            Format::OpenAiResponses => openai_responses::rules(self.dialect),
            Format::Gemini => gemini::rules(),
        }
    }

    /// Anthropic Messages as Anthropic reads it.
    pub const ANTHROPIC: Self = Self {
        format: Format::Anthropic,
        dialect: Dialect::Standard,
    };
    /// Chat Completions as OpenAI reads it.
    pub const OPENAI_CHAT: Self = Self {
        format: Format::OpenAiChat,
        dialect: Dialect::Standard,
    };

    /// Responses as OpenAI reads it.
    pub const OPENAI_RESPONSES: Self = Self {
        format: Format::OpenAiResponses,
        dialect: Dialect::Standard,
    };
    /// generateContent as Google reads it.
    pub const GEMINI: Self = Self {
        format: Format::Gemini,
        dialect: Dialect::Standard,
    };

    /// Shorter spellings of [`Wire::NAMES`]; `_` may stand for `-` in each.
    pub const ALIASES: &'static [(&'static str, &'static str)] = &[
        ("messages", "anthropic"),
        ("chat", "openai-chat"),
        ("openai", "openai-chat"),
        ("responses", "openai-responses"),
        ("generate-content", "gemini"),
        ("bedrock", "anthropic-bedrock"),
        ("deepseek", "openai-chat-deepseek"),
        ("mistral", "openai-chat-mistral"),
        ("xai", "openai-chat-xai"),
        ("minimax", "anthropic-minimax"),
    ];

    /// The names that `--wire` takes, with what they mean.
    pub const NAMES: &'static [(&'static str, Self)] = &[
        ("anthropic", Self::ANTHROPIC),
        (
            "anthropic-bedrock",
            Self {
                format: Format::Anthropic,
                dialect: Dialect::Bedrock,
            },
        ),
        (
            "anthropic-deepseek",
            Self {
                format: Format::Anthropic,
                dialect: Dialect::DeepSeek,
            },
        ),
        (
            "anthropic-minimax",
            Self {
                format: Format::Anthropic,
                dialect: Dialect::MiniMax,
            },
        ),
        (
            "anthropic-compatible",
            Self {
                format: Format::Anthropic,
                dialect: Dialect::Compatible,
            },
        ),
        ("openai-chat", Self::OPENAI_CHAT),
        (
            "openai-chat-deepseek",
            Self {
                format: Format::OpenAiChat,
                dialect: Dialect::DeepSeek,
            },
        ),
        (
            "openai-chat-mistral",
            Self {
                format: Format::OpenAiChat,
                dialect: Dialect::Mistral,
            },
        ),
        (
            "openai-chat-xai",
            Self {
                format: Format::OpenAiChat,
                dialect: Dialect::Xai,
            },
        ),
        (
            "openai-chat-compatible",
            Self {
                format: Format::OpenAiChat,
                dialect: Dialect::Compatible,
            },
        ),
        ("openai-responses", Self::OPENAI_RESPONSES),
        (
            "openai-responses-deepseek",
            Self {
                format: Format::OpenAiResponses,
                dialect: Dialect::DeepSeek,
            },
        ),
        (
            "openai-responses-compatible",
            Self {
                format: Format::OpenAiResponses,
                dialect: Dialect::Compatible,
            },
        ),
        ("gemini", Self::GEMINI),
    ];
}

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.iter().find(|(_, wire)| wire == self).map(|(name, _)| *name);
        f.write_str(name.unwrap_or_else(|| self.format.label()))
    }
}

/// The name is none of [`Wire::NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {names}", names = names())]
pub struct UnknownWire;

fn names() -> String {
    Wire::NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(name: &str) -> Result<Self, UnknownWire> {
        let name = name.to_ascii_lowercase().replace('_', "-");
        let alias = Self::ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name.as_str(), |(_, name)| name);
        let found = Self::NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, wire)| *wire).ok_or(UnknownWire)
    }
}

/// Why a body is forwarded as it came, unread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Unreadable {
    /// Not JSON: what `serde_json` refuses as a raw value.
    #[error("not JSON")]
    NotJson,
    /// The key that holds the history stands twice at the top.
    #[error("the history key stands twice")]
    DuplicateHistory,
    /// JSON, but not of the shape of the format where we walk.
    #[error("not of the format's shape")]
    Shape,
    /// Larger than the inspection limit.
    #[error("larger than the inspection limit")]
    TooLarge,
    /// A content coding that we do not decode, or a coded body that does not decode.
    #[error("unknown or broken content coding")]
    Coding,
    /// Our own edits overlapped: a bug, never the body's fault.
    #[error("edits overlapped")]
    Overlap,
}

impl Unreadable {
    /// Every reason: the values of the metric label.
    pub const ALL: [Self; 6] = [
        Self::NotJson,
        Self::DuplicateHistory,
        Self::Shape,
        Self::TooLarge,
        Self::Coding,
        Self::Overlap,
    ];

    /// The stable name in metrics and logs.
    pub const fn code(self) -> &'static str {
        match self {
            Self::NotJson => "not_json",
            Self::DuplicateHistory => "duplicate_history",
            Self::Shape => "shape",
            Self::TooLarge => "too_large",
            Self::Coding => "coding",
            Self::Overlap => "overlap",
        }
    }
}
