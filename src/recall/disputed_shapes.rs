//! The shapes in which providers have accepted conversations, as records of the ledger: of those that some servers refuse.
//!
//! Once a server teaches a rule against a shape, a conversation that it had accepted stays as it is, whichever process sends
//! it, and one that it has accepted by the rule keeps to the rule for as long as that holds.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use super::{MEMORY_ROWS_MAX, RecallStore, UNUSED_ROW_MAX, learned_fact::FactKey};
use crate::{
    auth::Caller,
    digest_cache::Lifetime,
    ledger::{Record, RecordKind, Unread},
    table::{
        DailyWrites, KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy,
        VerifiedCallers, WritePolicy,
    },
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

impl StoredRow for ShapeVerdict {
    fn encode(&self) -> Option<Bytes> {
        Some(Bytes::from_static(match self {
            Self::Accepted => &[VERSION, ACCEPTED],
            Self::Changed => &[VERSION, CHANGED],
        }))
    }

    fn decode(record: &Record) -> Option<Self> {
        match &*record.value {
            [VERSION, ACCEPTED] => Some(Self::Accepted),
            [VERSION, CHANGED] => Some(Self::Changed),
            _ => None,
        }
    }

    fn is_settled(&self, is_exclusive: bool) -> bool {
        // While the rule holds, a conversation that keeps to it never returns to its old shape. Another process may have
        // changed one that does not.
        *self == Self::Changed || is_exclusive
    }

    fn merged(self, read: Self) -> Self {
        if read == Self::Changed { read } else { self }
    }
}

/// Creates the table of shapes.
pub(super) fn shape_table(parts: &TableParts, callers: &VerifiedCallers, daily: DailyWrites) -> Table<ShapeVerdict> {
    let policy = TablePolicy {
        kind: RecordKind::DisputedShape,
        writes: WritePolicy::Behind,
        memory: MemoryLimit::Rows(MEMORY_ROWS_MAX),
        lifetime: Lifetime::SinceUse(UNUSED_ROW_MAX),
        record_ttl: RECORD_TTL,
        principals: KnownPrincipals::Any,
        caches_absence: true,
        needs_lasting_ledger: true,
        // A verdict that is forgotten would change the conversation.
        restores_lost: true,
        daily: Some(daily),
    };
    Table::new(parts, callers, policy)
}

impl RecallStore {
    /// Returns the shape in which a provider has accepted a conversation, as far as memory knows it.
    pub fn shape_verdict(&self, caller: Caller, shape: FactKey) -> Option<ShapeVerdict> {
        self.0.shapes.get(caller.principal(), shape)
    }

    /// Returns `true` if the ledger cannot know more of a conversation's shape than memory does. Does not wait.
    pub fn is_shape_certain(&self, caller: Caller, shape: FactKey) -> bool {
        self.0.shapes.is_certain(caller.principal(), shape)
    }

    /// Notes the shape in which a provider has accepted a conversation, and stores it if a record of the caller may be
    /// written. Does not wait. In the ledger the client's own shape never replaces the changed one.
    pub fn note_shape(&self, caller: Caller, shape: FactKey, verdict: ShapeVerdict) {
        // Mostly it is known, and a look-up costs a fifth of an insert.
        if self.shape_verdict(caller, shape) == Some(verdict) {
            return;
        }
        let note = |known: Option<&ShapeVerdict>| match verdict {
            _ if known == Some(&verdict) => RowChange::Keep,
            ShapeVerdict::Accepted => RowChange::Store(verdict, RowWrite::Insert),
            ShapeVerdict::Changed => RowChange::Store(verdict, RowWrite::ReplaceFirst),
        };
        self.0.shapes.change(caller.principal(), [(shape, note)]);
    }

    /// Returns the shapes in which providers have accepted these conversations, in their order. Those that memory does not
    /// know for certain are read from the ledger.
    pub async fn load_shapes(
        &self,
        caller: Caller,
        shapes: &[FactKey],
        deadline: Instant,
    ) -> Result<Vec<Option<ShapeVerdict>>, Unread> {
        self.0.shapes.load(caller.principal(), shapes, deadline).await
    }
}
