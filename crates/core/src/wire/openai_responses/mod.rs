//! OpenAI Responses: `input[]` of items. Calls and results are items of their own, paired by `call_id`.

pub(crate) mod content;
mod items;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

pub(in crate::wire) use items::is_item_type;
pub(crate) use read::read_body;

use crate::{
    conversation::rules::{CallRule, IdRule, IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace},
    wire::Dialect,
};

/// Returns the pairing rules of the format in a dialect.
///
/// Place: `OpenAI` takes outputs anywhere (codex matches ids as sets over the whole input). `DeepSeek`'s own converter
/// (deepseek-recipe 0.2.0) requires them before the next item that is neither call nor output. It requires each id once
/// in the whole input.
pub(crate) const fn pairing_rules(dialect: Dialect) -> PairingRules {
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
        one_result: true,
        named_results: true,
        open_end: false,
        words: WordsPlace::Anywhere,
        // OpenAI documents arguments as an opaque string.
        calls: match dialect {
            // `Invalid 'input[1].name': empty string.` (farion1231/cc-switch#4578, 2026-06). DeepSeek's own converter takes
            // an empty name.
            Dialect::Standard => CallRule::InputTypeAndSomeName,
            _ => CallRule::InputType,
        },
    }
}
