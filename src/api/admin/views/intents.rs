//! Intents one by one, for the admin API: which effects run, have happened, or may have happened.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{caller_names::CallerNames, late_results::format_cursor, rfc3339_date};
use crate::{
    late::{IntentState, LateStore, ListedIntent, Page, Resolution},
    ledger::HashPrefix,
    printable::printable_name,
};

/// The state of an intent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = IntentState)]
#[serde(rename_all = "snake_case")]
pub(in crate::api::admin) enum IntentStateView {
    /// A holder runs the tool.
    Claimed,
    /// The tool ran, and its result is stored.
    Settled,
    /// The tool reported an error.
    Failed,
    /// Its conversation was left, and the holder was asked to undo the effect.
    CancelRequested,
    /// The tool did not run, or its effect was undone.
    Cancelled,
    /// The holder refused to undo the effect.
    CancelRefused,
    /// The holder has disappeared, and the effect may have happened.
    Unknown,
    /// The holder has disappeared. Another one may run the tool again.
    Expired,
}

impl IntentStateView {
    /// Returns the state of the ledger.
    pub(in crate::api::admin) const fn to_state(self) -> IntentState {
        match self {
            Self::Claimed => IntentState::Claimed,
            Self::Settled => IntentState::Settled,
            Self::Failed => IntentState::Failed,
            Self::CancelRequested => IntentState::CancelRequested,
            Self::Cancelled => IntentState::Cancelled,
            Self::CancelRefused => IntentState::CancelRefused,
            Self::Unknown => IntentState::Unknown,
            Self::Expired => IntentState::Expired,
        }
    }

    /// Returns the view of a state.
    pub(in crate::api::admin) const fn of_state(state: IntentState) -> Self {
        match state {
            IntentState::Claimed => Self::Claimed,
            IntentState::Settled => Self::Settled,
            IntentState::Failed => Self::Failed,
            IntentState::CancelRequested => Self::CancelRequested,
            IntentState::Cancelled => Self::Cancelled,
            IntentState::CancelRefused => Self::CancelRefused,
            IntentState::Unknown => Self::Unknown,
            IntentState::Expired => Self::Expired,
        }
    }
}

/// The end of an unknown outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = Resolution)]
#[serde(rename_all = "kebab-case")]
pub(in crate::api::admin) enum ResolutionView {
    /// The tool ran: the effect has happened.
    Done,
    /// The tool did not run: the intent may be claimed again.
    NotRun,
}

impl ResolutionView {
    /// Returns the resolution.
    pub(in crate::api::admin) const fn to_resolution(self) -> Resolution {
        match self {
            Self::Done => Resolution::Done,
            Self::NotRun => Resolution::NotRun,
        }
    }
}

/// A page of intents, by caller and then the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct IntentsPage {
    intents: Vec<ListedIntentView>,
    /// The value of `after` for the next page; null on the last page. A page may have few rows, or none, although there
    /// is a next one.
    next: Option<String>,
}

/// An intent, without its input and its result.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedIntent)]
struct ListedIntentView {
    /// The id.
    intent: String,
    state: IntentStateView,
    /// The tool.
    tool: String,
    /// The tier of the tool.
    tier: &'static str,
    /// The conversations that share the intent: `session` or `user`.
    scope: &'static str,
    /// The short id of the caller.
    caller: String,
    /// The name of the caller's client token; null without one.
    caller_name: Option<String>,
    /// The service that holds or has settled it; null if there is none.
    service: Option<String>,
    /// The time of the latest claim, or of the settle if there was none, RFC 3339.
    since: String,
}

/// Returns a page of intents. `clients` are the names of the client tokens.
pub(in crate::api::admin) fn intents_page(
    late: &LateStore,
    page: Page<ListedIntent>,
    clients: &[String],
) -> IntentsPage {
    let names = CallerNames::new(late, clients);
    IntentsPage {
        intents: page.rows.into_iter().map(|row| intent_view(&names, row)).collect(),
        next: page.next.map(format_cursor),
    }
}

fn intent_view(names: &CallerNames<'_>, row: ListedIntent) -> ListedIntentView {
    ListedIntentView {
        intent: row.id.to_string(),
        state: IntentStateView::of_state(row.state),
        tool: printable_name(&row.tool),
        tier: row.tier.label(),
        scope: row.scope.label(),
        caller: HashPrefix::from_bytes(row.principal.as_bytes()).to_string(),
        caller_name: names.find_name(Some(row.account), None).map(str::to_owned),
        service: Some(row.service).filter(|service| !service.is_empty()),
        since: rfc3339_date(row.since),
    }
}
