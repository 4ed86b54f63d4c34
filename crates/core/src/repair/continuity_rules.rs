//! The values that providers want back, and which of their rules are documented.

use super::{
    ContinuityKind, RepairPolicy,
    continuity::{continuity_gaps, shows_reasoning},
    parsed::{PairingContext, parse},
};
use crate::{
    conversation::{BodyField, Finding},
    wire::{Dialect, Format, Unreadable, Wire, is_thinking_off, json::Json},
};

/// The part of a wire on which continuity depends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContinuityRules {
    /// Format and dialect of the body.
    pub wire: Wire,
    /// `true` if the server is Google's, whatever the format.
    pub is_google: bool,
}

impl ContinuityRules {
    /// Returns the values that the provider may want back.
    pub const fn kinds(self) -> &'static [ContinuityKind] {
        use ContinuityKind::{Container, Reasoning, Signature};
        match (self.wire.format, self.wire.dialect) {
            (Format::OpenAiChat | Format::Anthropic, Dialect::DeepSeek) => &[Reasoning],
            (Format::OpenAiChat, Dialect::Compatible) if self.is_google => &[Signature],
            // Kimi, and gateways to any provider.
            (Format::OpenAiChat, Dialect::Compatible) => &[Reasoning, Signature],
            (Format::Gemini, _) => &[Signature],
            (Format::Anthropic, Dialect::Standard) => &[Container],
            // Gateways to any provider.
            (Format::Anthropic, Dialect::Compatible) => &[Reasoning, Container],
            (Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses, _) => &[],
        }
    }

    /// Returns `true` if the provider documents that it wants the value back, so that no refusal needs to teach it.
    pub fn is_documented(self, model: &str, kind: ContinuityKind) -> bool {
        match kind {
            // DeepSeek, "Thinking mode", 2026-11; deepseek-recipe 0.2.0, for Messages too.
            ContinuityKind::Reasoning => matches!(self.wire.dialect, Dialect::DeepSeek),
            // Google, "Thought signatures", 2026-11: required from Gemini 3 on.
            ContinuityKind::Signature => (self.wire.format.is_gemini_only() || self.is_google) && is_gemini_3(model),
            // Anthropic, "Programmatic tool calling", 2026-11.
            ContinuityKind::Container => matches!(self.wire.dialect, Dialect::Standard),
        }
    }
}

/// Values that a body lacks although its provider, or some server of its format, wants them back.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LostValues {
    /// Values that the provider of the dialect is documented to want.
    pub documented: Vec<Finding>,
    /// Values that only some servers of the format want.
    pub possible: Vec<Finding>,
}

/// Finds the values that a client has dropped from `body`. A file alone cannot tell what they were.
///
/// Empty for a batch, and where the body turns thinking off.
pub fn lost_values(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Result<LostValues, Unreadable> {
    let mut lost = LostValues::default();
    let rules = ContinuityRules { wire, is_google: false };
    if !policy.continuity || rules.kinds().is_empty() {
        return Ok(lost);
    }
    let parsed = parse(body, wire)?;
    let json = Json::new(body);
    let model = parsed
        .outline()
        .fields
        .get(BodyField::Model)
        .map(|model| json.decode_string(model));
    let model = String::from_utf8_lossy(model.as_deref().unwrap_or_default()).into_owned();
    let paired = parsed.pair(PairingContext::new(policy));
    let is_off = is_thinking_off(wire.format, body);
    // Whether the body shows that its provider uses a kind of value: most servers of a format know none. Searched once,
    // since the search passes over the whole history.
    let mut has_reasoning = None;
    let mut shows_use = |kind: ContinuityKind| match kind {
        ContinuityKind::Reasoning => *has_reasoning.get_or_insert_with(|| shows_reasoning(&paired)),
        // Bodies of the Gemini API name no model.
        ContinuityKind::Signature => is_gemini_3(&model) || (model.is_empty() && wire.format.is_gemini_only()),
        ContinuityKind::Container => true,
    };
    for gap in continuity_gaps(&paired, rules.kinds(), None) {
        // Only the current turn is validated for signatures.
        let is_due = match gap.kind {
            ContinuityKind::Container | ContinuityKind::Reasoning => true,
            ContinuityKind::Signature => gap.is_current,
        } && !(is_off && gap.kind.is_thinking());
        if is_due && rules.is_documented(&model, gap.kind) {
            lost.documented.push(gap.finding);
        } else if is_due && shows_use(gap.kind) {
            lost.possible.push(gap.finding);
        }
    }
    Ok(lost)
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
