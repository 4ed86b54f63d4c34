//! `/admin/v1/intents`: operators list intents and resolve unknown outcomes.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    request::{AdminRequest, AdminResponse, BAD_CURSOR, ROWS_DEFAULT, not_found, read_ledger, shown, take_limit},
    views::{
        intents::{self, IntentStateView, IntentsPage, ResolutionView},
        late_results::parse_cursor,
    },
};
use crate::{
    api::{Problem, ProblemCode, query::read_name},
    clock,
    late::{IntentState, ResolveOutcome},
};

/// The query of `/admin/v1/intents`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the handler takes each parameter; this is their schema")]
pub(super) struct IntentsQuery {
    /// Only intents in this state
    #[param(inline)]
    state: Option<IntentStateView>,
    /// Limit of rows
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The value of `next` from the page before
    #[param(pattern = "^[0-9a-f]{64}-[0-9]{1,19}$")]
    after: Option<String>,
}

/// Lists intents: which effects run, have happened, or may have happened
#[utoipa::path(get, path = "/admin/v1/intents", tag = "watch", params(IntentsQuery), responses(
    (status = 200, description = "by caller, then the oldest first; never content", body = IntentsPage),
))]
pub(super) async fn list_intents(request: AdminRequest) -> AdminResponse {
    let (mut query, parts) = (request.query(), &request.parts);
    let limit = take_limit(&mut query, ROWS_DEFAULT)?;
    let after = query.take("after", BAD_CURSOR, parse_cursor)?;
    let wanted = query.take(
        "state",
        "`state` must be the state of an intent, such as claimed, settled, failed, cancelled or unknown",
        read_name::<IntentStateView>,
    )?;
    let wanted = wanted.map(IntentStateView::to_state);
    let states = wanted.as_ref().map_or(&IntentState::ALL[..], std::slice::from_ref);
    let list = parts.late.intents().list(states, after, limit, clock::unix_time());
    let page = read_ledger("list intents", list).await?;
    let clients = &parts.control.active_config().clients;
    shown(&intents::intents_page(&parts.late, page, clients))
}

/// The body that resolves an unknown outcome.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ResolveBody {
    /// The finding of the operator
    outcome: ResolutionView,
}

/// An intent whose outcome was resolved.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct ResolvedView {
    /// The id
    intent: String,
    /// `settled` after `done`, `cancelled` after `not-run`
    state: IntentStateView,
}

/// Resolves an unknown outcome, after the operator has found out if the effect happened
///
/// After `done`, claims get the answer that the tool ran, without a content, until the window ends. After `not-run` the
/// intent may be claimed again. Reports of the earlier holder are refused from then on.
#[utoipa::path(post, path = "/admin/v1/intents/{intent}/resolve", tag = "operate",
    params(("intent" = String, Path, description = "the id of the intent", pattern = "^int_[0-9a-f]{32}$")),
    request_body = ResolveBody, responses(
    (status = 200, description = "the new state", body = ResolvedView),
))]
pub(super) async fn resolve_intent(mut request: AdminRequest) -> AdminResponse {
    let ResolveBody { outcome } = request.read_json().await?;
    let unknown = || not_found("no such intent; GET /admin/v1/intents lists them");
    let id = request.id(0).parse().map_err(|_| unknown())?;
    let resolving = request
        .parts
        .late
        .intents()
        .resolve(id, outcome.to_resolution(), clock::unix_time());
    match read_ledger("resolve an intent", resolving).await? {
        ResolveOutcome::Resolved(state) => {
            // A warning, so that the decision of a human is logged at most levels.
            tracing::warn!(intent = %id, state = state.label(), "an operator resolved the unknown outcome of an intent");
            shown(&ResolvedView {
                intent: id.to_string(),
                state: IntentStateView::of_state(state),
            })
        }
        ResolveOutcome::NotUnknown(state) => {
            let label = state.label();
            let text = format!("the outcome is not unknown: the state of this intent is {label}");
            Err(Problem::new(ProblemCode::NotUnknown, text))
        }
        ResolveOutcome::NotFound => Err(unknown()),
    }
}
