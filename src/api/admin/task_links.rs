//! `/admin/v1/tasks/links`: operators make and revoke links to the task page of one person.

use std::{net::SocketAddr, time::Duration};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{
    AdminState,
    request::{AdminRequest, AdminResponse, not_found, read_ledger, shown},
};
use crate::{
    api::{Problem, ProblemCode, json::json_response},
    auth::{Caller, Principal, principal::USER_BYTES_MAX},
    clock,
    late::{LINK_TTL_MAX, TaskLink},
};

/// The person whose tasks a link opens. Without a client it is the only caller of `principals.mode = "single"`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct TaskLinkRequest {
    /// The name of a client token
    client: Option<String>,
    /// The user within the client, as its requests name it
    #[schema(min_length = 1, max_length = 256)]
    user: Option<String>,
    /// The lifetime of the link, from 1 minute to 1 hour
    #[schema(pattern = "^([1-9]m|[1-5][0-9]m|60m|1h)$", default = "1h")]
    ttl: Option<String>,
}

/// A new link.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct TaskLinkView {
    /// The id by which it is revoked
    link: String,
    /// The address of the page, with the secret of the link after `#`
    url: String,
    /// The time from which it opens nothing, in seconds since 1970
    expires_at: u64,
}

/// Makes a link to the task page of one person
///
/// It may report the outcome of calls that nobody knows, which the links of API keys may not.
#[utoipa::path(post, path = "/admin/v1/tasks/links", tag = "operate", request_body = TaskLinkRequest, responses(
    (status = 201, description = "the link", body = TaskLinkView),
))]
pub(super) async fn make_task_link(mut asked: AdminRequest) -> AdminResponse {
    let request: TaskLinkRequest = asked.read_json().await?;
    let parts = &asked.parts;
    if !parts.late.tasks().has_page() {
        return Err(not_found("the task page is off: set ledger.task_page = true"));
    }
    let ttl = request.ttl.as_deref().map_or(Some(LINK_TTL_MAX), read_ttl);
    let ttl = ttl.ok_or_else(|| {
        let text = "ttl must be a duration from \"1m\" to \"1h\"";
        Problem::new(ProblemCode::BadBody, text)
    })?;
    let owner = find_owner(parts, &request)?;
    let tasks = parts.late.tasks();
    if !tasks.may_have_link(owner) {
        return Err(ProblemCode::SharedClient.into());
    }
    let link = TaskLink {
        owner,
        may_resolve: true,
        expires_at: clock::unix_time() + ttl,
    };
    let made = read_ledger("make a link to the task page", tasks.make_link(link)).await?;
    let made = made.ok_or(ProblemCode::TooManyLinks)?;
    let scheme = if parts.control.has_tls() { "https" } else { "http" };
    let host = parts.control.listen_address().map_or_else(String::new, reachable_host);
    let view = TaskLinkView {
        link: blake3::Hash::from_bytes(made.link).to_hex().to_string(),
        url: format!("{scheme}://{host}/ledger/v1/tasks#{}", made.secret.reveal()),
        expires_at: link.expires_at.as_secs(),
    };
    Ok(json_response(StatusCode::CREATED, &view))
}

/// A revoked link.
#[derive(Debug, Serialize, ToSchema)]
pub(super) struct RevokedTaskLink {
    /// The id
    link: String,
}

/// Revokes a link to the task page, whoever made it
#[utoipa::path(delete, path = "/admin/v1/tasks/links/{link}", tag = "operate",
    params(("link" = String, Path, description = "the id of the link", pattern = "^[0-9a-f]{64}$")), responses(
    (status = 200, description = "the link opens nothing any more", body = RevokedTaskLink),
))]
pub(super) async fn revoke_task_link(request: AdminRequest) -> AdminResponse {
    let unknown = || not_found("no such link: it has expired, or was revoked");
    let link = request.id(0).to_owned();
    let name = blake3::Hash::from_hex(&link).map_err(|_| unknown())?;
    let revoking = request.parts.late.tasks().revoke_link(None, *name.as_bytes());
    if read_ledger("revoke a link to the task page", revoking).await? {
        shown(&RevokedTaskLink { link })
    } else {
        Err(unknown())
    }
}

/// Reads the lifetime of a link.
fn read_ttl(text: &str) -> Option<Duration> {
    if text == "1h" {
        return Some(LINK_TTL_MAX);
    }
    let digits = text.strip_suffix('m')?;
    let minutes: u64 = digits.parse().ok().filter(|_| !digits.starts_with(['+', '0']))?;
    (1..=60).contains(&minutes).then(|| Duration::from_secs(minutes * 60))
}

/// Returns a listener's address as a browser of this machine reaches it.
fn reachable_host(address: SocketAddr) -> String {
    if address.ip().is_unspecified() {
        format!("localhost:{}", address.port())
    } else {
        address.to_string()
    }
}

/// Returns the person of a request.
fn find_owner(parts: &AdminState, request: &TaskLinkRequest) -> Result<Caller, Problem> {
    let key = parts.late.principal_key();
    let account = match &request.client {
        None => Principal::of_all_clients(key),
        Some(name) if parts.control.active_config().clients.contains(name) => Principal::of_token(key, name),
        Some(_) => return Err(not_found("there is no such client: see [client_tokens]")),
    };
    let caller = Caller::of_account(account);
    match &request.user {
        None => Ok(caller),
        Some(user) if (1..=USER_BYTES_MAX).contains(&user.len()) => Ok(caller.with_user(key, user.as_bytes())),
        Some(_) => {
            let text = "user must have 1 to 256 bytes";
            Err(Problem::new(ProblemCode::BadBody, text))
        }
    }
}
