//! The routes of the API: from the head of a request to its operation.

use http::{Method, request::Parts};

use super::{delivery_id::parse_delivery_id, list_query::ListQuery, task_cursor::read_cursor};
use crate::{
    api::{Problem, ProblemCode},
    auth::principal::decode_segment,
    late::TaskCursor,
    ledger::RecordName,
};

/// The prefix of every path of this API.
pub(super) const PATH_PREFIX: &str = "/ledger/v1/";

/// The longest body of a posted result: 8 MiB.
pub const RESULT_BODY_BYTES_MAX: usize = 8 * 1024 * 1024;
/// The longest body of a claim: 1 MiB.
const CLAIM_BODY_BYTES_MAX: usize = 1024 * 1024;
/// The longest body of any other request: 64 KiB.
const OTHER_BODY_BYTES_MAX: usize = 64 * 1024;

/// The operation that a method and path select, with the id from the path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum LedgerOperation {
    /// The `OpenAPI` document.
    Document,
    Result(Vec<u8>),
    Heartbeat(Vec<u8>),
    Withdraw(Vec<u8>),
    /// A request to undo a call, or the report that it was undone.
    Cancel(Vec<u8>),
    Me,
    Lookup,
    Outstanding(ListQuery),
    /// The feed, after the event with this delivery if the client names one.
    Feed(Option<RecordName>),
    Ack(Vec<u8>),
    AckAll,
    Close(Vec<u8>),
    /// A claim of an intent.
    Claim,
    Intent(Vec<u8>),
    IntentHeartbeat(Vec<u8>),
    IntentResult(Vec<u8>),
    IntentCancel(Vec<u8>),
    /// A new link to the task page.
    MakeTaskLink,
    RevokeTaskLink(Vec<u8>),
    ListTasks(TaskCursor),
    AckTask(Vec<u8>),
    ResolveTask(Vec<u8>),
}

/// A method and a path of the API.
pub(super) struct LedgerRoute {
    pub(super) method: Method,
    /// The path after the prefix. A segment in braces is an id.
    pub(super) path: &'static str,
    /// Reads the operation, from the id in the path and from the head.
    read: fn(Vec<u8>, &Parts) -> Result<LedgerOperation, Problem>,
}

/// Every route. The `OpenAPI` document describes exactly these.
pub(super) static ROUTES: [LedgerRoute; 22] = [
    LedgerRoute {
        method: Method::GET,
        path: "openapi.json",
        read: |_, _| Ok(LedgerOperation::Document),
    },
    LedgerRoute {
        method: Method::POST,
        path: "calls/{call_id}/result",
        read: |id, _| Ok(LedgerOperation::Result(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "calls/{call_id}/heartbeat",
        read: |id, _| Ok(LedgerOperation::Heartbeat(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "calls/{call_id}/withdraw",
        read: |id, _| Ok(LedgerOperation::Withdraw(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "calls/{call_id}/cancel",
        read: |id, _| Ok(LedgerOperation::Cancel(id)),
    },
    LedgerRoute {
        method: Method::GET,
        path: "me",
        read: |_, _| Ok(LedgerOperation::Me),
    },
    LedgerRoute {
        method: Method::POST,
        path: "lookup",
        read: |_, _| Ok(LedgerOperation::Lookup),
    },
    LedgerRoute {
        method: Method::GET,
        path: "outstanding",
        read: |_, head| ListQuery::parse(head.uri.query()).map(LedgerOperation::Outstanding),
    },
    LedgerRoute {
        method: Method::GET,
        path: "feed",
        read: |_, head| Ok(LedgerOperation::Feed(read_last_event(head))),
    },
    LedgerRoute {
        method: Method::POST,
        path: "deliveries/{delivery}/ack",
        read: |id, _| Ok(LedgerOperation::Ack(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "deliveries/ack",
        read: |_, _| Ok(LedgerOperation::AckAll),
    },
    LedgerRoute {
        method: Method::POST,
        path: "sessions/{session}/close",
        read: |id, _| Ok(LedgerOperation::Close(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "intents",
        read: |_, _| Ok(LedgerOperation::Claim),
    },
    LedgerRoute {
        method: Method::GET,
        path: "intents/{intent}",
        read: |id, _| Ok(LedgerOperation::Intent(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "intents/{intent}/heartbeat",
        read: |id, _| Ok(LedgerOperation::IntentHeartbeat(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "intents/{intent}/result",
        read: |id, _| Ok(LedgerOperation::IntentResult(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "intents/{intent}/cancel",
        read: |id, _| Ok(LedgerOperation::IntentCancel(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "tasks/links",
        read: |_, _| Ok(LedgerOperation::MakeTaskLink),
    },
    LedgerRoute {
        method: Method::DELETE,
        path: "tasks/links/{link}",
        read: |id, _| Ok(LedgerOperation::RevokeTaskLink(id)),
    },
    LedgerRoute {
        method: Method::GET,
        path: "tasks/list",
        read: |_, head| read_cursor(head.uri.query()).map(LedgerOperation::ListTasks),
    },
    LedgerRoute {
        method: Method::POST,
        path: "tasks/{task}/ack",
        read: |id, _| Ok(LedgerOperation::AckTask(id)),
    },
    LedgerRoute {
        method: Method::POST,
        path: "tasks/{task}/resolve",
        read: |id, _| Ok(LedgerOperation::ResolveTask(id)),
    },
];

impl LedgerOperation {
    /// Reads the operation from the head of a request.
    pub(super) fn from_request(head: &Parts) -> Result<Self, Problem> {
        let path = head.uri.path().strip_prefix(PATH_PREFIX);
        let found = path.and_then(|path| {
            ROUTES
                .iter()
                .find_map(|route| Some((route, match_path(route.path, path)?)))
        });
        let (route, id) = found.ok_or(ProblemCode::NotFound)?;
        // Before the query is read: a wrong method is the first thing to correct.
        if head.method != route.method {
            return Err(Problem::wrong_method(route.method.clone()));
        }
        (route.read)(id, head)
    }

    /// Returns the name of a service's operation. Empty for any other.
    pub(super) const fn label(&self) -> &'static str {
        match self {
            Self::Result(_) => "result",
            Self::Heartbeat(_) => "heartbeat",
            Self::Withdraw(_) => "withdraw",
            Self::Cancel(_) => "cancel",
            _ => "",
        }
    }

    /// Returns `true` if only services may ask for the operation.
    pub(super) const fn is_of_services(&self) -> bool {
        matches!(self, Self::Result(_) | Self::Heartbeat(_) | Self::Withdraw(_))
    }

    /// Returns the id of the call in the path of a service's operation.
    pub(super) fn service_call(&self) -> Option<&[u8]> {
        match self {
            Self::Result(id) | Self::Heartbeat(id) | Self::Withdraw(id) | Self::Cancel(id) => Some(id),
            _ => None,
        }
    }

    /// Returns `true` if the operation is about intents.
    pub(super) const fn is_of_intents(&self) -> bool {
        matches!(
            self,
            Self::Claim | Self::Intent(_) | Self::IntentHeartbeat(_) | Self::IntentResult(_) | Self::IntentCancel(_)
        )
    }

    /// Returns the longest body of the operation, in bytes.
    pub(super) const fn bytes_max(&self) -> usize {
        match self {
            Self::Result(_) | Self::IntentResult(_) => RESULT_BODY_BYTES_MAX,
            Self::Claim => CLAIM_BODY_BYTES_MAX,
            _ => OTHER_BODY_BYTES_MAX,
        }
    }
}

/// Returns `true` for the paths of intents, whose refusals are problem documents.
pub(super) fn is_intent_path(path: &str) -> bool {
    let path = path
        .strip_prefix(PATH_PREFIX)
        .and_then(|path| path.strip_prefix("intents"));
    path.is_some_and(|path| path.is_empty() || path.starts_with('/'))
}

/// Returns the decoded id in a path, or no bytes if the template has none. `None` if the path does not fit.
fn match_path(template: &str, path: &str) -> Option<Vec<u8>> {
    let (mut names, mut segments) = (template.split('/'), path.split('/'));
    let mut id = Vec::new();
    loop {
        match (names.next(), segments.next()) {
            (None, None) => return Some(id),
            (Some(name), Some(segment)) if name.starts_with('{') && !segment.is_empty() => {
                // Decoded bytes, not text: call ids may contain anything.
                id = decode_segment(segment).into_owned();
            }
            (Some(name), Some(segment)) if name == segment => {}
            _ => return None,
        }
    }
}

/// Returns the delivery of the last event that the client has seen, from `Last-Event-ID`.
fn read_last_event(head: &Parts) -> Option<RecordName> {
    parse_delivery_id(head.headers.get("last-event-id")?.as_bytes())
}

#[cfg(test)]
mod tests {
    use http::Request;

    use super::*;

    fn read(method: &Method, path: &str) -> Result<LedgerOperation, Problem> {
        let request = Request::builder().method(method).uri(path).body(()).unwrap();
        LedgerOperation::from_request(&request.into_parts().0)
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
}
