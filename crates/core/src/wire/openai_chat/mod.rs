//! OpenAI Chat Completions: `messages[]` with `tool_calls`; results are messages of role `tool` in an unbroken run.

pub(crate) mod content;
pub(crate) mod read;
pub(crate) mod watch;
pub(crate) mod write;

pub(crate) use read::read_body;

use crate::{
    conversation::rules::{CallRule, IdRule, IdScope, MergedRoles, PairingRules, ResultPlace, WordsPlace},
    wire::Dialect,
};

/// Returns the pairing rules of the format in a dialect.
pub(crate) const fn pairing_rules(dialect: Dialect) -> PairingRules {
    PairingRules {
        place: ResultPlace::ToolRun,
        merged_roles: MergedRoles::None,
        user_first: false,
        ids: match dialect {
            Dialect::Standard => IdRule::Within(40),
            Dialect::Mistral => IdRule::Nine,
            Dialect::Bedrock | Dialect::DeepSeek => IdRule::NotEmpty,
            Dialect::Xai => IdRule::Position,
            Dialect::MiniMax | Dialect::Compatible => IdRule::Any,
        },
        id_scope: IdScope::Turn,
        one_result: true,
        named_results: true,
        open_end: false,
        // `Unexpected role 'user' after role 'tool'`, Mistral error 3230 (onyx-dot-app/onyx#6458, 2025-11).
        words: match dialect {
            Dialect::Mistral => WordsPlace::NotAfterResults,
            _ => WordsPlace::Anywhere,
        },
        calls: match dialect {
            // `invalid function arguments json string, tool_call_id: … (2013)` (earendil-works/pi#5468, 2026-06).
            Dialect::MiniMax => CallRule::Strict,
            // `Invalid 'messages[2].tool_calls[0].function.name': empty string.` (continuedev/continue#9784, 2026-01),
            // and mistral-common 1.13.1. DeepSeek's own converter (deepseek-recipe 0.2.0) takes an empty name.
            Dialect::Standard | Dialect::Mistral => CallRule::InputTypeAndSomeName,
            // OpenAI documents arguments as an opaque string, and most other servers accept any.
            _ => CallRule::InputType,
        },
    }
}
