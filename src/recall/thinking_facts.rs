//! Facts about blocks of thinking, in the ledger: refused as foreign, or accepted.
//!
//! They outlive a restart, so that a session goes on with the bytes that its provider has accepted. The records contain
//! hashes only.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{RecallStore, UNUSED_ROW_MAX, learned_fact::FactKey};
use crate::{
    auth::Caller,
    digest_cache::Lifetime,
    ledger::{Record, RecordKind, RecordOwners},
    table::{
        KnownPrincipals, MemoryLimit, RowChange, RowWrite, StoredRow, Table, TableParts, TablePolicy, VerifiedCallers,
        WritePolicy,
    },
};

/// The first byte of every record.
const VERSION: u8 = 1;
const REFUSED: u8 = b'r';
const ACCEPTED: u8 = b'a';
/// The most blocks in memory, of 150 bytes and a little more each. Each success of a session with thinking adds one.
const BLOCKS_MAX: u64 = 60_000;

/// A fact about a block of thinking at one upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThinkingFact {
    /// The provider refused it as foreign, and accepted the body without it.
    Refused,
    /// The provider accepted a body in which it was the last thinking. The thinking up to it is accepted, or was removed.
    Accepted,
}

impl StoredRow for ThinkingFact {
    fn encode(&self) -> Option<Bytes> {
        Some(Bytes::from_static(match self {
            Self::Refused => &[VERSION, REFUSED],
            Self::Accepted => &[VERSION, ACCEPTED],
        }))
    }

    fn decode(record: &Record) -> Option<Self> {
        match &*record.value {
            [VERSION, REFUSED] => Some(Self::Refused),
            [VERSION, ACCEPTED] => Some(Self::Accepted),
            // A record of another version costs one more refusal.
            _ => None,
        }
    }

    fn is_settled(&self, _is_exclusive: bool) -> bool {
        // Another process may have had it refused.
        *self == Self::Refused
    }

    fn merged(self, read: Self) -> Self {
        if read == Self::Refused { read } else { self }
    }
}

/// The facts of this process.
#[derive(Debug)]
pub(super) struct ThinkingFacts {
    facts: Table<ThinkingFact>,
    /// `true` once a block was refused. In most processes none ever is.
    has_refused: AtomicBool,
}

impl ThinkingFacts {
    pub(super) fn new(
        parts: &TableParts,
        callers: &VerifiedCallers,
        owners: RecordOwners,
        record_ttl: Duration,
    ) -> Self {
        let policy = TablePolicy {
            kind: RecordKind::Thinking,
            writes: WritePolicy::Behind,
            memory: MemoryLimit::Rows(BLOCKS_MAX),
            lifetime: Lifetime::SinceUse(UNUSED_ROW_MAX),
            record_ttl,
            principals: KnownPrincipals::Announced(owners),
            caches_absence: true,
            needs_lasting_ledger: true,
            restores_lost: false,
            // Only sessions of which a block was refused store any.
            daily: None,
        };
        Self {
            facts: Table::new(parts, callers, policy),
            has_refused: AtomicBool::new(false),
        }
    }
}

impl RecallStore {
    /// Returns `true` if any refused block of thinking is known. In most processes none ever is.
    pub fn knows_refused_thinking(&self) -> bool {
        self.0.thinking.has_refused.load(Ordering::Relaxed)
    }

    /// Returns `true` if a block of a caller's thinking was refused as foreign, so that every body goes without it.
    pub fn is_refused_thinking(&self, caller: Caller, block: FactKey) -> bool {
        let fact = || self.0.thinking.facts.get(caller.principal(), block);
        self.knows_refused_thinking() && fact() == Some(ThinkingFact::Refused)
    }

    /// Returns `true` if an accepted body had this block as its last thinking.
    pub fn is_accepted_thinking(&self, caller: Caller, block: FactKey) -> bool {
        self.0.thinking.facts.get(caller.principal(), block) == Some(ThinkingFact::Accepted)
    }

    /// Returns `true` if the caller may have facts in the ledger. Does not wait.
    pub fn may_have_thinking_facts(&self, caller: Caller) -> bool {
        self.0.thinking.facts.may_have(caller.principal())
    }

    /// Returns `true` if the caller is known to have had facts. Does not wait.
    pub fn has_thinking_facts(&self, caller: Caller) -> bool {
        self.0.thinking.facts.has_known(caller.principal())
    }

    /// Notes facts about blocks of thinking, and with `is_stored` writes them. Does not wait. A refused block stays refused,
    /// and in the ledger the first fact about a block stays.
    pub fn note_thinking_facts(
        &self,
        caller: Caller,
        facts: impl IntoIterator<Item = (FactKey, ThinkingFact)>,
        is_stored: bool,
    ) {
        let mut has_refused = false;
        // Most accepted blocks are known, and a look-up costs a fifth of an insert.
        let is_news = |(block, fact): &(FactKey, ThinkingFact)| {
            *fact == ThinkingFact::Refused || !self.is_accepted_thinking(caller, *block)
        };
        let facts = facts
            .into_iter()
            .filter(is_news)
            .inspect(|(_, fact)| has_refused |= *fact == ThinkingFact::Refused);
        let changes = facts.map(|(block, fact)| {
            let note = move |known: Option<&ThinkingFact>| match known {
                Some(ThinkingFact::Refused) => RowChange::Keep,
                Some(known) if *known == fact => RowChange::Keep,
                _ if is_stored => RowChange::Store(fact, RowWrite::Insert),
                _ => RowChange::Remember(fact),
            };
            (block, note)
        });
        self.0.thinking.facts.change(caller.principal(), changes);
        if has_refused {
            self.0.thinking.has_refused.store(true, Ordering::Relaxed);
        }
    }

    /// Loads what the ledger knows of these blocks into memory, as far as memory does not know it for certain.
    ///
    /// A fact that cannot be read in time costs one more refusal.
    pub async fn load_thinking_facts(&self, caller: Caller, blocks: &[FactKey], deadline: Instant) {
        let facts = self.0.thinking.facts.load(caller.principal(), blocks, deadline).await;
        let facts = facts.unwrap_or_default();
        if facts.contains(&Some(ThinkingFact::Refused)) {
            self.0.thinking.has_refused.store(true, Ordering::Relaxed);
        }
    }
}
