//! The judge of `strict-provider`, by the wires of the engine.

use antiphon_core::wire::{Dialect, Format, Wire};
use serde_json::Value;

pub use strict_provider::judge::*;

/// Returns the judge of a wire.
pub fn of(wire: Wire) -> fn(&Value) -> Verdict {
    let (format, dialect) = reading(wire);
    judge_of(format, dialect)
}

/// Translates a wire into the types of `strict_provider`.
pub fn reading(wire: Wire) -> (strict_provider::Format, strict_provider::Dialect) {
    use strict_provider::{Dialect as D, Format as F};
    let format = match wire.format {
        Format::Anthropic => F::Messages,
        Format::OpenAiChat => F::Chat,
        Format::OpenAiResponses => F::Responses,
        Format::Gemini => F::Gemini,
    };
    let dialect = match wire.dialect {
        Dialect::Standard => D::Author,
        Dialect::Bedrock => D::Bedrock,
        Dialect::DeepSeek => D::DeepSeek,
        Dialect::MiniMax => D::MiniMax,
        Dialect::Mistral => D::Mistral,
        Dialect::Xai => D::Xai,
        Dialect::Compatible => D::Compatible,
    };
    (format, dialect)
}
