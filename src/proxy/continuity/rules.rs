//! The values that providers want back, and which of their rules are documented.

use crate::{
    provider::ProviderKind,
    repair::ContinuityKind,
    wire::{Dialect, Format, Wire},
};

/// Returns the values that a provider may want back.
pub(super) fn kinds_of(kind: ProviderKind, wire: Wire) -> &'static [ContinuityKind] {
    use ContinuityKind::{Container, Reasoning, Signature};
    match (wire.format, wire.dialect) {
        (Format::OpenAiChat, Dialect::DeepSeek) => &[Reasoning],
        (Format::OpenAiChat, Dialect::Compatible) if is_google(kind) => &[Signature],
        // Kimi, and gateways to any provider.
        (Format::OpenAiChat, Dialect::Compatible) => &[Reasoning, Signature],
        (Format::Gemini, _) => &[Signature],
        (Format::Anthropic, Dialect::Standard | Dialect::Compatible) => &[Container],
        _ => &[],
    }
}

/// Returns `true` if the provider documents that it wants the value back, so that no refusal needs to teach it.
pub(super) fn is_documented(kind: ProviderKind, wire: Wire, model: &str, value: ContinuityKind) -> bool {
    match value {
        // DeepSeek, "Thinking mode", 2026-11; deepseek-recipe 0.2.0.
        ContinuityKind::Reasoning => wire.dialect == Dialect::DeepSeek,
        // Google, "Thought signatures", 2026-11: required from Gemini 3 on.
        ContinuityKind::Signature => (wire.format == Format::Gemini || is_google(kind)) && is_gemini_3(model),
        // Anthropic, "Programmatic tool calling", 2026-11.
        ContinuityKind::Container => wire.dialect == Dialect::Standard,
    }
}

const fn is_google(kind: ProviderKind) -> bool {
    matches!(kind, ProviderKind::Gemini | ProviderKind::Vertex)
}

/// Returns `true` if the name is that of a Gemini model of generation 3 or later.
fn is_gemini_3(model: &str) -> bool {
    let Some((_, version)) = model.rsplit_once("gemini-") else {
        return false;
    };
    let digits = version.split(|letter: char| !letter.is_ascii_digit()).next();
    digits
        .and_then(|digits| digits.parse::<u32>().ok())
        .is_some_and(|generation| generation >= 3)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_are_documented_from_gemini_3_on() {
        for (model, is_new) in [
            ("gemini-3-pro-preview", true),
            ("gemini-3.1-flash", true),
            ("google/gemini-12-pro", true),
            ("gemini-2.5-pro", false),
            ("gemini-flash-latest", false),
            ("gemma-3", false),
            ("", false),
        ] {
            assert_eq!(is_gemini_3(model), is_new, "{model}");
        }
    }
}
