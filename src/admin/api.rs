//! `/admin/v1`: what is to be seen, and what an operator may do. The `OpenAPI` document comes from these handlers.

#![expect(unused_qualifications, reason = "the macros write whole paths")]

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
    Parts,
    control::Reloaded,
    events,
    problem::{Asked, Problem},
    views::{
        late::{self, LatePage},
        profiles::{self, ProfilesPage},
        repairs::{self, Repair, RepairsPage},
        series::{self, SeriesPage},
        sessions::{self, SessionsPage},
        status::{self, Status},
    },
};

/// Rows of a page, where nobody asks for another number.
const ROWS: usize = 50;
/// Rows of a page at most.
const ROWS_MAX: usize = 500;
/// Lanes of a page, where nobody asks for another number.
const LANES: usize = 200;

#[derive(OpenApi)]
#[openapi(
    info(title = "Antiphon", description = "What a running Antiphon shows its operator, and takes from him. Without \
        `server.admin_token` no token is asked for."),
    modifiers(&Bearer),
    security((), ("token" = [])),
    tags((name = "watch", description = "What is to be seen"), (name = "operate", description = "What may be done"))
)]
struct Document;

struct Bearer;

impl utoipa::Modify for Bearer {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        let token = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        document
            .components
            .get_or_insert_default()
            .add_security_scheme("token", SecurityScheme::Http(token));
    }
}

/// The routes, and the document that describes them.
pub(super) fn routes() -> (axum::Router<Parts>, utoipa::openapi::OpenApi) {
    OpenApiRouter::with_openapi(Document::openapi())
        .routes(routes!(show_status))
        .routes(routes!(show_series))
        .routes(routes!(list_repairs))
        .routes(routes!(show_repair))
        .routes(routes!(list_sessions))
        .routes(routes!(list_profiles))
        .routes(routes!(clear_profile))
        .routes(routes!(show_late))
        .routes(routes!(events::events))
        .routes(routes!(show_config))
        .routes(routes!(show_log_level, set_log_level))
        .routes(routes!(reload))
        .split_for_parts()
}

/// The process as it stands
#[utoipa::path(get, path = "/admin/v1/status", tag = "watch", responses(
    (status = 200, description = "version, addresses, configuration", body = Status),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn show_status(State(parts): State<Parts>) -> Json<Status> {
    Json(status::status(&parts))
}

/// Counts of the last hour, in steps of five seconds
#[utoipa::path(get, path = "/admin/v1/series", tag = "watch", responses(
    (status = 200, description = "one column a step", body = SeriesPage),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn show_series(State(parts): State<Parts>) -> Json<SeriesPage> {
    Json(series::series(&parts.telemetry))
}

/// How many rows.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct RowsQuery {
    /// Rows at most
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: Option<usize>,
}

/// The last requests in whose bodies something was found, the newest first
#[utoipa::path(get, path = "/admin/v1/repairs", tag = "watch", params(RowsQuery), responses(
    (status = 200, description = "in words, and in structure; never content", body = RepairsPage),
    (status = 400, description = "the query is wrong", body = Problem),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn list_repairs(State(parts): State<Parts>, Asked(rows): Asked<RowsQuery>) -> Result<Json<RepairsPage>, Problem> {
    let limit = within(rows.limit, ROWS)?;
    Ok(Json(repairs::repairs(&parts.telemetry, limit)))
}

/// One of them
#[utoipa::path(get, path = "/admin/v1/repairs/{id}", tag = "watch",
    params(("id" = String, Path, description = "`x-antiphon-request-id`")), responses(
    (status = 200, description = "in words, and in structure; never content", body = Repair),
    (status = 401, description = "the token is missing or wrong", body = Problem),
    (status = 404, description = "it is not among the last 500", body = Problem),
))]
async fn show_repair(State(parts): State<Parts>, Path(id): Path<String>) -> Result<Json<Repair>, Problem> {
    let unknown = || not_found("no such request among the last in which something was found");
    let mended = parts.telemetry.dashboard().find_repair(&id).ok_or_else(unknown)?;
    Ok(Json(repairs::repair(&mended, true)))
}

/// Which lanes.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
struct LanesQuery {
    /// Lanes at most
    #[param(minimum = 1, maximum = 500, default = 200)]
    limit: Option<usize>,
    /// `next` of the page before
    #[param(pattern = "^[0-9]{1,9}$")]
    after: Option<String>,
}

/// Lanes: one agent's conversation each
#[utoipa::path(get, path = "/admin/v1/sessions", tag = "watch", params(LanesQuery), responses(
    (status = 200, description = "those with open calls first, then those that were seen last", body = SessionsPage),
    (status = 400, description = "the query is wrong", body = Problem),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn list_sessions(
    State(parts): State<Parts>,
    Asked(lanes): Asked<LanesQuery>,
) -> Result<Json<SessionsPage>, Problem> {
    let limit = within(lanes.limit, LANES)?;
    let is_cursor = |text: &String| (1..=9).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let skip = match &lanes.after {
        None => 0,
        Some(text) => text
            .parse()
            .ok()
            .filter(|_| is_cursor(text))
            .ok_or_else(|| bad_query("`after` takes what `next` gave"))?,
    };
    Ok(Json(sessions::sessions(&parts.sessions, skip, limit)))
}

/// Profiles and breakers
#[utoipa::path(get, path = "/admin/v1/profiles", tag = "watch", responses(
    (status = 200, description = "how each stands, and why", body = ProfilesPage),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn list_profiles(State(parts): State<Parts>) -> Json<ProfilesPage> {
    Json(profiles::profiles(&parts.control.in_force().profiles))
}

/// Says that a profile is well again: everything it rests for is forgotten
#[utoipa::path(post, path = "/admin/v1/profiles/{upstream}/{profile}/clear", tag = "operate",
    params(("upstream" = String, Path, description = "the upstream"), ("profile" = String, Path, description = "the profile")),
    responses(
    (status = 204, description = "it serves again"),
    (status = 401, description = "the token is missing or wrong", body = Problem),
    (status = 404, description = "there is no such profile", body = Problem),
))]
async fn clear_profile(
    State(parts): State<Parts>,
    Path((upstream, profile)): Path<(String, String)>,
) -> Result<StatusCode, Problem> {
    if !parts.control.in_force().profiles.clear(&upstream, &profile) {
        return Err(not_found("there is no such profile; GET /admin/v1/profiles lists them"));
    }
    tracing::info!(upstream, profile, "a profile was cleared");
    parts.telemetry.announce_profiles();
    Ok(StatusCode::NO_CONTENT)
}

/// Calls that nobody waits for, and results that came late
#[utoipa::path(get, path = "/admin/v1/late", tag = "watch", responses(
    (status = 200, description = "since the start", body = LatePage),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn show_late(State(parts): State<Parts>) -> Json<LatePage> {
    Json(late::late(&parts.telemetry, &parts.late))
}

/// The configuration in force, without secrets
#[utoipa::path(get, path = "/admin/v1/config", tag = "watch", responses(
    (status = 200, description = "every key with its value, as TOML", content_type = "application/toml", body = String),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn show_config(State(parts): State<Parts>) -> Response {
    let toml = (CONTENT_TYPE, HeaderValue::from_static("application/toml"));
    ([toml], parts.control.in_force().effective.clone()).into_response()
}

/// What is logged.
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

/// What is logged
#[utoipa::path(get, path = "/admin/v1/log-level", tag = "operate", responses(
    (status = 200, description = "the level, or the directives, in force", body = LogLevel),
    (status = 401, description = "the token is missing or wrong", body = Problem),
))]
async fn show_log_level(State(parts): State<Parts>) -> Json<LogLevel> {
    let level = parts.control.log().level();
    Json(LogLevel { level })
}

/// Logs more, or less, until the next start, or a reload that changes `log.level`
#[utoipa::path(put, path = "/admin/v1/log-level", tag = "operate", request_body = LogLevel, responses(
    (status = 200, description = "in force", body = LogLevel),
    (status = 400, description = "the body is no such object", body = Problem),
    (status = 401, description = "the token is missing or wrong", body = Problem),
    (status = 413, description = "the body is too large", body = Problem),
    (status = 415, description = "the body is not called JSON", body = Problem),
    (status = 422, description = "this is no level", body = Problem),
))]
async fn set_log_level(
    State(parts): State<Parts>,
    level: Result<Json<LogLevel>, JsonRejection>,
) -> Result<Json<LogLevel>, Problem> {
    let Json(level) = level.map_err(|error| {
        // Axum tells bad JSON from JSON of another shape; to us both are the client's mistake in the body.
        let status = match error.status() {
            StatusCode::UNPROCESSABLE_ENTITY => StatusCode::BAD_REQUEST,
            status => status,
        };
        Problem::new(status, "bad_body", error.body_text())
    })?;
    let refused = |why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "bad_level", why);
    parts.control.log().set_level(&level.level).map_err(refused)?;
    tracing::warn!(level = level.level, "the log level was changed");
    Ok(Json(level))
}

/// What became of a reload.
#[derive(Debug, Serialize, ToSchema)]
struct ReloadPage {
    reloaded: bool,
    /// Keys whose values changed, and are in force
    changed: Vec<String>,
    /// Keys whose values changed, and are in force after a restart only
    needs_restart: Vec<String>,
}

/// Loads the configuration anew; a bad file never replaces a good one
#[utoipa::path(post, path = "/admin/v1/reload", tag = "operate", responses(
    (status = 200, description = "what changed", body = ReloadPage),
    (status = 401, description = "the token is missing or wrong", body = Problem),
    (status = 422, description = "what was in force stays; the message says what is wrong", body = Problem),
))]
async fn reload(State(parts): State<Parts>) -> Result<Json<ReloadPage>, Problem> {
    let refused = |why| Problem::new(StatusCode::UNPROCESSABLE_ENTITY, "not_reloaded", why);
    let Reloaded { changed, needs_restart } = parts.control.reload().await.map_err(refused)?;
    Ok(Json(ReloadPage {
        reloaded: true,
        changed,
        needs_restart,
    }))
}

fn within(limit: Option<usize>, usual: usize) -> Result<usize, Problem> {
    let limit = limit.unwrap_or(usual);
    if (1..=ROWS_MAX).contains(&limit) {
        Ok(limit)
    } else {
        Err(bad_query("`limit` takes 1 to 500"))
    }
}

fn bad_query(text: &str) -> Problem {
    Problem::new(StatusCode::BAD_REQUEST, "bad_query", text)
}

fn not_found(text: &str) -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "not_found", text)
}
