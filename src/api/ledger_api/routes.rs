//! The table of the API: from the head of a request to its operation, and the `OpenAPI` document of all operations.

use std::sync::LazyLock;

use bytes::Bytes;
use http::{
    HeaderValue, Response, StatusCode,
    header::{CACHE_CONTROL, CONTENT_TYPE},
    request::Parts,
};
use http_body_util::{BodyExt, Full};

use super::{
    cancels,
    delivery_id::parse_delivery_id,
    document, intents,
    list_query::ListQuery,
    operation::LedgerOperation,
    owners, services,
    task_cursor::read_cursor,
    tasks::{links, list},
};
use crate::{
    api::{
        ApiBody, Problem, ProblemCode,
        json::write_json,
        problem::codes,
        routes::{GuardRefusal, RouteTable},
    },
    ledger::RecordName,
};

/// The prefix of the paths of intents.
const INTENTS_PATH: &str = "/ledger/v1/intents";
/// Caches may store the document for five minutes: it changes only with the version of the proxy.
const CACHEABLE: HeaderValue = HeaderValue::from_static("public, max-age=300");

/// Reads an operation, from the id in the path and from the head.
type ReadOperation = fn(Vec<u8>, &Parts) -> Result<LedgerOperation, Problem>;

/// The refusals of a tool service's request.
const OF_SERVICES: &[ProblemCode] = codes![
    NotFound,
    Conflict,
    AmbiguousCall,
    Replayed,
    Expired,
    TooLarge,
    Malformed,
    Full,
    Busy,
    Unavailable
];
/// The refusals of a request about a cancel.
const OF_CANCELS: &[ProblemCode] = codes![
    NotFound,
    SharedKey,
    NotUndoable,
    Conflict,
    AmbiguousCall,
    Replayed,
    TooLarge,
    Malformed,
    Full,
    Busy,
    Unavailable
];
/// The refusals of a caller's request that reads.
const OF_READERS: &[ProblemCode] = codes![NotFound, SharedKey, TooLarge, Malformed, Unavailable];
/// The refusals of a feed.
const OF_FEEDS: &[ProblemCode] = codes![NotFound, SharedKey, TooLarge, Malformed, Busy, Unavailable];
/// The refusals of an acknowledgement.
const OF_ACKS: &[ProblemCode] = codes![NotFound, SharedKey, TooLarge, Malformed, Full, Unavailable];
/// The refusals of a claim, or of a read of an intent.
const OF_CLAIMS: &[ProblemCode] = codes![
    InFlight,
    OutcomeUnknown,
    PayloadMismatch,
    TierForbids,
    NoSuchIntent,
    NoDurableLedger,
    SharedKey,
    SeveralPeople,
    NotOnBehalf,
    AmbiguousCall,
    TooLarge,
    Malformed,
    Full
];
/// The refusals of a report of a holder.
const OF_REPORTS: &[ProblemCode] = codes![
    StaleClaim,
    NoSuchIntent,
    NoDurableLedger,
    SharedKey,
    SeveralPeople,
    Conflict,
    Expired,
    TooLarge,
    Malformed,
    Full
];
/// The refusals of a request for a link to the task page.
const OF_TASK_LINKS: &[ProblemCode] = codes![
    NotFound,
    SharedKey,
    SeveralPeople,
    NeedsEncryption,
    TooLarge,
    Malformed,
    Full,
    Unavailable
];
/// The refusals of a request that the task page sends.
const OF_TASKS: &[ProblemCode] = codes![NotFound, NeedsEncryption, Malformed, Full, Unavailable];
/// The refusals of the report of an outcome.
const OF_OUTCOMES: &[ProblemCode] = codes![
    NotFound,
    NeedsEncryption,
    ReadOnlyLink,
    Conflict,
    TooLarge,
    Malformed,
    Full,
    Unavailable
];

/// Returns the refusals of the proxy for a head, whatever its path.
fn head_refusals(_path: &str) -> Vec<GuardRefusal> {
    let refusals = [
        (
            StatusCode::BAD_REQUEST,
            "the path, the host or the length of the body can be read in two ways",
        ),
        (
            StatusCode::FORBIDDEN,
            "the host or the web page's origin is not configured",
        ),
        (StatusCode::EXPECTATION_FAILED, "the expectation is not `100-continue`"),
        (StatusCode::UPGRADE_REQUIRED, "WebSockets are not supported"),
    ];
    refusals.map(|(status, text)| (status, text.to_owned())).to_vec()
}

/// Every operation.
static TABLE: LazyLock<RouteTable<ReadOperation>> = LazyLock::new(|| {
    RouteTable::<ReadOperation>::new(document::without_paths(), head_refusals)
        .with::<__path_show_document>(codes![NotFound], |_, _| Ok(LedgerOperation::Document))
        .with::<services::__path_post_result>(OF_SERVICES, |id, _| Ok(LedgerOperation::Result(id)))
        .with::<services::__path_send_heartbeat>(OF_SERVICES, |id, _| Ok(LedgerOperation::Heartbeat(id)))
        .with::<services::__path_withdraw_result>(OF_SERVICES, |id, _| Ok(LedgerOperation::Withdraw(id)))
        .with::<cancels::__path_request_cancel>(OF_CANCELS, |id, _| Ok(LedgerOperation::Cancel(id)))
        .with::<owners::__path_show_caller>(OF_READERS, |_, _| Ok(LedgerOperation::Me))
        .with::<owners::__path_look_up_results>(OF_READERS, |_, _| Ok(LedgerOperation::Lookup))
        .with::<owners::__path_list_outstanding>(OF_READERS, |_, head| {
            ListQuery::parse(head.uri.query()).map(LedgerOperation::Outstanding)
        })
        .with::<owners::__path_follow_feed>(OF_FEEDS, |_, head| Ok(LedgerOperation::Feed(read_last_event(head))))
        .with::<owners::__path_ack_result>(OF_ACKS, |id, _| Ok(LedgerOperation::Ack(id)))
        .with::<owners::__path_ack_results>(OF_ACKS, |_, _| Ok(LedgerOperation::AckAll))
        .with::<owners::__path_close_session>(OF_READERS, |id, _| Ok(LedgerOperation::Close(id)))
        .with::<intents::__path_claim_intent>(OF_CLAIMS, |_, _| Ok(LedgerOperation::Claim))
        .with::<intents::__path_show_intent>(OF_CLAIMS, |id, _| Ok(LedgerOperation::Intent(id)))
        .with::<intents::__path_send_intent_heartbeat>(OF_REPORTS, |id, _| Ok(LedgerOperation::IntentHeartbeat(id)))
        .with::<intents::__path_post_intent_result>(OF_REPORTS, |id, _| Ok(LedgerOperation::IntentResult(id)))
        .with::<intents::__path_cancel_intent>(OF_REPORTS, |id, _| Ok(LedgerOperation::IntentCancel(id)))
        .with::<links::__path_make_task_link>(OF_TASK_LINKS, |_, _| Ok(LedgerOperation::MakeTaskLink))
        .with::<links::__path_revoke_task_link>(OF_TASK_LINKS, |id, _| Ok(LedgerOperation::RevokeTaskLink(id)))
        .with::<list::__path_list_tasks>(OF_TASKS, |_, head| {
            read_cursor(head.uri.query()).map(LedgerOperation::ListTasks)
        })
        .with::<list::__path_ack_task>(OF_TASKS, |id, _| Ok(LedgerOperation::AckTask(id)))
        .with::<list::__path_resolve_task>(OF_OUTCOMES, |id, _| Ok(LedgerOperation::ResolveTask(id)))
});

/// The document, which never changes while the process runs.
static DOCUMENT: LazyLock<Bytes> =
    LazyLock::new(|| write_json(&document::complete_operations(TABLE.document().clone())).into());

/// Reads the operation from the head of a request.
pub(super) fn find_operation(head: &Parts) -> Result<LedgerOperation, Problem> {
    // Before the query is read: a wrong method is the first thing to correct.
    let (route, mut ids) = TABLE.find(&head.method, head.uri.path())?;
    (route.handler)(ids.pop().unwrap_or_default(), head)
}

/// Checks in a debug build that the document lists the code of a request's problem.
pub(super) fn check_code(head: &Parts, code: ProblemCode) {
    // A release does not look for the row.
    if cfg!(debug_assertions)
        && let Ok((route, _)) = TABLE.find(&head.method, head.uri.path())
    {
        route.check_code(code);
    }
}

/// Returns `true` for the paths of intents, whose refusals have types of their own.
pub(super) fn is_intent_path(path: &str) -> bool {
    let rest = path.strip_prefix(INTENTS_PATH);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Returns this document
#[utoipa::path(get, path = "/ledger/v1/openapi.json", tag = "document", security(()), responses(
    (status = 200, description = "the OpenAPI document", body = serde_json::Value),
))]
pub(super) fn show_document() -> Response<ApiBody> {
    let mut answer = Response::new(Full::new(DOCUMENT.clone()).boxed_unsync());
    let fields = answer.headers_mut();
    fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    fields.insert(CACHE_CONTROL, CACHEABLE);
    answer
}

/// Returns the delivery of the last event that the client has seen, from `Last-Event-ID`.
fn read_last_event(head: &Parts) -> Option<RecordName> {
    parse_delivery_id(head.headers.get("last-event-id")?.as_bytes())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use http::{Method, Request};
    use serde_json::Value;

    use super::*;

    fn read(method: &Method, path: &str) -> Result<LedgerOperation, Problem> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        find_operation(&request.into_parts().0)
    }

    #[test]
    fn a_path_selects_its_operation_and_no_other() {
        let found = read(&Method::POST, "/ledger/v1/calls/a%20b+c/result").unwrap();
        assert_eq!(found, LedgerOperation::Result(b"a b+c".to_vec()));
        for path in [
            "/ledger/v1/calls//result",
            "/ledger/v1/calls/a/b/result",
            "/ledger/v1/calls/a/result/",
            "/ledger/v1/calls/{call_id}/results",
            "/ledger/v1/",
            "/ledger/v2/me",
            "/ledger/v1",
        ] {
            assert_eq!(
                read(&Method::POST, path).unwrap_err().code,
                ProblemCode::NotFound,
                "{path}"
            );
        }
    }

    #[test]
    fn a_wrong_method_is_reported_before_a_wrong_query() {
        let refused = read(&Method::POST, "/ledger/v1/outstanding?limit=0").unwrap_err();
        assert_eq!(refused.code, ProblemCode::WrongMethod);
        let refused = read(&Method::GET, "/ledger/v1/outstanding?limit=0").unwrap_err();
        assert_eq!(refused.code, ProblemCode::Malformed);
    }

    #[test]
    fn every_named_credential_is_a_security_scheme() {
        let document: Value = serde_json::from_slice(&DOCUMENT).unwrap();
        let schemes = document["components"]["securitySchemes"].as_object().unwrap();
        let paths = document["paths"].as_object().unwrap().values();
        let operations = paths.flat_map(|path| path.as_object().unwrap().values());
        let ways = operations
            .chain([&document])
            .filter_map(|place| place["security"].as_array());
        let used: BTreeSet<&String> = ways.flatten().flat_map(|way| way.as_object().unwrap().keys()).collect();
        assert_eq!(used, schemes.keys().collect());
    }
}
