//! What is remembered between requests: pinned results of calls, results that clients brought, appended late-result
//! texts, what answers carried, and what refusals have taught.
//!
//! A memory cache is in front of the ledger. An exchange waits for the ledger until the deadline of its `LedgerBudget`. A
//! record that was not read in time is unknown, and nothing is concluded from it. A record that was not written in time
//! is written in the background.

mod appended_texts;
mod client_results;
mod continuity;
mod disputed_shapes;
mod learned_fact;
mod ledger_budget;
mod object_owners;
mod pinned_results;
mod pinned_row;
mod response_chains;
mod taught_memory;
mod thinking_facts;

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use crate::{
    auth::Caller,
    ledger::{Ledger, RecordKind, RecordOwners, Unread},
    repair::{CallKey, PinnedResult},
    table::{DailyWrites, DecidedTable, Table, TableParts, VerifiedCallers},
    telemetry::Telemetry,
    writer::Writer,
};
use futures_util::future::join_all;

pub use appended_texts::{APPENDED_CALLS_MAX, AppendedText};
pub use client_results::{ClientResultQuery, RecallScope};
pub use continuity::{CarriedValue, ContinuityScope, ContinuityStore, KnownValue, ValueName, ValueState};
pub use disputed_shapes::ShapeVerdict;
pub use learned_fact::{FactKey, KeyedFact, LearnedFact};
pub use ledger_budget::LedgerBudget;
pub use object_owners::{ObjectOwners, ObjectScope};
pub use response_chains::{ChainStore, UnjoinedChain};
pub use taught_memory::{TaughtMemory, UnprovenMends};
pub use thinking_facts::ThinkingFact;

use appended_texts::AppendedTexts;
use client_results::{ResultBlock, client_result_table};
use continuity::CarriedValues;
use disputed_shapes::shape_table;
use learned_fact::{FactRow, fact_table};
use pinned_results::pin_table;
use pinned_row::PinnedRow;
use response_chains::ChainMemory;
use thinking_facts::ThinkingFacts;

/// The time after which an unused row leaves the memory.
const UNUSED_ROW_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The most rows of facts or shapes in memory, of 150 bytes and a little more each.
const MEMORY_ROWS_MAX: u64 = 20_000;

/// The kinds of facts. Nothing is read for a caller without any.
const FACT_KINDS: &[RecordKind] = &[RecordKind::LearnedFact, RecordKind::Thinking];

/// A call and its result.
pub type AssignedResult = (CallKey, PinnedResult);

/// Settings of a [`RecallStore`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecallSettings {
    /// The lifetime of a record.
    pub record_ttl: Duration,
    /// `true` if results that clients bring, and reasoning that answers carried, are written to the ledger too.
    pub stores_client_results: bool,
}

/// The memory of what earlier requests have shown, over the ledger. The handle is cheap to clone.
#[derive(Clone, Debug)]
pub struct RecallStore(Arc<RecallStoreState>);

#[derive(Debug)]
struct RecallStoreState {
    ledger: Arc<dyn Ledger>,
    writer: Writer,
    callers: VerifiedCallers,
    telemetry: Telemetry,
    pinned: DecidedTable<PinnedRow>,
    client_results: Table<ResultBlock>,
    appended: AppendedTexts,
    carried: CarriedValues,
    response_chains: ChainMemory,
    facts: Table<FactRow>,
    taught: TaughtMemory,
    thinking: ThinkingFacts,
    shapes: Table<ShapeVerdict>,
    /// The callers with pinned results, and those with appended texts.
    owners: RecordOwners,
    /// The callers with learned facts.
    fact_owners: RecordOwners,
    /// The callers with carried values, of which there may be many more.
    value_owners: RecordOwners,
    settings: RecallSettings,
}

impl RecallStoreState {
    /// Counts a read that failed or came too late.
    fn count_unread<T>(&self, read: Result<T, Unread>) -> Result<T, Unread> {
        if read.is_err() {
            self.telemetry.record_ledger_timeout("read");
        }
        read
    }
}

impl RecallStore {
    /// Makes a store over the ledger of `parts`.
    pub fn new(parts: &TableParts, callers: VerifiedCallers, telemetry: Telemetry, settings: RecallSettings) -> Self {
        let ledger = Arc::clone(parts.ledger());
        let fact_owners = RecordOwners::new(FACT_KINDS, ledger.changes());
        // Facts and shapes of a caller count together.
        let (fact_writes, ttl) = (DailyWrites::new(), settings.record_ttl);
        let thinking = ThinkingFacts::new(parts, &callers, fact_owners.clone(), ttl);
        let shapes = shape_table(parts, &callers, fact_writes.clone());
        let owners = RecordOwners::new(&[RecordKind::PinnedResult, RecordKind::AppendedText], ledger.changes());
        let value_owners = RecordOwners::new(&[RecordKind::Continuity], ledger.changes());
        let facts = fact_table(parts, &callers, fact_owners.clone(), (ttl, fact_writes));
        Self(Arc::new(RecallStoreState {
            facts,
            taught: TaughtMemory::new(),
            thinking,
            shapes,
            writer: parts.writer().clone(),
            carried: CarriedValues::new(parts, &callers, value_owners.clone(), ttl),
            response_chains: ChainMemory::new(parts, &callers, ttl),
            client_results: client_result_table(parts, &callers, ttl),
            appended: AppendedTexts::new(parts, &callers, owners.clone()),
            pinned: pin_table(parts, &callers, owners.clone(), ttl),
            callers,
            telemetry,
            owners,
            fact_owners,
            value_owners,
            settings,
            ledger,
        }))
    }

    /// Returns access to the items that watched responses stand for.
    pub fn response_chains(&self) -> ChainStore<'_> {
        ChainStore(self)
    }

    /// Returns access to what answers carried and providers want back.
    pub fn continuity(&self) -> ContinuityStore<'_> {
        ContinuityStore(&self.0)
    }

    /// Returns what servers have taught by refusals, as far as it is in memory.
    pub fn taught(&self) -> &TaughtMemory {
        &self.0.taught
    }

    /// Returns `true` if no other process writes the ledger.
    pub fn is_exclusive(&self) -> bool {
        self.0.ledger.is_exclusive()
    }

    /// Returns `true` if the records still exist after a restart of the process.
    pub fn survives_restart(&self) -> bool {
        self.0.ledger.survives_restart()
    }

    /// Returns `true` if the ledger contains pinned results of this caller, or if that is unknown. Does not wait.
    pub fn may_have_results(&self, caller: Caller) -> bool {
        self.0.pinned.may_have(caller.principal())
    }

    /// Follows which callers have records. Until they are read every caller may have some.
    pub async fn follow_owners(self) {
        let all = [&self.0.owners, &self.0.fact_owners, &self.0.value_owners].map(RecordOwners::clone);
        let ledger = Arc::downgrade(&self.0.ledger);
        // The handle is dropped first: this task must not keep the store alive.
        drop(self);
        join_all(all.map(|owners| owners.follow(Weak::clone(&ledger)))).await;
    }
}
