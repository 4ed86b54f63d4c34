//! OpenAI Responses: `input[]` of items; calls and results are items of their own, paired by `call_id`.

pub(crate) mod content;
mod items;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use read::read;

use crate::{
    conversation::rules::{IdRule, IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace},
    wire::Dialect,
};

/// What the format wants, in each provider's reading.
///
/// Place: `OpenAI` takes outputs anywhere (codex matches ids as sets over the whole input); `DeepSeek`'s own converter
/// (deepseek-recipe 0.2.0) wants them before the next item that is neither call nor output, and each id once in the
/// whole input.
pub(crate) const fn rules(dialect: Dialect) -> PairingRules {
    let deepseek = matches!(dialect, Dialect::DeepSeek);
    PairingRules {
        place: if deepseek {
            ResultPlace::ItemRun
        } else {
            ResultPlace::Anywhere
        },
        merged_roles: MergedRoles::All,
        user_first: false,
        ids: match dialect {
            Dialect::Standard => IdRule::Within(64),
            _ => IdRule::NotEmpty,
        },
        id_scope: if deepseek { IdScope::Body } else { IdScope::Turn },
        open_end: false,
        words: WordsPlace::Anywhere,
    }
}
