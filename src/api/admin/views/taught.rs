//! Rules that servers have taught, for the admin API: the mend in words, where it is made, and how often it was used.

use serde::Serialize;
use utoipa::ToSchema;

use super::DateConverter;
use crate::{
    printable::printable_word,
    telemetry::{Telemetry, dashboard::TaughtRule},
    wire::MendKind,
};

/// Rules that servers have taught this process, the last used first: 128 at most, and none after a restart until it is used.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct TaughtPage {
    rules: Vec<TaughtRuleView>,
}

/// A rule that a server has taught by a refusal: a mend of later bodies.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = TaughtRule)]
struct TaughtRuleView {
    /// The upstream.
    upstream: String,
    /// The model; null if the requests named none.
    model: Option<String>,
    /// The mend, such as `drop_member`.
    mend: &'static str,
    /// The mend in words.
    explanation: &'static str,
    /// The argument of the mend, such as the name of a member; null if it has none.
    argument: Option<String>,
    /// The type or role of the objects that it changes; null for all.
    of: Option<String>,
    /// True if it changes only blocks that the server has refused.
    only_refused: bool,
    /// The row whose refusal has demanded it last; null if that was before the start, or at another replica.
    row: Option<String>,
    /// The time when it was last taught, RFC 3339; null as above.
    taught_at: Option<String>,
    /// The last accepted request that it has changed, RFC 3339.
    used_at: String,
    /// The number of accepted requests that it has changed.
    uses: u64,
    /// The number of callers of these requests, 64 at most.
    callers: usize,
}

/// The facts that were forgotten.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct ForgottenRules {
    /// The number of facts: of each caller, upstream and model one, and one for each refused block.
    pub(in crate::api::admin) removed: usize,
}

/// Returns the page of all rules.
pub(in crate::api::admin) fn taught_page(telemetry: &Telemetry, dates: DateConverter) -> TaughtPage {
    let rules = telemetry.dashboard_feed().taught_rules().into_iter();
    TaughtPage {
        rules: rules.map(|rule| rule_view(rule, dates)).collect(),
    }
}

fn rule_view(rule: TaughtRule, dates: DateConverter) -> TaughtRuleView {
    // They come from a provider's text.
    let word = |word: &str| (!word.is_empty()).then(|| printable_word(word.as_bytes()));
    TaughtRuleView {
        callers: rule.callers(),
        mend: rule.mend.kind.name(),
        explanation: explanation(rule.mend.kind),
        argument: word(&rule.mend.word),
        of: word(&rule.mend.class),
        only_refused: rule.mend.only_refused,
        upstream: rule.upstream,
        model: rule.model,
        row: rule.row.map(Into::into),
        taught_at: rule.taught_at.map(|at| dates.to_date(at.into_std())),
        used_at: dates.to_date(rule.used_at.into_std()),
        uses: rule.uses,
    }
}

/// Returns what a mend does, in words.
const fn explanation(kind: MendKind) -> &'static str {
    match kind {
        MendKind::RenameRole => "messages of this role become system messages",
        MendKind::SystemFirst => "system messages stand at the beginning alone",
        MendKind::DropMember => "this member is left out",
        MendKind::DropReasoning => "reasoning of this kind is left out",
        MendKind::DropItemId => "the item's id is left out",
        MendKind::MediaType => "the media type of an image becomes that of its bytes",
        MendKind::QuoteBlock => "blocks of this type become marked text",
        MendKind::LegalNames => "names of messages get _ for each forbidden character",
        MendKind::TextContent => "a list of texts becomes one text",
        MendKind::FillContent => "empty content gets a text",
        MendKind::MergeNeighbours => "neighbours of one role become one message",
        MendKind::NameResults => "tool messages get the name of their call",
        MendKind::EndWithUser => "a message of the user follows the last one of the assistant",
        MendKind::TrimEnd => "blanks at the end of the last message are left out",
        MendKind::LimitMarkers => "only this number of cache markers stays",
        MendKind::LoneSurrogates => "halves of characters become the replacement character",
        MendKind::ThinkingOff => "thinking is off while a tool loop is open",
        MendKind::LowerMaxTokens => "max_tokens becomes what the prompt leaves",
        MendKind::DropBeta => "this beta leaves the header anthropic-beta",
        MendKind::DropParameter => "this parameter is left out",
    }
}
