//! The table of values that bodies were sent with. It never evicts a value that is in use.

use std::{collections::HashMap, time::Duration};

use tokio::time::Instant;

use super::carried_value::CarriedValue;
use crate::{auth::Caller, ledger::RecordName, recall::UNUSED_ROW_MAX};

/// The limit of all pinned values, in bytes.
const PINNED_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The limit of one caller's pinned values, in bytes: no caller can fill the table alone.
const CALLER_BYTES_MAX: usize = 16 * 1024 * 1024;
/// The time between two searches for expired values, since each walks the whole table.
const SWEEP_INTERVAL: Duration = Duration::from_secs(60);

/// A value that a body was sent with.
#[derive(Debug)]
struct PinnedValue {
    value: CarriedValue,
    caller: Caller,
    /// `true` if a provider has accepted a request with this value.
    is_committed: bool,
    used_at: Instant,
}

/// The pinned values, within limits.
#[derive(Debug, Default)]
pub(super) struct PinTable {
    values: HashMap<RecordName, PinnedValue>,
    bytes: usize,
    caller_bytes: HashMap<Caller, usize>,
    /// The time of the last search for expired values. `None` before the first one.
    swept_at: Option<Instant>,
}

impl PinTable {
    /// Returns the value of a call, and marks it as used.
    pub(super) fn find_value(&mut self, record: &RecordName, now: Instant) -> Option<CarriedValue> {
        let pinned = self.values.get_mut(record)?;
        pinned.used_at = now;
        Some(pinned.value.clone())
    }

    /// Pins a value, unless the call has one. Returns the value that the call has then; `None` if the table is full.
    pub(super) fn pin_value(
        &mut self,
        record: RecordName,
        caller: Caller,
        value: CarriedValue,
        now: Instant,
    ) -> Option<CarriedValue> {
        if let Some(known) = self.find_value(&record, now) {
            return Some(known);
        }
        self.insert_value(record, caller, value.clone(), now).then_some(value)
    }

    /// Marks the value of a call as accepted. Returns `true` if it was not accepted before.
    pub(super) fn commit_value(
        &mut self,
        record: RecordName,
        caller: Caller,
        value: CarriedValue,
        now: Instant,
    ) -> bool {
        // Another request may have rolled it back meanwhile.
        if !self.values.contains_key(&record) && !self.insert_value(record, caller, value, now) {
            return true;
        }
        let pinned = self.values.get_mut(&record);
        pinned.is_some_and(|pinned| !std::mem::replace(&mut pinned.is_committed, true))
    }

    /// Removes the value of a call, unless it was accepted.
    pub(super) fn roll_back_value(&mut self, record: &RecordName) {
        if self.values.get(record).is_some_and(|pinned| !pinned.is_committed) {
            self.remove_value(record);
        }
    }

    /// Inserts a value. Returns `false` if there is no room.
    fn insert_value(&mut self, record: RecordName, caller: Caller, value: CarriedValue, now: Instant) -> bool {
        let bytes = value.byte_len();
        if !self.has_room(caller, bytes) {
            self.remove_expired(now);
        }
        if !self.has_room(caller, bytes) {
            return false;
        }
        self.bytes = self.bytes.saturating_add(bytes);
        let of_caller = self.caller_bytes.entry(caller).or_default();
        *of_caller = of_caller.saturating_add(bytes);
        let pinned = PinnedValue {
            value,
            caller,
            is_committed: false,
            used_at: now,
        };
        self.values.insert(record, pinned);
        true
    }

    fn has_room(&self, caller: Caller, bytes: usize) -> bool {
        let of_caller = self.caller_bytes.get(&caller).copied().unwrap_or_default();
        self.bytes.saturating_add(bytes) <= PINNED_BYTES_MAX && of_caller.saturating_add(bytes) <= CALLER_BYTES_MAX
    }

    /// Removes the values that were not used for a day. A provider has forgotten such a prefix too.
    fn remove_expired(&mut self, now: Instant) {
        let is_recent = |at: Instant| now.saturating_duration_since(at) < SWEEP_INTERVAL;
        if self.swept_at.is_some_and(is_recent) {
            return;
        }
        self.swept_at = Some(now);
        let is_expired = |pinned: &PinnedValue| now.saturating_duration_since(pinned.used_at) >= UNUSED_ROW_MAX;
        let expired = self.values.iter().filter(|(_, pinned)| is_expired(pinned));
        let expired: Vec<RecordName> = expired.map(|(record, _)| *record).collect();
        for record in expired {
            self.remove_value(&record);
        }
    }

    fn remove_value(&mut self, record: &RecordName) {
        let Some(pinned) = self.values.remove(record) else {
            return;
        };
        let bytes = pinned.value.byte_len();
        self.bytes = self.bytes.saturating_sub(bytes);
        if let Some(of_caller) = self.caller_bytes.get_mut(&pinned.caller) {
            *of_caller = of_caller.saturating_sub(bytes);
            // Callers without pins must not fill memory.
            if *of_caller == 0 {
                self.caller_bytes.remove(&pinned.caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        auth::{Principal, PrincipalKey},
        clock,
    };

    fn text(bytes: usize) -> CarriedValue {
        CarriedValue::Text("x".repeat(bytes).into())
    }

    fn callers() -> [Caller; 2] {
        let key = PrincipalKey::new([7; 32]);
        ["one", "two"].map(|user| Caller::of_account(Principal::of_token(&key, user)))
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_table_takes_no_new_value_and_keeps_every_old_one() {
        let (mut table, [one, two]) = (PinTable::default(), callers());
        let mut count = 0_u8;
        while table
            .pin_value([count; 32], one, text(1024 * 1024), clock::now())
            .is_some()
        {
            count += 1;
        }
        assert_eq!(count, 15);
        // The limit is the caller's own.
        assert!(table.pin_value([99; 32], two, text(1024), clock::now()).is_some());
        for record in 0..count {
            assert!(table.find_value(&[record; 32], clock::now()).is_some(), "{record}");
        }
        // Rolling back makes room again, and so does a day without use.
        table.roll_back_value(&[0; 32]);
        assert!(
            table
                .pin_value([50; 32], one, text(1024 * 1024), clock::now())
                .is_some()
        );
        assert!(
            table
                .pin_value([51; 32], one, text(1024 * 1024), clock::now())
                .is_none()
        );
        tokio::time::advance(UNUSED_ROW_MAX).await;
        assert!(
            table
                .pin_value([51; 32], one, text(1024 * 1024), clock::now())
                .is_some()
        );
        assert!(table.find_value(&[1; 32], clock::now()).is_none());
        assert_eq!(table.bytes, text(1024 * 1024).byte_len());
    }

    #[tokio::test(start_paused = true)]
    async fn the_first_pin_stays_and_an_accepted_one_is_not_rolled_back() {
        let (mut table, [one, _]) = (PinTable::default(), callers());
        let now = clock::now();
        assert_eq!(table.pin_value([1; 32], one, text(3), now), Some(text(3)));
        assert_eq!(table.pin_value([1; 32], one, CarriedValue::Neutral, now), Some(text(3)));
        assert!(table.commit_value([1; 32], one, text(3), now));
        assert!(!table.commit_value([1; 32], one, text(3), now));
        table.roll_back_value(&[1; 32]);
        assert_eq!(table.find_value(&[1; 32], now), Some(text(3)));
    }
}
