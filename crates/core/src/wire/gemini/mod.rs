//! Gemini: `contents[]` of `{role, parts[]}`; as many `functionResponse` parts in the next content as there are calls.

pub(crate) mod content;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use read::read_body;

use crate::conversation::rules::{CallRule, IdRule, IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace};

/// Returns the pairing rules of the format. The developer API and Vertex share rules and error texts.
///
/// Place and number: `Please ensure that the number of function response parts is equal to the number of function call
/// parts of the function call turn.` (google-gemini/gemini-cli#17208). First turn: `Please ensure that function call
/// turn comes immediately after a user turn or after a function response turn.` (google-gemini/gemini-cli#11814).
pub(crate) const fn pairing_rules() -> PairingRules {
    PairingRules {
        place: ResultPlace::NextContent,
        merged_roles: MergedRoles::Assistant,
        user_first: true,
        ids: IdRule::Any,
        id_scope: IdScope::Nowhere,
        one_result: true,
        named_results: true,
        open_end: true,
        words: WordsPlace::Anywhere,
        calls: CallRule::InputType,
    }
}
