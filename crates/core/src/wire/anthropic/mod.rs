//! Anthropic Messages: `messages[]` of `{role, content: string | block[]}`, results as blocks of the next user turn.

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
///
/// Merging: Messages API reference, "consecutive user or assistant turns are combined". Bedrock and DeepSeek do not.
/// Ids: `tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'`. DeepSeek takes any.
pub(crate) const fn pairing_rules(dialect: Dialect) -> PairingRules {
    PairingRules {
        place: ResultPlace::UserTurn,
        merged_roles: match dialect {
            Dialect::Bedrock | Dialect::DeepSeek => MergedRoles::None,
            _ => MergedRoles::All,
        },
        // DeepSeek's own converter (deepseek-recipe 0.2.0) takes a history that begins with the assistant.
        user_first: !matches!(dialect, Dialect::DeepSeek),
        ids: match dialect {
            Dialect::DeepSeek | Dialect::MiniMax | Dialect::Compatible => IdRule::NotEmpty,
            _ => IdRule::Word,
        },
        // `tool_use` ids must be unique: proven within one message, not across turns (BerriAI/litellm#23510).
        id_scope: IdScope::Turn,
        one_result: true,
        named_results: true,
        open_end: false,
        words: match dialect {
            // `tool_use` ids were found without `tool_result` blocks immediately after (deepseek-recipe 0.2.0).
            Dialect::DeepSeek => WordsPlace::BeforeCalls,
            // `tool call result does not follow tool call (2013)`, measured in anomalyco/opencode#32609 (2026-06).
            Dialect::MiniMax => WordsPlace::ApartFromResults,
            _ => WordsPlace::Anywhere,
        },
        // `tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{1,128}$'`; Bedrock: anomalyco/opencode#28989 (2026-05).
        calls: match dialect {
            Dialect::Standard | Dialect::Bedrock => CallRule::InputTypeAndName,
            _ => CallRule::InputType,
        },
    }
}
