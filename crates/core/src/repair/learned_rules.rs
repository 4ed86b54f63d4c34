//! Rules beyond those of the dialect, learned from a provider's refusals.

use crate::{
    conversation::rules::{CallRule, IdRule, IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace},
    repair::RepairPolicy,
};

/// Rules that one upstream has taught for one caller and model. Each was proven by an accepted resend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[expect(clippy::struct_excessive_bools, reason = "independent demands of a provider")]
pub struct LearnedRules {
    /// `true` if call ids must be unique in the whole body.
    pub unique_ids: bool,
    /// `true` if the input of every call must be a JSON object, its name legal, and its id a string.
    pub strict_calls: bool,
    /// `true` if a history must begin with the user.
    pub user_first: bool,
    /// `true` if a call may have one result only.
    pub one_result: bool,
    /// `true` if each result must name a call.
    pub named_results: bool,
    /// Place of text, where it differs from the dialect's.
    pub words: Option<WordsPlace>,
}

/// The places of text, in the order of their numbers in records. A number is never used for another place.
const WORDS_PLACES: [Option<WordsPlace>; 6] = [
    None,
    Some(WordsPlace::Anywhere),
    Some(WordsPlace::NotAfterResults),
    Some(WordsPlace::Bridged),
    Some(WordsPlace::BeforeCalls),
    Some(WordsPlace::ApartFromResults),
];

/// The shapes of a history that most servers accept, and some refuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisputedShape {
    /// Text beside calls or results.
    TextBesideCalls,
    /// An assistant's message at the beginning.
    AssistantFirst,
}

impl DisputedShape {
    /// Every shape.
    pub const ALL: [Self; 2] = [Self::TextBesideCalls, Self::AssistantFirst];

    /// Returns the name. It is part of keys in ledgers: never change it.
    pub const fn label(self) -> &'static str {
        match self {
            Self::TextBesideCalls => "text_beside_calls",
            Self::AssistantFirst => "assistant_first",
        }
    }
}

impl LearnedRules {
    /// No rules.
    pub const NONE: Self = Self {
        unique_ids: false,
        strict_calls: false,
        user_first: false,
        one_result: false,
        named_results: false,
        words: None,
    };

    /// Returns the bytes by which a record contains the rules: flags, and the number of the place of text.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 2] {
        let flags = [
            self.unique_ids,
            self.strict_calls,
            self.user_first,
            self.one_result,
            self.named_results,
        ];
        let flags = flags.iter().rev().fold(0, |flags, flag| flags << 1 | u8::from(*flag));
        let place = WORDS_PLACES.iter().position(|place| *place == self.words);
        [
            flags,
            place.and_then(|place| u8::try_from(place).ok()).unwrap_or_default(),
        ]
    }

    /// Returns the rules with these bytes. `None` if this version does not know one of them.
    pub fn from_bytes([flags, place]: [u8; 2]) -> Option<Self> {
        Some(Self {
            unique_ids: flags & 1 > 0,
            strict_calls: flags & 2 > 0,
            user_first: flags & 4 > 0,
            one_result: flags & 8 > 0,
            named_results: flags & 16 > 0,
            words: *WORDS_PLACES.get(usize::from(place)).filter(|_| flags < 32)?,
        })
    }

    /// Returns both sets of rules. Of two places of text, that of `other` counts.
    #[must_use]
    pub fn union(self, other: Self) -> Self {
        Self {
            unique_ids: self.unique_ids || other.unique_ids,
            strict_calls: self.strict_calls || other.strict_calls,
            user_first: self.user_first || other.user_first,
            one_result: self.one_result || other.one_result,
            named_results: self.named_results || other.named_results,
            words: other.words.or(self.words),
        }
    }

    /// Returns the rules that the policy permits.
    #[must_use]
    pub fn permitted(self, policy: &RepairPolicy) -> Self {
        Self {
            strict_calls: self.strict_calls && policy.malformed_calls,
            user_first: self.user_first && policy.shapes,
            words: self.words.filter(|_| policy.shapes),
            ..self
        }
    }

    /// Returns `true` if there is a rule against this shape.
    pub const fn forbids(self, shape: DisputedShape) -> bool {
        match shape {
            DisputedShape::TextBesideCalls => self.words.is_some(),
            DisputedShape::AssistantFirst => self.user_first,
        }
    }

    /// Returns the rules without that against `shape`.
    #[must_use]
    pub fn without(self, shape: DisputedShape) -> Self {
        match shape {
            DisputedShape::TextBesideCalls => Self { words: None, ..self },
            DisputedShape::AssistantFirst => Self {
                user_first: false,
                ..self
            },
        }
    }

    /// Returns `rules`, tightened by what was learned.
    pub(super) fn tighten(self, rules: PairingRules) -> PairingRules {
        // Where ids are optional (Gemini), a repeated id is never a fault.
        let needs_unique = self.unique_ids && rules.id_scope != IdScope::Nowhere;
        let words = self.words.filter(|words| fits(*words, rules.place));
        PairingRules {
            // The resend that proved the rule combined no messages, and later requests must begin with its bytes.
            merged_roles: match words {
                Some(WordsPlace::BeforeCalls | WordsPlace::ApartFromResults) => MergedRoles::None,
                _ => rules.merged_roles,
            },
            id_scope: if needs_unique { IdScope::Body } else { rules.id_scope },
            one_result: rules.one_result || self.one_result,
            named_results: rules.named_results || self.named_results,
            calls: if self.strict_calls {
                CallRule::Strict
            } else {
                rules.calls
            },
            ids: match rules.ids {
                // A server that parses calls demands an id, too, unless ids are optional.
                IdRule::Any if self.strict_calls && rules.id_scope != IdScope::Nowhere => IdRule::NotEmpty,
                ids => ids,
            },
            user_first: rules.user_first || self.user_first,
            words: words.unwrap_or(rules.words),
            ..rules
        }
    }
}

/// Returns `true` if the formats with this place of results know this place of text.
const fn fits(words: WordsPlace, place: ResultPlace) -> bool {
    match words {
        WordsPlace::Anywhere => true,
        WordsPlace::BeforeCalls | WordsPlace::ApartFromResults => matches!(place, ResultPlace::UserTurn),
        WordsPlace::NotAfterResults | WordsPlace::Bridged => matches!(place, ResultPlace::ToolRun),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_are_read_as_they_were_written() {
        for flags in 0..32_u8 {
            for (number, words) in (0_u8..).zip(WORDS_PLACES) {
                let rules = LearnedRules {
                    unique_ids: flags & 1 > 0,
                    strict_calls: flags & 2 > 0,
                    user_first: flags & 4 > 0,
                    one_result: flags & 8 > 0,
                    named_results: flags & 16 > 0,
                    words,
                };
                assert_eq!(rules.to_bytes(), [flags, number]);
                assert_eq!(LearnedRules::from_bytes(rules.to_bytes()), Some(rules));
            }
        }
        assert_eq!(LearnedRules::from_bytes([32, 0]), None);
        assert_eq!(LearnedRules::from_bytes([0, 6]), None);
    }
}
