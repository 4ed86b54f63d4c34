//! Conversations that a provider has accepted in a shape which some servers refuse, as records of the ledger.
//!
//! Once a server teaches a rule against the shape, such a conversation stays as it is, whichever process sends it, until
//! the provider refuses it too. A record contains the hash that names the conversation, and which of both it was.

use bytes::Bytes;
use tokio::time::Instant;

use super::{AnswerStoreState, FIRST_VERSION, provider_fact::ServerHash};
use crate::{
    auth::Caller,
    digest::digest_of,
    ledger::{CommitStep, Record, RecordKey, RecordKind, RecordName, Unread, read_by},
};

/// The first byte of every record.
const VERSION: u8 = 1;
const ACCEPTED: u8 = b'a';
const REFUSED: u8 = b'r';

/// The caller of a conversation, and the server that has judged it.
#[derive(Clone, Copy, Debug)]
pub struct ShapeScope {
    /// The caller.
    pub caller: Caller,
    /// The server.
    pub server: ServerHash,
}

/// The latest word of a provider about a conversation in a disputed shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeVerdict {
    /// The provider has accepted it.
    Accepted,
    /// The provider has refused it after it had accepted it.
    Refused,
}

impl ShapeVerdict {
    fn encode(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Accepted => &[VERSION, ACCEPTED],
            Self::Refused => &[VERSION, REFUSED],
        })
    }

    /// Decodes a record. `None` if this version does not know the encoding.
    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, ACCEPTED] => Some(Self::Accepted),
            [VERSION, REFUSED] => Some(Self::Refused),
            _ => None,
        }
    }
}

/// Stores a verdict. Does not wait. A refusal stays.
pub(super) fn store_verdict(store: &AnswerStoreState, scope: ShapeScope, shape: RecordName, verdict: ShapeVerdict) {
    // A record in memory alone would tell nothing that this process does not know.
    if !store.ledger.survives_restart() || !store.callers.is_verified_in_memory(scope.caller) {
        return;
    }
    let (key, expires_at) = (shape_key(scope, shape), store.expires_at());
    let insert = CommitStep::insert_record(key, verdict.encode(), expires_at);
    let replace = (verdict == ShapeVerdict::Refused).then(|| CommitStep::Replace {
        key,
        version: FIRST_VERSION,
        value: verdict.encode(),
        expires_at,
    });
    store
        .write_behind
        .queue_writes(replace.into_iter().chain([insert]).collect());
}

/// Returns the verdicts about these shapes, in their order. Returns none for a caller that is not verified.
pub(super) async fn read_verdicts(
    store: &AnswerStoreState,
    scope: ShapeScope,
    shapes: &[RecordName],
    deadline: Instant,
) -> Result<Vec<Option<ShapeVerdict>>, Unread> {
    let read = async {
        // Only verified callers have records.
        if !store.ledger.survives_restart() || !store.callers.verify(scope.caller, deadline).await? {
            return Ok(vec![None; shapes.len()]);
        }
        let keys = shapes.iter().map(|shape| shape_key(scope, *shape)).collect();
        let records = read_by(&*store.ledger, keys, deadline).await?;
        let decode = |record: Option<Record>| ShapeVerdict::decode(&record?.value);
        Ok(records.into_iter().map(decode).collect())
    };
    store.count_unread(read.await)
}

fn shape_key(scope: ShapeScope, shape: RecordName) -> RecordKey {
    let name = digest_of([&scope.server[..], &shape]);
    RecordKey::new(RecordKind::DisputedShape, scope.caller.principal(), name)
}
