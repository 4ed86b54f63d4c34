//! The request side: collects the client's body, has it repaired, and builds the outgoing request.

mod body_planner;
mod body_reader;
mod body_repair;
mod call_lookup;
mod content_coding;
mod context;
mod dead_response;
mod fact_lookup;
mod outgoing;
mod owner_lookup;
mod pending_pins;
mod planned_body;
mod received_body;
mod repeat_watch;
mod result_plan;
mod thinking_lookup;
mod unedited;

use std::{fmt::Write as _, sync::Arc};

use bytes::Bytes;
use http::{
    HeaderMap, HeaderValue, Method, Request, Uri,
    header::{CONTENT_ENCODING, CONTENT_LENGTH},
    request::Parts,
};
use http_body::Body as _;

pub(super) use call_lookup::{CallLookup, CallMemory};
pub(super) use context::RequestContext;
pub(super) use outgoing::OutgoingRequest;
pub(super) use pending_pins::{CallResults, HeadHold, PendingPins, call_results};
pub(super) use planned_body::{PlannedBody, SentBody};

use super::{
    caller::budget_client,
    client_body::{ClientBody, CollectOutcome},
    data_path::DataPath,
    error::ProxyError,
    exchange_log::ExchangeLog,
    guard::RequestRefusal,
    headers,
    heavy_body::is_heavy_pass,
    late_results::WaitingResults,
};
use crate::{
    auth::Caller,
    conversation::Outline,
    provider::Route,
    proxy::{exchange_route::ExchangeRoute, mends},
    recall::LedgerBudget,
    repair::{Action, Mode, RepairReport},
    server::ClientConnection,
    server::budget::{BodyPass, BudgetClient},
    splice::Segments,
    upstream::BoxedBody,
};
use body_repair::BodyRepair;
use context::ContextBuilder;
use dead_response::DeadIdRemoval;
use outgoing::{add_binding_beta, boxed_client_body, boxed_segments};
use owner_lookup::OwnerLookup;
use planned_body::Payload;

/// Bytes of a body without a history that are read for the objects it names. A longer one is streamed unread.
const OBJECT_BODY_MAX: usize = 1024 * 1024;

/// Turns the client's request into the outgoing request.
pub(super) async fn prepare_request(
    path: &DataPath,
    route: &ExchangeRoute<'_>,
    caller: Caller,
    request: Request<BoxedBody>,
    log: &mut ExchangeLog,
) -> Result<OutgoingRequest, ProxyError> {
    // One budget for all waits: a slow ledger cannot delay the request any further.
    let mut ledger_budget = LedgerBudget::FULL;
    load_late_results(path, caller, &mut ledger_budget, log).await;
    let (parts, body) = request.into_parts();
    let settings = &path.settings;
    // A bad header is refused before the body is read.
    let mode = effective_mode(&parts.headers, route.upstream.mode, settings.trust_mode_header)?;
    let body = ClientBody::new(body, settings.upload_idle_timeout, Arc::clone(&log.bytes_in));
    let client = budget_client(path, caller, &parts.extensions);
    let owners = OwnerLookup {
        path,
        route,
        method: &parts.method,
    };
    // Without a known format or a body there is no history to repair.
    let Some(wire) = route.wire.filter(|_| !body.is_end_stream()) else {
        let builder = ContextBuilder {
            path,
            route,
            headers: &parts.headers,
            caller,
            budget_client: client,
        };
        let (mut context, _) = builder.enter_lane(&[], &Outline::default(), log);
        let (payload, read) = read_or_stream(owners, (caller, client), &parts, body).await?;
        let found = Box::pin(owners.find_objects(caller, &read, &mut ledger_budget));
        let pass = BodyPass::First.if_heavy(is_heavy_pass(read.len()));
        let objects = path.budgets.work.run(client, pass, found).await;
        let objects = objects.map_err(ProxyError::Overloaded)?;
        context.follow_owner(objects, &parts.method);
        let body = Box::new(PlannedBody::from_payload(payload, context));
        return Ok(build_outgoing(parts, route, body));
    };
    (log.event.format, log.event.mode) = (Some(wire.format), Some(mode));
    let repair = BodyRepair {
        path,
        client,
        route,
        headers: &parts.headers,
        wire,
        mode,
        policy: &settings.policy,
        owners,
        dead_ids: DeadIdRemoval {
            path,
            route,
            headers: &parts.headers,
            wire,
            mode,
        },
    };
    let body = repair.run(caller, ledger_budget, body, log).await?;
    log.is_compaction = body.context.is_compaction;
    Ok(build_outgoing(parts, route, body))
}

/// Sets the caller whose late results the answer's head mentions, and loads the results that wait for it.
async fn load_late_results(path: &DataPath, caller: Caller, ledger_budget: &mut LedgerBudget, log: &mut ExchangeLog) {
    log.waiting_results = WaitingResults::of_caller(path, caller);
    if let Some(waiting) = &log.waiting_results {
        waiting.load_in_time(ledger_budget).await;
    }
}

/// Returns the payload of a body without a history, and its bytes if it may name objects of a provider.
async fn read_or_stream(
    owners: OwnerLookup<'_>,
    (caller, client): (Caller, BudgetClient),
    parts: &Parts,
    body: ClientBody,
) -> Result<(Payload, Bytes), ProxyError> {
    let (path, route) = (owners.path, owners.route);
    // Providers whose requests are signed have no such objects.
    if route.pool.needs_body() || !owners.needs_body(caller, &parts.headers) {
        let payload = uninspected_payload(path, route, client, parts, body).await?;
        return Ok((payload, Bytes::new()));
    }
    let limit = path.settings.inspect_bytes_max.min(OBJECT_BODY_MAX);
    let share = path.budgets.memory.open(client, body.claimed_len());
    let collected = body.collect_up_to(limit, share).await;
    Ok(match collected? {
        // Sent once only, as if it had not been read: a second send could repeat its effect.
        CollectOutcome::Whole(body) => (
            Payload::Streamed(Some(boxed_segments(Segments::whole(body.clone())))),
            body,
        ),
        CollectOutcome::TooLarge(body) => (Payload::Streamed(Some(boxed_client_body(body))), Bytes::new()),
    })
}

/// Returns the payload of a body that is not inspected: in memory if a signature needs it, else streamed.
async fn uninspected_payload(
    path: &DataPath,
    route: &ExchangeRoute<'_>,
    client: BudgetClient,
    parts: &Parts,
    body: ClientBody,
) -> Result<Payload, ProxyError> {
    if route.pool.needs_body() {
        let share = path.budgets.memory.open(client, body.claimed_len());
        let collected = body.collect_up_to(path.settings.inspect_bytes_max, share).await;
        // Above the limit a profile that signs cannot send the body (413), but a profile with a key can.
        return Ok(match collected? {
            CollectOutcome::Whole(body) => Payload::InMemory(Segments::whole(body)),
            CollectOutcome::TooLarge(body) => Payload::Streamed(Some(boxed_client_body(body))),
        });
    }
    if body.is_end_stream() && matches!(parts.method, Method::GET | Method::HEAD) {
        // GET and HEAD change nothing at the provider: an empty body in memory allows a retry.
        return Ok(Payload::InMemory(Segments::whole(Bytes::new())));
    }
    // Each piece costs a write upstream, so the server should read large pieces of this body.
    let connection = parts.extensions.get::<ClientConnection>();
    if let Some((_, heads)) = connection.and_then(|connection| connection.framing.as_ref()) {
        heads.mark_streamed();
    }
    Ok(Payload::Streamed(Some(boxed_client_body(body))))
}

/// Builds the outgoing request from its head and body.
fn build_outgoing(mut parts: Parts, route: &Route<'_>, body: Box<PlannedBody>) -> OutgoingRequest {
    if body.needs_binding_beta {
        add_binding_beta(&mut parts.headers);
    }
    if let Some(sent) = &body.sent_body {
        mends::leave_betas_out(&sent.mends, &mut parts.headers);
    }
    // The client's coding no longer describes the body.
    if body.is_decoded {
        parts.headers.remove(CONTENT_ENCODING);
    }
    let claimed = parts.headers.contains_key(CONTENT_LENGTH);
    let mut headers = headers::for_upstream(
        parts.headers,
        route.wire.is_some() || body.context.objects.reads_answer(),
    );
    // Always the length of what is sent: an edit makes the client's wrong. A POST without a body needs a 0.
    let length = body.payload.byte_len();
    let wanted = claimed || matches!(parts.method, Method::POST | Method::PUT | Method::PATCH);
    if let Some(length) = length.filter(|length| *length > 0 || wanted) {
        headers.insert(CONTENT_LENGTH, length.into());
    }
    OutgoingRequest {
        method: parts.method,
        uri: upstream_uri(route),
        headers,
        body,
    }
}

/// Returns the URL that is called at the upstream.
fn upstream_uri(route: &Route<'_>) -> Uri {
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(route.upstream.scheme.clone());
    parts.authority = Some(route.upstream.authority.clone());
    parts.path_and_query = Some(route.target.clone());
    // This cannot fail with all three parts set. The HTTP client would refuse an empty URL.
    Uri::from_parts(parts).unwrap_or_default()
}

/// Returns the effective mode: the header's if it is stricter or trusted, else the route's.
fn effective_mode(headers: &HeaderMap, route: Mode, trusted: bool) -> Result<Mode, ProxyError> {
    let mut values = headers.get_all(headers::MODE).iter();
    let (first, second) = (values.next(), values.next());
    let Some(value) = first else { return Ok(route) };
    // The laxest first.
    let known = [Mode::Observe, Mode::Repair, Mode::Strict];
    let asked = known
        .into_iter()
        .find(|mode| mode.label().as_bytes() == value.as_bytes());
    // A repeated header is refused: another reader could take the other value.
    let Some(asked) = asked.filter(|_| second.is_none()) else {
        return Err(ProxyError::Refused(RequestRefusal::Mode));
    };
    // The operator decides how lax a route may be. A client may only ask for more strictness.
    let rank = |mode: Mode| known.iter().position(|one| *one == mode);
    Ok(if trusted || rank(asked) > rank(route) {
        asked
    } else {
        route
    })
}

/// Returns the value of `x-antiphon-repair`: `none`, or counts of actions such as `moved=1, merged=1`.
pub(super) fn actions_header(report: &RepairReport) -> HeaderValue {
    let mut text = String::new();
    for action in Action::ALL {
        if let Some(count) = report.actions.get(&action).filter(|count| **count > 0) {
            let comma = if text.is_empty() { "" } else { ", " };
            // Writing to a string cannot fail.
            let _ = write!(text, "{comma}{}={count}", action.label());
        }
    }
    if text.is_empty() {
        return HeaderValue::from_static("none");
    }
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static("none"))
}
