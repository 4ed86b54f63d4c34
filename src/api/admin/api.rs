//! `/admin/v1`: the handlers that report state to operators and take their commands, and the table of all operations.
//!
//! The `OpenAPI` document is generated from these handlers, so their doc comments are part of it.

#![expect(unused_qualifications, reason = "the macros expand to full paths")]

use std::sync::LazyLock;

use http::{Method, Response, StatusCode};
use http_body_util::{BodyExt, Empty};
use serde::{Deserialize, Serialize};
use utoipa::{
    IntoParams, OpenApi, ToSchema,
    openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme},
};

use super::{
    control::ReloadOutcome,
    events, health, intents, metrics_page, page,
    request::{
        AdminHandler,
        AdminHandler::{Later, Now},
        AdminRequest, AdminResponse, BAD_CURSOR, ROWS_DEFAULT, not_found, read_ledger, shown, take_limit,
    },
    task_links, taught,
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
    api::{
        Problem, ProblemCode, private_response,
        problem::{ProblemView, codes},
        query::{read_flag, read_name, read_number},
        routes::{GuardRefusal, RouteTable},
    },
    session_table::LaneFilter,
};

/// Limit of the text by which lanes are found, in characters.
const FILTER_CHARS_MAX: usize = 200;
/// Default number of lanes on a page.
const LANES_DEFAULT: usize = 200;
/// Limit of the digits of a cursor of lanes.
const CURSOR_DIGITS_MAX: usize = 9;

#[derive(OpenApi)]
#[openapi(
    info(title = "Antiphon", description = "Reports the state of a running Antiphon to its operators and takes their \
        commands. A token is needed only if `server.admin_token` is set."),
    modifiers(&BearerScheme),
    components(schemas(ProblemView<'_>)),
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

/// Returns `true` if a path needs the token. Health checks and the page's files do not: they contain no data.
pub(super) fn needs_token(path: &str) -> bool {
    path.starts_with("/admin/") || path == "/metrics"
}

/// Returns the refusals that every operation at a path has.
fn guard_refusals(path: &str) -> Vec<GuardRefusal> {
    let codes = if needs_token(path) {
        codes![Forbidden, Unauthorized, TooManyAttempts]
    } else {
        codes![Forbidden]
    };
    codes.iter().map(|code| code.described()).collect()
}

/// Every operation and page of the listener.
#[rustfmt::skip]
pub(super) static TABLE: LazyLock<RouteTable<AdminHandler>> = LazyLock::new(|| {
    const ROWS: &[ProblemCode] = codes![BadQuery];
    const LEDGER_ROWS: &[ProblemCode] = codes![BadQuery, LedgerUnavailable];
    const LEDGER_RECORD: &[ProblemCode] = codes![NotFound, LedgerUnavailable];
    RouteTable::<AdminHandler>::new(ApiDocument::openapi(), guard_refusals)
        .with::<__path_show_status>(&[], Now(show_status))
        .with::<__path_show_series>(&[], Now(show_series))
        .with::<__path_list_repairs>(ROWS, Now(list_repairs))
        .with::<__path_show_repair>(codes![NotFound], Now(show_repair))
        .with::<__path_list_failures>(ROWS, Now(list_failures))
        .with::<__path_list_stuck_sessions>(ROWS, Now(list_stuck_sessions))
        .with::<taught::__path_list_taught>(&[], Now(taught::list_taught))
        .with::<taught::__path_forget_taught>(
            codes![LedgerUnavailable],
            Later(|it| Box::pin(taught::forget_taught(it))),
        )
        .with::<__path_show_usage>(&[], Now(show_usage))
        .with::<__path_list_sessions>(ROWS, Now(list_sessions))
        .with::<__path_list_profiles>(&[], Now(list_profiles))
        .with::<__path_clear_profile>(codes![NotFound], Now(clear_profile))
        .with::<__path_show_late>(&[], Now(show_late))
        .with::<__path_list_late_results>(LEDGER_ROWS, Later(|it| Box::pin(list_late_results(it))))
        .with::<intents::__path_list_intents>(LEDGER_ROWS, Later(|it| Box::pin(intents::list_intents(it))))
        .with::<intents::__path_resolve_intent>(
            codes![BadBody, BodyLength, BodyType, NotFound, NotUnknown, LedgerUnavailable],
            Later(|it| Box::pin(intents::resolve_intent(it))),
        )
        .with::<webhooks::__path_list_messages>(LEDGER_ROWS, Later(|it| Box::pin(webhooks::list_messages(it))))
        .with::<webhooks::__path_resend_message>(LEDGER_RECORD, Later(|it| Box::pin(webhooks::resend_message(it))))
        .with::<task_links::__path_make_task_link>(
            codes![BadBody, BodyLength, BodyType, NotFound, SharedClient, TooManyLinks, LedgerUnavailable],
            Later(|it| Box::pin(task_links::make_task_link(it))),
        )
        .with::<task_links::__path_revoke_task_link>(
            LEDGER_RECORD,
            Later(|it| Box::pin(task_links::revoke_task_link(it))),
        )
        .with::<events::__path_stream_events>(codes![TooManyListeners], Now(events::stream_events))
        .with::<__path_show_config>(&[], Now(show_config))
        .with::<__path_show_log_level>(&[], Now(show_log_level))
        .with::<__path_set_log_level>(
            codes![BadBody, BodyLength, BodyType, BadLevel],
            Later(|it| Box::pin(set_log_level(it))),
        )
        .with::<__path_reload_config>(codes![NotReloaded], Later(|it| Box::pin(reload_config(it))))
        .with::<health::__path_check_liveness>(&[], Now(health::check_liveness))
        .with::<health::__path_check_readiness>(&[], Later(|it| Box::pin(health::check_readiness(it))))
        .with::<metrics_page::__path_show_metrics>(codes![MetricsFailed], Now(metrics_page::show_metrics))
        .with_hidden(Method::GET, "/admin/v1/openapi.json", Now(|_| shown(TABLE.document())))
        .with_hidden(Method::GET, "/", Now(page::serve_index))
        .with_hidden(Method::GET, "/assets/{name}", Now(page::serve_asset))
        .with_hidden(Method::GET, "/assets/{version}/{name}", Now(page::serve_versioned_asset))
        .with_hidden(Method::GET, "/healthz", Now(health::check_liveness))
        // The paths of LiteLLM, so that its health checks work without a change.
        .with_hidden(Method::GET, "/health/liveliness", Now(health::check_liveness))
        .with_hidden(Method::GET, "/health/liveness", Now(health::check_liveness))
        .with_hidden(Method::GET, "/health/readiness", Later(|it| Box::pin(health::check_readiness(it))))
});

/// Returns the status of the process
#[utoipa::path(get, path = "/admin/v1/status", tag = "watch", responses(
    (status = 200, description = "version, addresses, upstreams and configuration", body = StatusView),
))]
fn show_status(request: &AdminRequest) -> AdminResponse {
    shown(&status::status_view(&request.parts))
}

/// Returns the counts of the last hour, in steps of five seconds
#[utoipa::path(get, path = "/admin/v1/series", tag = "watch", responses(
    (status = 200, description = "one value per step in each series", body = SeriesPage),
))]
fn show_series(request: &AdminRequest) -> AdminResponse {
    shown(&series::series_page(&request.parts.telemetry))
}

/// The query of a list that is kept in memory.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the handler takes each parameter; this is their schema")]
struct RowsQuery {
    /// Limit of rows
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
}

/// Lists the last requests with findings in their bodies, the newest first
#[utoipa::path(get, path = "/admin/v1/repairs", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "findings, repair actions and structure; never content", body = RepairsPage),
))]
fn list_repairs(request: &AdminRequest) -> AdminResponse {
    let limit = take_limit(&mut request.query(), ROWS_DEFAULT)?;
    shown(&repairs::repairs_page(&request.parts.telemetry, limit))
}

/// Returns one request with findings in its body
#[utoipa::path(get, path = "/admin/v1/repairs/{id}", tag = "watch",
    params(("id" = String, Path, description = "the value of `x-antiphon-request-id`")), responses(
    (status = 200, description = "findings, repair actions and structure; never content", body = RepairView),
))]
fn show_repair(request: &AdminRequest) -> AdminResponse {
    // The id is not validated: any text that is no known id is a 404.
    let unknown = || not_found("no such request among the last 500 with findings; GET /admin/v1/repairs lists them");
    let feed = request.parts.telemetry.dashboard_feed();
    let entry = feed.find_repair(request.id(0)).ok_or_else(unknown)?;
    shown(&repairs::repair_view(&entry, true))
}

/// Lists the last requests that failed, the newest first
#[utoipa::path(get, path = "/admin/v1/failures", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "status, side, code, names and request id; never content", body = FailuresPage),
))]
fn list_failures(request: &AdminRequest) -> AdminResponse {
    let limit = take_limit(&mut request.query(), ROWS_DEFAULT)?;
    shown(&failures::failures_page(&request.parts.telemetry, limit))
}

/// Lists sessions that a provider refuses again and again, the last refusal first
///
/// A session is stuck after three refusals with one error that the proxy does not know. It leaves the list when one of
/// its requests succeeds, or a day after the last refusal.
#[utoipa::path(get, path = "/admin/v1/stuck-sessions", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "masked error, status, names and request id; never content", body = StuckSessionsPage),
))]
fn list_stuck_sessions(request: &AdminRequest) -> AdminResponse {
    let limit = take_limit(&mut request.query(), ROWS_DEFAULT)?;
    let dates = DateConverter::at_present();
    shown(&stuck_sessions::stuck_sessions_page(
        &request.parts.telemetry,
        limit,
        dates,
    ))
}

/// Returns the traffic of the last 15 minutes by model, client, client token and upstream
#[utoipa::path(get, path = "/admin/v1/usage", tag = "watch", responses(
    (status = 200, description = "requests, failures, repairs and tokens by name", body = UsagePage),
))]
fn show_usage(request: &AdminRequest) -> AdminResponse {
    shown(&usage::usage_page(&request.parts.telemetry))
}

/// The query of `/admin/v1/sessions`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the handler takes each parameter; this is their schema")]
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
))]
fn list_sessions(request: &AdminRequest) -> AdminResponse {
    let mut query = request.query();
    // More lanes than repairs by default: a lane is one short row.
    let limit = take_limit(&mut query, LANES_DEFAULT)?;
    let skip = query.take("after", BAD_CURSOR, |text| {
        read_number(text).filter(|_| text.len() <= CURSOR_DIGITS_MAX)
    })?;
    let text = query.take("text", "`text` must have at most 200 characters", |text| {
        let text = std::str::from_utf8(text).ok()?;
        (text.chars().count() <= FILTER_CHARS_MAX).then(|| text.to_owned())
    })?;
    let busy = query.take("busy", "`busy` must be true or false", read_flag)?;
    let filter = LaneFilter::new(&text.unwrap_or_default(), busy);
    let page = sessions::sessions_page(&request.parts.sessions, &filter, skip.unwrap_or_default(), limit);
    shown(&page)
}

/// Lists profiles with their cooldowns, and breakers
#[utoipa::path(get, path = "/admin/v1/profiles", tag = "watch", responses(
    (status = 200, description = "the state of each profile and breaker, with reasons", body = ProfilesPage),
))]
fn list_profiles(request: &AdminRequest) -> AdminResponse {
    let config = request.parts.control.active_config();
    shown(&profiles::profiles_page(&config.profiles, DateConverter::at_present()))
}

/// Ends every cooldown of a profile, so that it serves requests again
#[utoipa::path(post, path = "/admin/v1/profiles/{upstream}/{profile}/clear", tag = "operate",
    params(
        ("upstream" = String, Path, description = "the name of the upstream"),
        ("profile" = String, Path, description = "the name of the profile"),
    ),
    responses(
    (status = 204, description = "the profile serves requests again"),
))]
fn clear_profile(request: &AdminRequest) -> AdminResponse {
    let (upstream, profile, parts) = (request.id(0), request.id(1), &request.parts);
    if !parts
        .control
        .active_config()
        .profiles
        .clear_cooldowns(upstream, profile)
    {
        return Err(not_found("no such profile; GET /admin/v1/profiles lists all profiles"));
    }
    tracing::info!(upstream, profile, "an operator cleared the cooldowns of a profile");
    // Open dashboards would show the old cooldown until their next poll.
    parts.telemetry.announce_profiles();
    let mut answer = Response::new(Empty::new().boxed_unsync());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    Ok(answer)
}

/// Returns counts of detached calls and late results
#[utoipa::path(get, path = "/admin/v1/late", tag = "watch", responses(
    (status = 200, description = "counts since the start of the process, and the latest events", body = LatePage),
))]
fn show_late(request: &AdminRequest) -> AdminResponse {
    shown(&late::late_page(&request.parts.telemetry, &request.parts.late))
}

/// The query of `/admin/v1/late/results`.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "the handler takes each parameter; this is their schema")]
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
))]
async fn list_late_results(request: AdminRequest) -> AdminResponse {
    let (mut query, parts) = (request.query(), &request.parts);
    let limit = take_limit(&mut query, ROWS_DEFAULT)?;
    let after = query.take("after", BAD_CURSOR, late_results::parse_cursor)?;
    let state = query.take(
        "state",
        "`state` must be waiting, running, parked, withheld or evidence",
        read_name::<LateStateView>,
    )?;
    let state = state.unwrap_or_default();
    let list = parts.late.operator_lists().list_results(state.to_list(), after, limit);
    let page = read_ledger("list late results", list).await?;
    let clients = &parts.control.active_config().clients;
    shown(&late_results::late_results_page(&parts.late, state, page, clients))
}

/// Returns the configuration in force, without secrets
#[utoipa::path(get, path = "/admin/v1/config", tag = "watch", responses(
    (status = 200, description = "every key with its value, as TOML", content_type = "application/toml", body = String),
))]
#[expect(clippy::unnecessary_wraps, reason = "every handler returns it")]
fn show_config(request: &AdminRequest) -> AdminResponse {
    // The text was rendered without secrets when the configuration was loaded.
    let toml = request.parts.control.active_config().effective_toml.clone();
    Ok(private_response(StatusCode::OK, "application/toml", toml))
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
))]
fn show_log_level(request: &AdminRequest) -> AdminResponse {
    let level = request.parts.control.log_control().current_level();
    shown(&LogLevel { level })
}

/// Sets the log level until the next start, or until a reload that changes `log.level`
#[utoipa::path(put, path = "/admin/v1/log-level", tag = "operate", request_body = LogLevel, responses(
    (status = 200, description = "the new level is in force", body = LogLevel),
))]
async fn set_log_level(mut request: AdminRequest) -> AdminResponse {
    let level: LogLevel = request.read_json().await?;
    let refused = |why| Problem::new(ProblemCode::BadLevel, why);
    request
        .parts
        .control
        .log_control()
        .set_level(&level.level)
        .map_err(refused)?;
    // A warning, so that the change itself is logged at most levels.
    tracing::warn!(log_level = level.level, "log level changed by an operator");
    shown(&level)
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
))]
async fn reload_config(request: AdminRequest) -> AdminResponse {
    let refused = |why| Problem::new(ProblemCode::NotReloaded, why);
    let reloading = request.parts.control.request_reload();
    let ReloadOutcome { changed, needs_restart } = reloading.await.map_err(refused)?;
    shown(&ReloadPage {
        reloaded: true,
        changed,
        needs_restart,
    })
}
