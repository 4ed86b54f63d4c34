//! Facts about blocks of thinking, in the ledger: refused as foreign, or accepted.
//!
//! They outlive a restart, so that a session goes on with the bytes that its provider has accepted. The records contain
//! hashes only.

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};

use super::RecallStore;
use crate::{
    auth::Caller,
    clock,
    ledger::{CommitStep, RecordKey, RecordKind, RecordName, read_all},
};

/// The first byte of every record.
const VERSION: u8 = 1;
const REFUSED: u8 = b'r';
const ACCEPTED: u8 = b'a';

/// A fact about a block of thinking at one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingFact {
    /// The provider refused it as foreign, and accepted the body without it.
    Refused,
    /// The provider accepted a body in which it was the last thinking.
    Accepted,
}

impl ThinkingFact {
    fn encode(self) -> Bytes {
        Bytes::from_static(match self {
            Self::Refused => &[VERSION, REFUSED],
            Self::Accepted => &[VERSION, ACCEPTED],
        })
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        match bytes {
            [VERSION, REFUSED] => Some(Self::Refused),
            [VERSION, ACCEPTED] => Some(Self::Accepted),
            // A record of another version costs one more refusal.
            _ => None,
        }
    }
}

impl RecallStore {
    /// Stores facts about thinking in the background, if a record of the caller may be written. An earlier fact about a
    /// block stays.
    pub fn store_thinking_facts(&self, caller: Caller, facts: Vec<(RecordName, ThinkingFact)>) {
        if !self.0.may_write(caller) {
            return;
        }
        self.0.fact_owners.note(RecordKind::Thinking, caller.principal());
        let expires_at = self.0.expires_at();
        let insert = |(name, fact): (RecordName, ThinkingFact)| {
            CommitStep::insert_record(fact_key(caller, name), fact.encode(), expires_at)
        };
        self.0
            .write_behind
            .queue_writes(facts.into_iter().map(insert).collect());
    }

    /// Returns the facts about these blocks, in their order. `None` if the ledger did not answer.
    pub async fn read_thinking_facts(
        &self,
        caller: Caller,
        names: &[RecordName],
        deadline: Instant,
    ) -> Option<Vec<Option<ThinkingFact>>> {
        let keys = names.iter().map(|name| fact_key(caller, *name)).collect();
        let read = read_all(&*self.0.ledger, keys, clock::unix_time());
        let Ok(Ok(records)) = timeout_at(deadline, read).await else {
            self.0.telemetry.record_ledger_timeout("read");
            return None;
        };
        let decode = |record: Option<crate::ledger::Record>| ThinkingFact::decode(&record?.value);
        let facts: Vec<Option<ThinkingFact>> = records.into_iter().map(decode).collect();
        if facts.iter().any(Option::is_some) {
            // The ledger may not tell who has some.
            self.0.fact_owners.note(RecordKind::Thinking, caller.principal());
        }
        Some(facts)
    }
}

fn fact_key(caller: Caller, name: RecordName) -> RecordKey {
    RecordKey::new(RecordKind::Thinking, caller.principal(), name)
}
