//! The names of wires, as `--wire` takes them and as logs print them.

use std::{fmt, str::FromStr};

use crate::wire::{Dialect, Format, Wire};

/// Values of [`Wire::ALIASES`].
pub(super) const ALIASES: &[(&str, &str)] = &[
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

/// Values of [`Wire::NAMES`].
pub(super) const NAMES: &[(&str, Wire)] = &[
    ("anthropic", Wire::ANTHROPIC),
    ("anthropic-bedrock", Wire::new(Format::Anthropic, Dialect::Bedrock)),
    ("anthropic-deepseek", Wire::new(Format::Anthropic, Dialect::DeepSeek)),
    ("anthropic-minimax", Wire::new(Format::Anthropic, Dialect::MiniMax)),
    (
        "anthropic-compatible",
        Wire::new(Format::Anthropic, Dialect::Compatible),
    ),
    ("openai-chat", Wire::OPENAI_CHAT),
    ("openai-chat-deepseek", Wire::new(Format::OpenAiChat, Dialect::DeepSeek)),
    ("openai-chat-mistral", Wire::new(Format::OpenAiChat, Dialect::Mistral)),
    ("openai-chat-xai", Wire::new(Format::OpenAiChat, Dialect::Xai)),
    ("openai-chat-minimax", Wire::new(Format::OpenAiChat, Dialect::MiniMax)),
    (
        "openai-chat-compatible",
        Wire::new(Format::OpenAiChat, Dialect::Compatible),
    ),
    ("openai-responses", Wire::OPENAI_RESPONSES),
    (
        "openai-responses-deepseek",
        Wire::new(Format::OpenAiResponses, Dialect::DeepSeek),
    ),
    (
        "openai-responses-compatible",
        Wire::new(Format::OpenAiResponses, Dialect::Compatible),
    ),
    ("gemini", Wire::GEMINI),
];

impl fmt::Display for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = NAMES.iter().find(|(_, wire)| wire == self).map(|(name, _)| *name);
        // Not every combination has a name: code may build any of them.
        f.write_str(name.unwrap_or_else(|| self.format.label()))
    }
}

/// The error for a name that is not in [`Wire::NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected one of {names}", names = joined_names())]
pub struct UnknownWire;

fn joined_names() -> String {
    NAMES.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}

impl FromStr for Wire {
    type Err = UnknownWire;

    fn from_str(name: &str) -> Result<Self, UnknownWire> {
        // Labels of formats have underscores, and are accepted too.
        let name = name.to_ascii_lowercase().replace('_', "-");
        let alias = ALIASES.iter().find(|(alias, _)| *alias == name);
        let name = alias.map_or(name.as_str(), |(_, name)| name);
        let found = NAMES.iter().find(|(known, _)| *known == name);
        found.map(|(_, wire)| *wire).ok_or(UnknownWire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_has_the_name_of_its_author() {
        for format in Format::ALL {
            assert_eq!(format.label().parse(), Ok(Wire::new(format, Dialect::Standard)));
        }
    }
}
