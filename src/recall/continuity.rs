//! Values that answers carried and providers want back: those noted, and those that bodies were sent with.
//!
//! A noted value may be evicted. A value that was put back is pinned: it leaves memory only when it was not used for a
//! day, since every later request of its conversation contains it. A full table takes no new pin instead.

mod carried_value;
mod pin_table;
mod record_names;
mod value_row;

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use tokio::time::{Instant, timeout_at};

use super::{FIRST_VERSION, RecallStoreState, UNUSED_ROW_MAX};
use crate::{
    auth::Caller,
    clock,
    digest_cache::{DigestCache, Lifetime},
    ledger::{CommitStep, Record, RecordKey, RecordKind, RecordName, RecordState, RecordsStamp, read_all},
    repair::{CallKey, ContinuityKind},
    wire::Format,
};
pub use carried_value::CarriedValue;
use carried_value::VALUE_OVERHEAD_BYTES;
use pin_table::PinTable;
use record_names::{left_out_name, record_key, record_name, scope_name};
use value_row::ValueRow;

/// The limit of the noted values in memory, in bytes.
const NOTED_BYTES: u64 = 32 * 1024 * 1024;
/// The most scopes in memory, of 32 bytes and a little more each.
const SCOPES_MAX: u64 = 20_000;

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

/// A value in memory. The text is `None` if the ledger or the answer has none, which saves another read.
#[derive(Clone)]
struct NotedValue {
    text: Option<Arc<str>>,
    is_left_out: bool,
    /// `false` if the ledger may have a text, but did not answer.
    is_read: bool,
    /// The state of the caller's values in the ledger before the last read of this one. `None` if it was not read.
    stamp: Option<RecordsStamp>,
}

impl NotedValue {
    fn into_known(self) -> Option<KnownValue> {
        let state = if self.is_left_out {
            ValueState::LeftOut
        } else {
            ValueState::Noted
        };
        let value = CarriedValue::Text(self.text?);
        Some(KnownValue { value, state })
    }
}

impl fmt::Debug for NotedValue {
    // Reasoning is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "NotedValue({} bytes)",
            self.text.as_ref().map_or(0, |text| text.len())
        )
    }
}

/// The knowledge of memory about one value.
struct CachedValue {
    value: Option<KnownValue>,
    /// `false` if the ledger may know more.
    is_final: bool,
}

/// The carried values of this process.
#[derive(Debug)]
pub(super) struct CarriedValues {
    noted: DigestCache<RecordName, NotedValue>,
    pinned: Mutex<PinTable>,
    /// Scopes, each with `true` if any body was sent with a value of it.
    scopes: DigestCache<RecordName, bool>,
    /// `true` once a value was noted. In most processes none ever is.
    has_values: AtomicBool,
}

impl CarriedValues {
    pub(super) fn new() -> Self {
        let weigh = |value: &NotedValue| {
            let text = value.text.as_ref().map_or(0, |text| text.len());
            text.saturating_add(VALUE_OVERHEAD_BYTES)
        };
        Self {
            noted: DigestCache::with_byte_limit(NOTED_BYTES, Lifetime::SinceUse(UNUSED_ROW_MAX), weigh),
            pinned: Mutex::default(),
            scopes: DigestCache::new(SCOPES_MAX, Lifetime::SinceUse(UNUSED_ROW_MAX)),
            has_values: AtomicBool::new(false),
        }
    }

    fn pins(&self) -> MutexGuard<'_, PinTable> {
        // Each change leaves a valid table, so a panic elsewhere need not spread.
        self.pinned.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Access to the carried values of a [`RecallStore`].
#[derive(Clone, Copy, Debug)]
pub struct ContinuityStore<'s>(pub(super) &'s RecallStoreState);

impl ContinuityStore<'_> {
    /// Returns `true` if any value was noted in this process.
    pub fn has_values(self) -> bool {
        self.0.carried.has_values.load(Ordering::Relaxed)
    }

    /// Returns `true` if a body may have been sent with a value of this scope, in this process or an earlier one.
    pub async fn may_have_pins(self, scope: ContinuityScope<'_>, deadline: Instant) -> bool {
        // Another process may pin a value at any time. The body of a caller with values is searched for gaps.
        if !self.0.ledger.is_exclusive() {
            return self.state(scope.caller) != RecordState::Absent;
        }
        let record = scope_name(scope);
        if let Some(known) = self.0.carried.scopes.get(&record) {
            return known;
        }
        let look = async {
            let keys = vec![record_key(scope, record)];
            self.read_rows(scope.caller, keys).await
        };
        let Ok(rows) = timeout_at(deadline, look).await else {
            self.0.telemetry.record_ledger_timeout("read");
            return true;
        };
        let Some(rows) = rows else { return true };
        let has_pins = rows.into_iter().flatten().next().is_some();
        // Another request may have pinned a value meanwhile.
        self.0.carried.scopes.get_or_insert_with(&record, || has_pins)
    }

    /// Reads records of a caller. `None` if the ledger fails, or the caller is not known as verified.
    async fn read_rows(self, caller: Caller, keys: Vec<RecordKey>) -> Option<Vec<Option<Record>>> {
        // Only verified callers have records in the ledger. A ledger that fails knows none of them.
        if !self.0.callers.is_verified(caller).await {
            return None;
        }
        let read = read_all(&*self.0.ledger, keys, clock::unix_time()).await;
        if read.is_err() {
            self.0.telemetry.record_ledger_timeout("read");
        }
        read.ok()
    }

    /// Stores that bodies are sent with values of this scope, so that a later process looks for them.
    fn mark_scope(self, scope: ContinuityScope<'_>) {
        let record = scope_name(scope);
        if self.0.carried.scopes.get(&record) == Some(true) {
            return;
        }
        self.0.carried.scopes.insert(&record, true);
        let row = ValueRow {
            value: CarriedValue::Neutral,
            is_pinned: true,
        };
        if self.0.callers.is_verified_in_memory(scope.caller) {
            self.0.write_behind.queue_write(self.insert_step(scope, record, &row));
        }
    }

    /// Stores what an answer carried with a call. `None` stores that it carried nothing.
    ///
    /// The first value of a call stays. Unauthenticated callers are never stored.
    pub fn note_value(self, scope: ContinuityScope<'_>, name: ValueName, text: Option<&str>) {
        if !scope.caller.is_authenticated() {
            return;
        }
        let text: Option<Arc<str>> = text.map(Into::into);
        let record = record_name(scope, name);
        let known = self.0.carried.noted.get(&record);
        if known.as_ref().is_some_and(|known| known.text.is_some()) {
            return;
        }
        let noted = NotedValue {
            text: text.clone(),
            is_left_out: known.as_ref().is_some_and(|known| known.is_left_out),
            is_read: true,
            stamp: known.and_then(|known| known.stamp),
        };
        self.0.carried.noted.insert(&record, noted);
        let Some(text) = text else { return };
        self.0.carried.has_values.store(true, Ordering::Relaxed);
        let row = ValueRow {
            value: CarriedValue::Text(text),
            is_pinned: false,
        };
        if self.may_store(scope, name, &row.value) {
            self.0.write_behind.queue_write(self.insert_step(scope, record, &row));
        }
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
        // Before the read: a change meanwhile needs another one.
        let state = self.state(scope.caller);
        let records: Vec<RecordName> = names.iter().map(|name| record_name(scope, *name)).collect();
        let mut found: Vec<Option<KnownValue>> = Vec::with_capacity(names.len());
        let mut unknown = Vec::new();
        for (index, record) in records.iter().enumerate() {
            let cached = self.cached_value(record, state);
            if !cached.is_final {
                unknown.push((index, *record));
            }
            found.push(cached.value);
        }
        if unknown.is_empty() {
            return found;
        }
        let look = async {
            let values = unknown.iter().map(|(_, record)| *record);
            let marks = unknown.iter().filter_map(|(index, _)| names.get(*index));
            let marks = marks.map(|name| left_out_name(scope, *name));
            let keys = values.chain(marks).map(|record| record_key(scope, record)).collect();
            self.read_rows(scope.caller, keys).await
        };
        // One read for all values that memory does not have, and their marks: the deadline covers it as a whole.
        let Ok(rows) = timeout_at(deadline, look).await else {
            self.0.telemetry.record_ledger_timeout("read");
            return found;
        };
        // Not cached: the ledger may have the values all the same.
        let Some(rows) = rows else { return found };
        let stamp = match state {
            RecordState::Present(stamp) => Some(stamp),
            RecordState::Absent | RecordState::Unknown => None,
        };
        let (rows, marks) = rows.split_at(rows.len().min(unknown.len()));
        for (((index, record), row), mark) in unknown.into_iter().zip(rows).zip(marks) {
            let row = row.as_ref().and_then(|row| ValueRow::decode(&row.value));
            if let Some(slot) = found.get_mut(index) {
                *slot = self.adopt_row(scope.caller, record, (row, mark.is_some()), stamp);
            }
        }
        found
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
        let mut steps = Vec::new();
        for (name, value) in values {
            let record = record_name(scope, *name);
            let is_new = self
                .0
                .carried
                .pins()
                .commit_value(record, scope.caller, value.clone(), clock::now());
            if !is_new || !self.may_store(scope, *name, value) {
                continue;
            }
            let row = ValueRow {
                value: value.clone(),
                is_pinned: true,
            };
            // The noted row is marked, if there is one. Otherwise the insert adds the row.
            steps.push(CommitStep::Replace {
                key: record_key(scope, record),
                version: FIRST_VERSION,
                value: row.encode(),
                expires_at: clock::unix_time() + self.0.settings.record_ttl,
            });
            steps.push(self.insert_step(scope, record, &row));
        }
        self.0.write_behind.queue_writes(steps);
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
        let mut marks = Vec::new();
        for name in names {
            let record = record_name(scope, *name);
            let known = self.0.carried.noted.get(&record);
            if known.as_ref().is_some_and(|known| known.is_left_out) {
                continue;
            }
            let noted = NotedValue {
                is_read: known.as_ref().is_some_and(|known| known.is_read),
                stamp: known.as_ref().and_then(|known| known.stamp),
                text: known.and_then(|known| known.text),
                is_left_out: true,
            };
            // A mark of its own, because the value may still serve a refusal. Where the value may not be stored, no
            // later process can find it, so it needs no mark.
            let may_have_value = noted.text.is_some() || !noted.is_read;
            let any_text = CarriedValue::Text(Arc::from(""));
            if may_have_value && self.may_store(scope, *name, &any_text) {
                let row = ValueRow {
                    value: CarriedValue::Neutral,
                    is_pinned: false,
                };
                marks.push(self.insert_step(scope, left_out_name(scope, *name), &row));
            }
            self.0.carried.noted.insert(&record, noted);
        }
        self.0.write_behind.queue_writes(marks);
    }

    /// Returns the state of a caller's values in the ledger.
    fn state(self, caller: Caller) -> RecordState {
        self.0.value_owners.state_of(RecordKind::Continuity, caller.principal())
    }

    /// Returns the value in memory. `state` is the present state of the caller's values in the ledger.
    fn cached_value(self, record: &RecordName, state: RecordState) -> CachedValue {
        if let Some(value) = self.0.carried.pins().find_value(record, clock::now()) {
            let state = ValueState::Pinned;
            return CachedValue {
                value: Some(KnownValue { value, state }),
                is_final: true,
            };
        }
        let noted = self.0.carried.noted.get(record);
        let is_read = match (self.0.ledger.is_exclusive(), state) {
            (true, _) => noted.as_ref().is_some_and(|noted| noted.is_read),
            (false, RecordState::Absent) => true,
            (false, RecordState::Present(stamp)) => noted.as_ref().is_some_and(|noted| noted.stamp == Some(stamp)),
            (false, RecordState::Unknown) => false,
        };
        CachedValue {
            value: noted.and_then(NotedValue::into_known),
            is_final: is_read,
        }
    }

    /// Caches what the ledger has, and returns it.
    ///
    /// `is_marked` is `true` if the ledger says that the value was left out. `stamp` is the state before the read.
    fn adopt_row(
        self,
        caller: Caller,
        record: RecordName,
        (row, is_marked): (Option<ValueRow>, bool),
        stamp: Option<RecordsStamp>,
    ) -> Option<KnownValue> {
        let known = self.0.carried.noted.get(&record);
        // A request may have been accepted without the value while the ledger did not answer.
        let is_left_out = is_marked || known.as_ref().is_some_and(|noted| noted.is_left_out);
        let text = match row {
            Some(ValueRow { value, is_pinned: true }) => {
                // Even without room in the table the value must be sent: earlier requests contained it.
                self.0
                    .carried
                    .pins()
                    .commit_value(record, caller, value.clone(), clock::now());
                return Some(KnownValue {
                    value,
                    state: ValueState::Pinned,
                });
            }
            Some(ValueRow {
                value: CarriedValue::Text(text),
                ..
            }) => Some(text),
            // Not every value may be stored: this process may have noted one that the ledger lacks.
            _ => known.and_then(|noted| noted.text),
        };
        let noted = NotedValue {
            text,
            is_left_out,
            is_read: true,
            stamp,
        };
        self.0.carried.noted.insert(&record, noted.clone());
        noted.into_known()
    }

    /// Returns `true` if a value may be written to the ledger.
    fn may_store(self, scope: ContinuityScope<'_>, (kind, _): ValueName, value: &CarriedValue) -> bool {
        // Reasoning is conversation content, which reaches the ledger only if the operator allows that.
        let is_content = kind.is_content() && *value != CarriedValue::Neutral;
        (!is_content || self.0.settings.stores_client_results) && self.0.callers.is_verified_in_memory(scope.caller)
    }

    fn insert_step(self, scope: ContinuityScope<'_>, record: RecordName, row: &ValueRow) -> CommitStep {
        self.0
            .value_owners
            .note(RecordKind::Continuity, scope.caller.principal());
        CommitStep::insert_record(record_key(scope, record), row.encode(), self.0.expires_at())
    }
}
