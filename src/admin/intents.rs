//! `/admin/v1/intents`: operators list intents and resolve unknown outcomes.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use axum::{
    Json,
    extract::{Path, State, rejection::JsonRejection},
};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::{
    AdminState,
    pages::{BAD_CURSOR, ROWS_DEFAULT, bad_query, check_limit, not_found, read_ledger},
    problem::{QueryParams, read_body},
    views::{
        intents::{self, IntentStateView, IntentsPage, ResolutionView},
        late_results::parse_cursor,
    },
};
use crate::{
    api::{Problem, ProblemCode, problem::ProblemView},
    clock,
    late::{IntentState, ResolveOutcome},
};

/// The query of `/admin/v1/intents`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
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
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the ledger failed, or did not answer within 3 s", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
pub(super) async fn list_intents(
    State(parts): State<AdminState>,
    QueryParams(query): QueryParams<IntentsQuery>,
) -> Result<Json<IntentsPage>, Problem> {
    let limit = check_limit(query.limit, ROWS_DEFAULT)?;
    let cursor = |text: &str| parse_cursor(text).ok_or_else(|| bad_query(BAD_CURSOR));
    let after = query.after.as_deref().map(cursor).transpose()?;
    let wanted = query.state.map(IntentStateView::to_state);
    let states = wanted.as_ref().map_or(&IntentState::ALL[..], std::slice::from_ref);
    let list = parts.late.intents().list(states, after, limit, clock::unix_time());
    let page = read_ledger("list intents", list).await?;
    let clients = &parts.control.active_config().clients;
    Ok(Json(intents::intents_page(&parts.late, page, clients)))
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
    (status = 400, description = "the body names no outcome", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 404, description = "no such intent", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 409, description = "the outcome is not unknown", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 413, description = "the body is too large", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 415, description = "the content type is not JSON", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the ledger failed, or did not answer within 3 s", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
pub(super) async fn resolve_intent(
    State(parts): State<AdminState>,
    Path(intent): Path<String>,
    body: Result<Json<ResolveBody>, JsonRejection>,
) -> Result<Json<ResolvedView>, Problem> {
    let ResolveBody { outcome } = read_body(body)?;
    let unknown = || not_found("no such intent; GET /admin/v1/intents lists them");
    let id = intent.parse().map_err(|_| unknown())?;
    let resolving = parts
        .late
        .intents()
        .resolve(id, outcome.to_resolution(), clock::unix_time());
    match read_ledger("resolve an intent", resolving).await? {
        ResolveOutcome::Resolved(state) => {
            // A warning, so that the decision of a human is logged at most levels.
            tracing::warn!(intent = %id, state = state.label(), "an operator resolved the unknown outcome of an intent");
            Ok(Json(ResolvedView {
                intent: id.to_string(),
                state: IntentStateView::of_state(state),
            }))
        }
        ResolveOutcome::NotUnknown(state) => {
            let label = state.label();
            let text = format!("the outcome is not unknown: the state of this intent is {label}");
            Err(Problem::new(ProblemCode::NotUnknown, text))
        }
        ResolveOutcome::NotFound => Err(unknown()),
    }
}
