//! `/admin/v1`: the handlers that report state to operators and take their commands, and the routes of all documented
//! paths.
//!
//! The `OpenAPI` document is generated from these handlers, so their doc comments are part of it.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use axum::{
    Json,
    extract::{Path, State, rejection::JsonRejection},
    http::{HeaderValue, StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
};
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams, OpenApi, ToSchema,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{
    AdminState,
    control::ReloadOutcome,
    events, health, intents, metrics_page,
    pages::{BAD_CURSOR, ROWS_DEFAULT, bad_query, check_limit, not_found, read_ledger},
    problem::{QueryParams, read_body},
    task_links,
    views::{
        DateConverter,
        failures::{self, FailuresPage},
        late::{self, LatePage},
        late_results::{self, LateResultsPage, LateStateView},
        profiles::{self, ProfilesPage},
        repairs::{self, RepairView, RepairsPage},
        series::{self, SeriesPage},
        sessions::{self, SessionsPage},
        status::{self, StatusView},
        stuck_sessions::{self, StuckSessionsPage},
        usage::{self, UsagePage},
    },
    webhooks,
};
use crate::{
    api::{Problem, ProblemCode, problem::ProblemView},
    late::list_for_operator,
    session_table::LaneFilter,
};

/// Limit of the text by which lanes are found, in characters.
const FILTER_CHARS_MAX: usize = 200;
/// Default number of lanes on a page.
const LANES_DEFAULT: usize = 200;

#[derive(OpenApi)]
#[openapi(
    info(title = "Antiphon", description = "Reports the state of a running Antiphon to its operators and takes their \
        commands. A token is needed only if `server.admin_token` is set."),
    modifiers(&BearerScheme),
    security((), ("token" = [])),
    tags(
        (name = "watch", description = "Read the state of the proxy"),
        (name = "operate", description = "Change the running proxy"),
        (name = "health", description = "Health checks, which never need the token")
    )
)]
struct ApiDocument;

/// The bearer token, as the security scheme `token` of the document.
struct BearerScheme;

impl utoipa::Modify for BearerScheme {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(token));
    }
}

/// Returns the routes of the API, and the `OpenAPI` document that describes them.
pub(super) fn api_routes() -> (axum::Router<AdminState>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(ApiDocument::openapi())
        .routes(routes!(show_status))
        .routes(routes!(show_series))
        .routes(routes!(list_repairs))
        .routes(routes!(show_repair))
        .routes(routes!(list_failures))
        .routes(routes!(list_stuck_sessions))
        .routes(routes!(show_usage))
        .routes(routes!(list_sessions))
        .routes(routes!(list_profiles))
        .routes(routes!(clear_profile))
        .routes(routes!(show_late))
        .routes(routes!(list_late_results))
        .routes(routes!(intents::list_intents))
        .routes(routes!(intents::resolve_intent))
        .routes(routes!(webhooks::list_messages))
        .routes(routes!(webhooks::resend_message))
        .routes(routes!(task_links::make_task_link))
        .routes(routes!(task_links::revoke_task_link))
        .routes(routes!(events::stream_events))
        .routes(routes!(show_config))
        .routes(routes!(show_log_level, set_log_level))
        .routes(routes!(reload_config))
        .routes(routes!(health::check_liveness))
        .routes(routes!(health::check_readiness))
        .routes(routes!(metrics_page::show_metrics))
        .split_for_parts()
}

/// Returns the status of the process
#[utoipa::path(get, path = "/admin/v1/status", tag = "watch", responses(
    (status = 200, description = "version, addresses, upstreams and configuration", body = StatusView),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_status(State(parts): State<AdminState>) -> Json<StatusView> {
    Json(status::status_view(&parts))
}

/// Returns the counts of the last hour, in steps of five seconds
#[utoipa::path(get, path = "/admin/v1/series", tag = "watch", responses(
    (status = 200, description = "one value per step in each series", body = SeriesPage),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_series(State(parts): State<AdminState>) -> Json<SeriesPage> {
    Json(series::series_page(&parts.telemetry))
}

/// The query of a list that is kept in memory.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RowsQuery {
    /// Limit of rows
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
}

/// Lists the last requests with findings in their bodies, the newest first
#[utoipa::path(get, path = "/admin/v1/repairs", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "findings, repair actions and structure; never content", body = RepairsPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_repairs(
    State(parts): State<AdminState>,
    QueryParams(rows): QueryParams<RowsQuery>,
) -> Result<Json<RepairsPage>, Problem> {
    let limit = check_limit(rows.limit, ROWS_DEFAULT)?;
    Ok(Json(repairs::repairs_page(&parts.telemetry, limit)))
}

/// Returns one request with findings in its body
#[utoipa::path(get, path = "/admin/v1/repairs/{id}", tag = "watch",
    params(("id" = String, Path, description = "the value of `x-antiphon-request-id`")), responses(
    (status = 200, description = "findings, repair actions and structure; never content", body = RepairView),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 404, description = "not among the last 500 requests with findings", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_repair(State(parts): State<AdminState>, Path(id): Path<String>) -> Result<Json<RepairView>, Problem> {
    // The id is not validated: any text that is no known id is a 404.
    let unknown = || not_found("no such request among the last 500 with findings; GET /admin/v1/repairs lists them");
    let entry = parts.telemetry.dashboard_feed().find_repair(&id).ok_or_else(unknown)?;
    Ok(Json(repairs::repair_view(&entry, true)))
}

/// Lists the last requests that failed, the newest first
#[utoipa::path(get, path = "/admin/v1/failures", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "status, side, code, names and request id; never content", body = FailuresPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_failures(
    State(parts): State<AdminState>,
    QueryParams(rows): QueryParams<RowsQuery>,
) -> Result<Json<FailuresPage>, Problem> {
    let limit = check_limit(rows.limit, ROWS_DEFAULT)?;
    Ok(Json(failures::failures_page(&parts.telemetry, limit)))
}

/// Lists sessions that a provider refuses again and again, the last refusal first
///
/// A session is stuck after three refusals with one error that the proxy does not know. It leaves the list when one of
/// its requests succeeds, or a day after the last refusal.
#[utoipa::path(get, path = "/admin/v1/stuck-sessions", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "masked error, status, names and request id; never content", body = StuckSessionsPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_stuck_sessions(
    State(parts): State<AdminState>,
    QueryParams(rows): QueryParams<RowsQuery>,
) -> Result<Json<StuckSessionsPage>, Problem> {
    let limit = check_limit(rows.limit, ROWS_DEFAULT)?;
    let dates = DateConverter::at_present();
    Ok(Json(stuck_sessions::stuck_sessions_page(
        &parts.telemetry,
        limit,
        dates,
    )))
}

/// Returns the traffic of the last 15 minutes by model, client, client token and upstream
#[utoipa::path(get, path = "/admin/v1/usage", tag = "watch", responses(
    (status = 200, description = "requests, failures, repairs and tokens by name", body = UsagePage),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_usage(State(parts): State<AdminState>) -> Json<UsagePage> {
    Json(usage::usage_page(&parts.telemetry))
}

/// The query of `/admin/v1/sessions`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LanesQuery {
    /// Limit of lanes
    #[param(minimum = 1, maximum = 500, default = 200)]
    limit: Option<usize>,
    /// The value of `next` from the page before
    #[param(pattern = "^[0-9]{1,9}$")]
    after: Option<String>,
    /// A text that the lane's hash or one of its names must contain: client, client token, model, upstream, profile, or a
    /// tool with an open call
    #[param(max_length = 200)]
    text: Option<String>,
    /// True for lanes with open calls alone, false for those without
    busy: Option<bool>,
}

/// Lists lanes, each the conversation of one agent
#[utoipa::path(get, path = "/admin/v1/sessions", tag = "watch", params(LanesQuery), responses(
    (status = 200, description = "lanes with overdue calls first, then those with other open calls, then the most \
        recently used", body = SessionsPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_sessions(
    State(parts): State<AdminState>,
    QueryParams(lanes): QueryParams<LanesQuery>,
) -> Result<Json<SessionsPage>, Problem> {
    // More lanes than repairs by default: a lane is one short row.
    let limit = check_limit(lanes.limit, LANES_DEFAULT)?;
    // `parse` alone would also accept a sign, which the document does not allow.
    let is_cursor = |text: &String| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let skip = match &lanes.after {
        None => 0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|_| is_cursor(text))
            .ok_or_else(|| bad_query(BAD_CURSOR))?,
    };
    let text = lanes.text.unwrap_or_default();
    if text.chars().count() > FILTER_CHARS_MAX {
        return Err(bad_query("`text` must have at most 200 characters"));
    }
    let filter = LaneFilter::new(&text, lanes.busy);
    Ok(Json(sessions::sessions_page(&parts.sessions, &filter, skip, limit)))
}

/// Lists profiles with their cooldowns, and breakers
#[utoipa::path(get, path = "/admin/v1/profiles", tag = "watch", responses(
    (status = 200, description = "the state of each profile and breaker, with reasons", body = ProfilesPage),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_profiles(State(parts): State<AdminState>) -> Json<ProfilesPage> {
    Json(profiles::profiles_page(
        &parts.control.active_config().profiles,
        DateConverter::at_present(),
    ))
}

/// Ends every cooldown of a profile, so that it serves requests again
#[utoipa::path(post, path = "/admin/v1/profiles/{upstream}/{profile}/clear", tag = "operate",
    params(
        ("upstream" = String, Path, description = "the name of the upstream"),
        ("profile" = String, Path, description = "the name of the profile"),
    ),
    responses(
    (status = 204, description = "the profile serves requests again"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 404, description = "no such profile", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn clear_profile(
    State(parts): State<AdminState>,
    Path((upstream, profile)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    if !parts
        .control
        .active_config()
        .profiles
        .clear_cooldowns(&upstream, &profile)
    {
        return Err(not_found("no such profile; GET /admin/v1/profiles lists all profiles"));
    }
    tracing::info!(upstream, profile, "an operator cleared the cooldowns of a profile");
    // Open dashboards would show the old cooldown until their next poll.
    parts.telemetry.announce_profiles();
    Ok(StatusCode::NO_CONTENT)
}

/// Returns counts of detached calls and late results
#[utoipa::path(get, path = "/admin/v1/late", tag = "watch", responses(
    (status = 200, description = "counts since the start of the process, and the latest events", body = LatePage),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_late(State(parts): State<AdminState>) -> Json<LatePage> {
    Json(late::late_page(&parts.telemetry, &parts.late))
}

/// The query of `/admin/v1/late/results`.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LateResultsQuery {
    /// The list; `waiting` without this parameter
    #[param(inline)]
    state: Option<LateStateView>,
    /// Limit of rows
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
    /// The value of `next` from the page before, or the `cursor` of a row
    #[param(pattern = "^[0-9a-f]{64}-[0-9]{1,19}$")]
    after: Option<String>,
}

/// Lists calls and posted results: what waits, for whom and why
#[utoipa::path(get, path = "/admin/v1/late/results", tag = "watch", params(LateResultsQuery), responses(
    (status = 200, description = "by caller, then the oldest first; never content", body = LateResultsPage),
    (status = 400, description = "a query parameter is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 503, description = "the ledger failed, or did not answer within 3 s", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn list_late_results(
    State(parts): State<AdminState>,
    QueryParams(query): QueryParams<LateResultsQuery>,
) -> Result<Json<LateResultsPage>, Problem> {
    let limit = check_limit(query.limit, ROWS_DEFAULT)?;
    let cursor = |text: &str| late_results::parse_cursor(text).ok_or_else(|| bad_query(BAD_CURSOR));
    let after = query.after.as_deref().map(cursor).transpose()?;
    let state = query.state.unwrap_or_default();
    let list = list_for_operator(&parts.late, state.to_list(), after, limit);
    let page = read_ledger("list late results", list).await?;
    let clients = &parts.control.active_config().clients;
    Ok(Json(late_results::late_results_page(&parts.late, state, page, clients)))
}

/// Returns the configuration in force, without secrets
#[utoipa::path(get, path = "/admin/v1/config", tag = "watch", responses(
    (status = 200, description = "every key with its value, as TOML", content_type = "application/toml", body = String),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_config(State(parts): State<AdminState>) -> Response {
    // The text was rendered without secrets when the configuration was loaded.
    let toml = (CONTENT_TYPE, HeaderValue::from_static("application/toml"));
    ([toml], parts.control.active_config().effective_toml.clone()).into_response()
}

/// The log level.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
struct LogLevel {
    /// A level, or directives like `antiphon=debug,warn`
    #[schema(
        pattern = "^([a-z_]+(::[a-z_]+)*=)?(off|error|warn|info|debug|trace)(,([a-z_]+(::[a-z_]+)*=)?(off|error|warn|info|debug|trace))*$",
        example = "info"
    )]
    level: String,
}

/// Returns the log level
#[utoipa::path(get, path = "/admin/v1/log-level", tag = "operate", responses(
    (status = 200, description = "the level or the directives in force", body = LogLevel),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn show_log_level(State(parts): State<AdminState>) -> Json<LogLevel> {
    let level = parts.control.log_control().current_level();
    Json(LogLevel { level })
}

/// Sets the log level until the next start, or until a reload that changes `log.level`
#[utoipa::path(put, path = "/admin/v1/log-level", tag = "operate", request_body = LogLevel, responses(
    (status = 200, description = "the new level is in force", body = LogLevel),
    (status = 400, description = "the body is not a log level object", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 413, description = "the body is too large", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 415, description = "the content type is not JSON", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 422, description = "the level is invalid", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn set_log_level(
    State(parts): State<AdminState>,
    level: Result<Json<LogLevel>, JsonRejection>,
) -> Result<Json<LogLevel>, Problem> {
    let level = read_body(level)?;
    let refused = |why| Problem::new(ProblemCode::BadLevel, why);
    parts.control.log_control().set_level(&level.level).map_err(refused)?;
    // A warning, so that the change itself is logged at most levels.
    tracing::warn!(log_level = level.level, "log level changed by an operator");
    Ok(Json(level))
}

/// The outcome of a reload.
#[derive(Debug, Serialize, ToSchema)]
struct ReloadPage {
    reloaded: bool,
    /// Changed keys that are in force now
    changed: Vec<String>,
    /// Changed keys that need a restart
    needs_restart: Vec<String>,
}

/// Reloads the configuration; an invalid file never replaces the one in force
#[utoipa::path(post, path = "/admin/v1/reload", operation_id = "reload", tag = "operate", responses(
    (status = 200, description = "the changed keys", body = ReloadPage),
    (status = 401, description = "the token is missing or wrong", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 429, description = "too many wrong tokens from this address", body = ProblemView<'_>, content_type = "application/problem+json"),
    (status = 422, description = "reload failed; the old configuration stays in force", body = ProblemView<'_>, content_type = "application/problem+json"),
))]
async fn reload_config(State(parts): State<AdminState>) -> Result<Json<ReloadPage>, Problem> {
    let refused = |why| Problem::new(ProblemCode::NotReloaded, why);
    let ReloadOutcome { changed, needs_restart } = parts.control.request_reload().await.map_err(refused)?;
    Ok(Json(ReloadPage {
        reloaded: true,
        changed,
        needs_restart,
    }))
}
