//! Calls and posted results one by one, for the admin API: what waits, for whom and why.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{caller_names::CallerNames, rfc3339_date};
use crate::{
    api::query::read_number,
    auth::PrincipalHash,
    clock,
    late::{LateStore, ListCursor, ListedResult, OperatorList, Page, WaitReason},
    ledger::HashPrefix,
    printable::printable_name,
};

/// Most digits of a place: each number of so many digits is one.
const PLACE_DIGITS_MAX: usize = 19;

/// A list of calls or posted results.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, ToSchema)]
#[schema(as = LateState)]
#[serde(rename_all = "lowercase")]
pub(in crate::api::admin) enum LateStateView {
    /// Posted results that their callers have not received.
    #[default]
    Waiting,
    /// Calls without any result.
    Running,
    /// Results whose call is not known.
    Parked,
    /// Results that a provider refused.
    Withheld,
    /// Results that were refused at their post, or that no call has claimed.
    Evidence,
}

impl LateStateView {
    /// Returns the list that the ledger has.
    pub(in crate::api::admin) const fn to_list(self) -> OperatorList {
        match self {
            Self::Waiting => OperatorList::Waiting,
            Self::Running => OperatorList::Running,
            Self::Parked => OperatorList::Parked,
            Self::Withheld => OperatorList::Withheld,
            Self::Evidence => OperatorList::Evidence,
        }
    }

    /// Returns the state of a row. A result that a provider refused waits as well.
    const fn of_row(self, reason: WaitReason) -> Self {
        match reason {
            WaitReason::Withheld => Self::Withheld,
            _ => self,
        }
    }
}

/// A page of calls or posted results, by caller and then the oldest first.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::api::admin) struct LateResultsPage {
    results: Vec<LateResultView>,
    /// The value of `after` for the next page; null on the last page. A page may have few rows, or none, although there
    /// is a next one.
    next: Option<String>,
}

/// A call or a posted result, without its content.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LateResult)]
struct LateResultView {
    /// The value of `after` for a page that begins after this row.
    cursor: String,
    state: LateStateView,
    /// The call id. An odd id is escaped, a long one shortened.
    call_id: String,
    /// The tool; null if it is not known.
    tool: Option<String>,
    /// The short id of the caller; null if it is not known whose call it is.
    caller: Option<String>,
    /// The name of the caller's client token; null without one.
    caller_name: Option<String>,
    /// The name of the session; null if it is not known.
    session: Option<String>,
    /// The service that posted the result; null if there is none yet.
    service: Option<String>,
    /// Seconds since the post, or since the call if there is no result.
    age_seconds: u64,
    /// The length of the content in bytes; null without a content.
    bytes: Option<u64>,
    /// The stable name of the reason, for programs.
    reason: &'static str,
    /// The reason in plain words.
    explanation: &'static str,
    /// The end of the wait, RFC 3339.
    until: String,
}

/// Returns a page of results. `clients` are the names of the client tokens.
pub(in crate::api::admin) fn late_results_page(
    late: &LateStore,
    state: LateStateView,
    page: Page<ListedResult>,
    clients: &[String],
) -> LateResultsPage {
    let names = CallerNames::new(late, clients);
    let view = |row| result_view(&names, state, row);
    LateResultsPage {
        results: page.rows.into_iter().map(view).collect(),
        next: page.next.map(format_cursor),
    }
}

fn result_view(names: &CallerNames<'_>, state: LateStateView, row: ListedResult) -> LateResultView {
    let now = clock::unix_time();
    LateResultView {
        cursor: format_cursor(row.cursor),
        state: state.of_row(row.reason),
        caller: row
            .principal
            .map(|principal| HashPrefix::from_bytes(principal.as_bytes()).to_string()),
        caller_name: names
            .find_name(row.account.or(row.principal), row.named_owner)
            .map(str::to_owned),
        call_id: printable_name(&row.call_id),
        tool: row.tool.as_deref().map(printable_name),
        session: row.session.as_deref().map(printable_name),
        service: row.service,
        age_seconds: now.saturating_sub(row.since).as_secs(),
        bytes: row.bytes,
        reason: row.reason.label(),
        explanation: row.reason.explanation(),
        until: rfc3339_date(row.until),
    }
}

/// Writes a cursor: the owner of the last record in hexadecimal digits, and the place of the record.
pub(super) fn format_cursor(cursor: ListCursor) -> String {
    let principal = blake3::Hash::from_bytes(cursor.principal);
    format!("{}-{}", principal.to_hex(), cursor.place)
}

/// Reads a cursor. Returns `None` if the text is none.
pub(in crate::api::admin) fn parse_cursor(text: &[u8]) -> Option<ListCursor> {
    let (principal, place) = std::str::from_utf8(text).ok()?.split_once('-')?;
    let principal: PrincipalHash = *blake3::Hash::from_hex(principal).ok()?.as_bytes();
    let place = read_number(place.as_bytes()).filter(|_| place.len() <= PLACE_DIGITS_MAX)?;
    Some(ListCursor { principal, place })
}
