//! The operations of the API, and what depends on them alone.

use super::list_query::ListQuery;
use crate::{late::TaskCursor, ledger::RecordName};

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

impl LedgerOperation {
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
