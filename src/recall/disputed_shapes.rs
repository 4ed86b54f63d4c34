//! The shapes in which providers have accepted conversations, as records of the ledger: of those that some servers refuse.
//!
//! Once a server teaches a rule against a shape, a conversation that it had accepted stays as it is, whichever process sends
//! it, and one that it has accepted by the rule keeps to the rule for as long as that holds.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{FIRST_VERSION, RecallStore, learned_fact::FactKey};
use crate::{
    auth::Caller,
    clock,
    ledger::{CommitStep, Record, RecordKey, RecordKind, Unread, read_by},
};

/// The first byte of every record.
const VERSION: u8 = 1;
/// The lifetime of a record: 30 days. Longer than that of a rule, which would change the conversation otherwise.
const RECORD_TTL: Duration = Duration::from_secs(30 * 24 * 60 * 60);
const ACCEPTED: u8 = b'a';
const CHANGED: u8 = b'c';

/// The shape in which a provider has accepted a conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShapeVerdict {
    /// That in which the client wrote it.
    Accepted,
    /// Another one, by a rule against the client's.
    Changed,
}

impl ShapeVerdict {
    fn encode(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Accepted => &[VERSION, ACCEPTED],
            Self::Changed => &[VERSION, CHANGED],
        })
    }

    /// Decodes a record. `None` if this version does not know the encoding.
    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, ACCEPTED] => Some(Self::Accepted),
            [VERSION, CHANGED] => Some(Self::Changed),
            _ => None,
        }
    }
}

impl RecallStore {
    /// Stores the shape in which a provider has accepted a conversation, if a record of the caller may be written. Does not
    /// wait. The client's own shape never replaces the changed one.
    pub fn store_shape_verdict(&self, caller: Caller, shape: FactKey, verdict: ShapeVerdict) {
        if !self.0.may_write(caller) || !self.0.fact_writes.count_one(caller.principal()) {
            return;
        }
        let (key, expires_at) = (shape_key(caller, shape), clock::unix_time() + RECORD_TTL);
        let insert = CommitStep::insert_record(key, verdict.encode(), expires_at);
        let replace = (verdict == ShapeVerdict::Changed).then(|| CommitStep::Replace {
            key,
            version: FIRST_VERSION,
            value: verdict.encode(),
            expires_at,
        });
        self.0
            .write_behind
            .queue_writes(replace.into_iter().chain([insert]).collect());
    }

    /// Returns the shapes in which providers have accepted these conversations, in their order. For a caller that is not
    /// verified there are none.
    pub async fn read_shape_verdicts(
        &self,
        caller: Caller,
        shapes: &[FactKey],
        deadline: Instant,
    ) -> Result<Vec<Option<ShapeVerdict>>, Unread> {
        let read = async {
            // Only verified callers have records.
            if !self.0.ledger.survives_restart() || !self.0.callers.verify(caller, deadline).await? {
                return Ok(vec![None; shapes.len()]);
            }
            let keys = shapes.iter().map(|shape| shape_key(caller, *shape)).collect();
            let records = read_by(&*self.0.ledger, keys, deadline).await?;
            let decode = |record: Option<Record>| ShapeVerdict::decode(&record?.value);
            Ok(records.into_iter().map(decode).collect())
        };
        self.0.count_unread(read.await)
    }
}

fn shape_key(caller: Caller, shape: FactKey) -> RecordKey {
    RecordKey::new(RecordKind::DisputedShape, caller.principal(), shape)
}
