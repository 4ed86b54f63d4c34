//! Conversations that a provider has accepted in a shape which some servers refuse, as records of the ledger.
//!
//! Once a server teaches a rule against the shape, such a conversation stays as it is, whichever process sends it, until
//! the provider refuses it too. A record contains the hash that names the conversation, and which of both it was.

use bytes::Bytes;
use tokio::time::Instant;

use super::{AnswerStoreState, FIRST_VERSION};
use crate::{
    auth::Caller,
    ledger::{CommitStep, Record, RecordKey, RecordKind, RecordName, Unread, read_by},
};

/// The first byte of every record.
const VERSION: u8 = 1;
const ACCEPTED: u8 = b'a';
const REFUSED: u8 = b'r';

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
pub(super) fn store_verdict(store: &AnswerStoreState, caller: Caller, shape: RecordName, verdict: ShapeVerdict) {
    // A record in memory alone would tell nothing that this process does not know.
    if !store.ledger.survives_restart() || !store.callers.is_verified_in_memory(caller) {
        return;
    }
    let (key, expires_at) = (shape_key(caller, shape), store.expires_at());
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
    caller: Caller,
    shapes: &[RecordName],
    deadline: Instant,
) -> Result<Vec<Option<ShapeVerdict>>, Unread> {
    let read = async {
        // Only verified callers have records.
        if !store.ledger.survives_restart() || !store.callers.verify(caller, deadline).await? {
            return Ok(vec![None; shapes.len()]);
        }
        let keys = shapes.iter().map(|shape| shape_key(caller, *shape)).collect();
        let records = read_by(&*store.ledger, keys, deadline).await?;
        let decode = |record: Option<Record>| ShapeVerdict::decode(&record?.value);
        Ok(records.into_iter().map(decode).collect())
    };
    store.count_unread(read.await)
}

fn shape_key(caller: Caller, shape: RecordName) -> RecordKey {
    RecordKey::new(RecordKind::DisputedShape, caller.principal(), shape)
}
