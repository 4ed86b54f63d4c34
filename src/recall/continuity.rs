//! Values that answers carried and providers want back: those noted, and those that bodies were sent with.
//!
//! A noted value may be evicted. A value that was put back is pinned: it leaves memory only when it was not used for a
//! day, since every later request of its conversation contains it. A full table takes no new pin instead.

mod carried_value;
mod pin_table;
mod record_names;
mod value_row;

use std::{
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::{RecallStoreState, UNUSED_ROW_MAX};
use crate::{
    auth::Caller,
    clock,
    digest_cache::Lifetime,
    ledger::{RecordKind, RecordName, RecordOwners},
    repair::{CallKey, ContinuityKind},
    table::{
        KnownPrincipals, MemoryLimit, RowChange, RowWrite, Table, TableParts, TablePolicy, VerifiedCallers, WritePolicy,
    },
    wire::Format,
};
pub use carried_value::CarriedValue;
use pin_table::PinTable;
use record_names::{left_out_name, record_name, scope_name};
use value_row::ValueRow;

/// The limit of the noted values and marks in memory, in bytes.
const NOTED_BYTES: u64 = 32 * 1024 * 1024;

/// The owner of carried values. Nothing else reaches them: another model or organisation could not read them.
#[derive(Clone, Copy, Debug)]
pub struct ContinuityScope<'s> {
    /// The caller.
    pub caller: Caller,
    /// The format.
    pub format: Format,
    /// The name of the upstream.
    pub upstream: &'s str,
    /// The model, as the request names it.
    pub model: &'s str,
    /// The organisation, or the profile if it is not known. Empty if the client's own credential is sent.
    pub organisation: &'s str,
}

/// The name of a carried value within its scope.
pub type ValueName = (ContinuityKind, CallKey);

/// A value that is known for a gap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnownValue {
    /// The value.
    pub value: CarriedValue,
    /// The history of the value.
    pub state: ValueState,
}

/// The history of a carried value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueState {
    /// An answer carried it.
    Noted,
    /// A provider has accepted a request without it.
    LeftOut,
    /// A request was sent with it.
    Pinned,
}

/// The carried values of this process.
#[derive(Debug)]
pub(super) struct CarriedValues {
    /// Values that answers carried, marks of those that were left out, and marks of scopes.
    rows: Table<ValueRow>,
    pinned: Mutex<PinTable>,
    /// `true` once a value was noted. In most processes none ever is.
    has_values: AtomicBool,
}

impl CarriedValues {
    pub(super) fn new(
        parts: &TableParts,
        callers: &VerifiedCallers,
        owners: RecordOwners,
        record_ttl: Duration,
    ) -> Self {
        let policy = TablePolicy {
            kind: RecordKind::Continuity,
            writes: WritePolicy::Behind,
            memory: MemoryLimit::Bytes(NOTED_BYTES),
            lifetime: Lifetime::SinceUse(UNUSED_ROW_MAX),
            record_ttl,
            principals: KnownPrincipals::Announced(owners),
            caches_absence: true,
            needs_lasting_ledger: false,
            restores_lost: false,
            // The ledger's own limit of a caller's records bounds them.
            daily: None,
        };
        Self {
            rows: Table::new(parts, callers, policy),
            pinned: Mutex::default(),
            has_values: AtomicBool::new(false),
        }
    }

    fn pins(&self) -> MutexGuard<'_, PinTable> {
        // Each change leaves a valid table, so a panic elsewhere need not spread.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Access to the carried values of a [`RecallStore`](super::RecallStore).
#[derive(Clone, Copy, Debug)]
pub struct ContinuityStore<'s>(pub(super) &'s RecallStoreState);

impl ContinuityStore<'_> {
    /// Returns `true` if any value was noted in this process.
    pub fn has_values(self) -> bool {
        self.0.carried.has_values.load(Ordering::Relaxed)
    }

    /// Returns `true` if a body may have been sent with a value of this scope, in this process or an earlier one.
    pub async fn may_have_pins(self, scope: ContinuityScope<'_>, deadline: Instant) -> bool {
        let rows = &self.0.carried.rows;
        // Another process may pin a value at any time. The body of a caller with values is searched for gaps.
        if !self.0.ledger.is_exclusive() {
            return rows.may_have(scope.caller.principal());
        }
        let found = rows
            .load(scope.caller.principal(), &[scope_name(scope)], deadline)
            .await;
        // If that is not known, the body is searched.
        !found.is_ok_and(|rows| rows.contains(&None))
    }

    /// Stores that bodies are sent with values of this scope, so that a later process looks for them.
    fn mark_scope(self, scope: ContinuityScope<'_>) {
        let mark = |known: Option<&ValueRow>| match known {
            Some(_) => RowChange::Keep,
            None => RowChange::Store(ValueRow::pinned(CarriedValue::Neutral), RowWrite::Insert),
        };
        self.change(scope, [(scope_name(scope), mark)]);
    }

    /// Stores what an answer carried with a call. `None` stores that it carried nothing.
    ///
    /// The first value of a call stays. Unauthenticated callers are never stored.
    pub fn note_value(self, scope: ContinuityScope<'_>, name: ValueName, text: Option<&str>) {
        if !scope.caller.is_authenticated() {
            return;
        }
        let value = text.map(|text| CarriedValue::Text(text.into()));
        if value.is_some() {
            self.0.carried.has_values.store(true, Ordering::Relaxed);
        }
        let note = |known: Option<&ValueRow>| match (known, value) {
            (Some(ValueRow::Value { .. }), _) => RowChange::Keep,
            (_, None) => RowChange::Remember(ValueRow::Nothing),
            (_, Some(value)) if self.may_store(name, &value) => {
                RowChange::Store(ValueRow::noted(value), RowWrite::Insert)
            }
            (_, Some(value)) => RowChange::Remember(ValueRow::noted(value)),
        };
        self.change(scope, [(record_name(scope, name), note)]);
        if !self.0.ledger.is_exclusive() {
            return;
        }
        // A call that has just come was in no request without its value, so that its mark need not be read. Another process
        // could set it unseen.
        let no_mark = |known: Option<&ValueRow>| match known {
            Some(_) => RowChange::Keep,
            None => RowChange::Remember(ValueRow::Nothing),
        };
        self.change(scope, [(left_out_name(scope, name), no_mark)]);
    }

    /// Returns what is known for these calls, in their order: from memory, then from the ledger until `deadline`.
    ///
    /// Of a ledger that other processes share, memory knows a value for certain if it is pinned, or as long as no other
    /// process has changed one of the caller's.
    pub async fn find_values(
        self,
        scope: ContinuityScope<'_>,
        names: &[ValueName],
        deadline: Instant,
    ) -> Vec<Option<KnownValue>> {
        if !scope.caller.is_authenticated() {
            return vec![None; names.len()];
        }
        let mut found = self.pinned_values(scope, names);
        let unpinned = names.iter().zip(&found).filter(|(_, found)| found.is_none());
        let unpinned: Vec<ValueName> = unpinned.map(|(name, _)| *name).collect();
        if unpinned.is_empty() {
            return found;
        }
        // One read for all values that memory does not know, and their marks: the deadline covers it as a whole.
        let records = unpinned.iter().map(|name| record_name(scope, *name));
        let marks = unpinned.iter().map(|name| left_out_name(scope, *name));
        let records: Vec<RecordName> = records.chain(marks).collect();
        let (rows, principal) = (&self.0.carried.rows, scope.caller.principal());
        // What cannot be read in time is as memory knows it.
        let loaded = rows.load(principal, &records, deadline).await;
        let loaded = loaded.unwrap_or_else(|_| records.iter().map(|record| rows.get(principal, *record)).collect());
        let (values, marks) = loaded.split_at(unpinned.len());
        let mut known = unpinned.iter().zip(values).zip(marks).map(|((name, row), mark)| {
            let is_left_out = matches!(mark, Some(ValueRow::Value { .. }));
            self.known_value(scope, *name, row.clone(), is_left_out)
        });
        for value in found.iter_mut().filter(|value| value.is_none()) {
            *value = known.next().flatten();
        }
        found
    }

    /// Returns the values that requests of this process were sent with.
    fn pinned_values(self, scope: ContinuityScope<'_>, names: &[ValueName]) -> Vec<Option<KnownValue>> {
        let (mut pins, now) = (self.0.carried.pins(), clock::now());
        let pinned = |name: &ValueName| {
            let (value, state) = (pins.find_value(&record_name(scope, *name), now)?, ValueState::Pinned);
            Some(KnownValue { value, state })
        };
        names.iter().map(pinned).collect()
    }

    /// Returns what a row says about a value. One that another process has pinned is pinned here too.
    fn known_value(
        self,
        scope: ContinuityScope<'_>,
        name: ValueName,
        row: Option<ValueRow>,
        is_left_out: bool,
    ) -> Option<KnownValue> {
        let ValueRow::Value { value, is_pinned } = row? else {
            return None;
        };
        if is_pinned {
            // Even without room in the table the value must be sent: earlier requests contained it.
            let (record, now) = (record_name(scope, name), clock::now());
            self.0
                .carried
                .pins()
                .commit_value(record, scope.caller, value.clone(), now);
        }
        let state = match (is_pinned, is_left_out) {
            (true, _) => ValueState::Pinned,
            (false, true) => ValueState::LeftOut,
            (false, false) => ValueState::Noted,
        };
        Some(KnownValue { value, state })
    }

    /// Pins values before they are sent. Returns the value that the body must contain, in the order of `values`.
    ///
    /// An earlier pin of a call stays. An entry is `None` if the table is full: that value must not be sent.
    pub fn pin_values(
        self,
        scope: ContinuityScope<'_>,
        values: &[(ValueName, CarriedValue)],
    ) -> Vec<Option<CarriedValue>> {
        let now = clock::now();
        let mut pins = self.0.carried.pins();
        let pin = |(name, value): &(ValueName, CarriedValue)| {
            pins.pin_value(record_name(scope, *name), scope.caller, value.clone(), now)
        };
        values.iter().map(pin).collect()
    }

    /// Makes pins permanent: a provider has accepted a request with these values.
    pub fn commit_values(self, scope: ContinuityScope<'_>, values: &[(ValueName, CarriedValue)]) {
        if !values.is_empty() {
            self.mark_scope(scope);
        }
        let is_new = |(name, value): &&(ValueName, CarriedValue)| {
            let (record, now) = (record_name(scope, *name), clock::now());
            let mut pins = self.0.carried.pins();
            pins.commit_value(record, scope.caller, value.clone(), now) && self.may_store(*name, value)
        };
        let pin = |(name, value): &(ValueName, CarriedValue)| {
            let row = ValueRow::pinned(value.clone());
            // The noted row is marked, if there is one. Otherwise the insert adds the row.
            let pin = |_: Option<&ValueRow>| RowChange::Store(row, RowWrite::ReplaceFirst);
            (record_name(scope, *name), pin)
        };
        self.change(scope, values.iter().filter(is_new).map(pin).collect::<Vec<_>>());
    }

    /// Removes pins that no provider has accepted. A pin that another request has committed stays.
    pub fn roll_back_values(self, scope: ContinuityScope<'_>, values: &[(ValueName, CarriedValue)]) {
        let mut pins = self.0.carried.pins();
        for (name, _) in values {
            pins.roll_back_value(&record_name(scope, *name));
        }
    }

    /// Stores that a provider has accepted a request without these values: later requests leave them out too.
    pub fn leave_out(self, scope: ContinuityScope<'_>, names: &[ValueName]) {
        if !scope.caller.is_authenticated() {
            return;
        }
        let rows = &self.0.carried.rows;
        let marks = names.iter().map(|name| {
            // A mark of its own, because the value may still serve a refusal. Where the value may not be stored, no later
            // process can find it, so it needs no mark.
            let (principal, record) = (scope.caller.principal(), record_name(scope, *name));
            let may_have_value = match rows.get(principal, record) {
                Some(row) => row != ValueRow::Nothing,
                None => !rows.is_certain(principal, record),
            };
            let is_stored = may_have_value && self.may_store(*name, &CarriedValue::Text("".into()));
            let mark = move |known: Option<&ValueRow>| match known {
                Some(ValueRow::Value { .. }) => RowChange::Keep,
                _ if is_stored => RowChange::Store(ValueRow::noted(CarriedValue::Neutral), RowWrite::Insert),
                _ => RowChange::Remember(ValueRow::noted(CarriedValue::Neutral)),
            };
            (left_out_name(scope, *name), mark)
        });
        self.change(scope, marks.collect::<Vec<_>>());
    }

    /// Changes rows of a scope, in memory and in the ledger.
    fn change<C: FnOnce(Option<&ValueRow>) -> RowChange<ValueRow>>(
        self,
        scope: ContinuityScope<'_>,
        changes: impl IntoIterator<Item = (RecordName, C)>,
    ) {
        self.0.carried.rows.change(scope.caller.principal(), changes);
    }

    /// Returns `true` if the operator allows that a value is written to the ledger.
    fn may_store(self, (kind, _): ValueName, value: &CarriedValue) -> bool {
        // Reasoning is conversation content, which reaches the ledger only if the operator allows that.
        let is_content = kind.is_content() && *value != CarriedValue::Neutral;
        !is_content || self.0.settings.stores_client_results
    }
}
