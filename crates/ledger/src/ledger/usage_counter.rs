//! The counter of a ledger's size, in total and for each principal. Changes can be rolled back.

use std::collections::HashMap;

use super::{LedgerSize, RECORD_BYTES};
use crate::principal::PrincipalHash;

/// The size of a ledger's content.
#[derive(Debug, Default)]
pub(super) struct UsageCounter {
    usage: LedgerSize,
    bytes_by_principal: HashMap<PrincipalHash, u64>,
    /// The changes since the last [`UsageCounter::forget_changes`], oldest first.
    changes: Vec<CountedChange>,
}

#[derive(Clone, Copy, Debug)]
struct CountedChange {
    principal: PrincipalHash,
    bytes: u64,
    is_added: bool,
}

impl UsageCounter {
    /// Returns the counter of a part of a ledger: its size in total, and that of some principals.
    pub(super) fn of_sizes(usage: LedgerSize, bytes_by_principal: HashMap<PrincipalHash, u64>) -> Self {
        Self {
            usage,
            bytes_by_principal,
            changes: Vec::new(),
        }
    }

    /// Counts a record that was added.
    pub(super) fn add_record(&mut self, principal: PrincipalHash, value: u64) {
        self.log_change(principal, value, true);
    }

    /// Counts a record that was removed.
    pub(super) fn remove_record(&mut self, principal: PrincipalHash, value: u64) {
        self.log_change(principal, value, false);
    }

    /// Returns the size in total.
    pub(super) const fn usage(&self) -> LedgerSize {
        self.usage
    }

    /// Returns the bytes of one principal's records.
    pub(super) fn principal_bytes(&self, principal: &PrincipalHash) -> u64 {
        self.bytes_by_principal.get(principal).copied().unwrap_or_default()
    }

    /// Returns the current position in the log of changes, for [`UsageCounter::roll_back_to`].
    pub(super) const fn mark(&self) -> usize {
        self.changes.len()
    }

    /// Rolls back the changes after `mark`.
    pub(super) fn roll_back_to(&mut self, mark: usize) {
        while self.changes.len() > mark {
            let Some(counted) = self.changes.pop() else { return };
            self.apply_change(counted, !counted.is_added);
        }
    }

    /// Makes all changes permanent. Earlier marks become invalid.
    pub(super) fn forget_changes(&mut self) {
        self.changes.clear();
    }

    fn log_change(&mut self, principal: PrincipalHash, value: u64, is_added: bool) {
        let counted = CountedChange {
            principal,
            bytes: RECORD_BYTES.saturating_add(value),
            is_added,
        };
        self.changes.push(counted);
        self.apply_change(counted, is_added);
    }

    fn apply_change(&mut self, CountedChange { principal, bytes, .. }: CountedChange, more: bool) {
        let add = if more { u64::saturating_add } else { u64::saturating_sub };
        let own = self.bytes_by_principal.entry(principal).or_default();
        *own = add(*own, bytes);
        self.usage.bytes = add(self.usage.bytes, bytes);
        self.usage.records = add(self.usage.records, 1);
        // Principals without records must not accumulate in the map.
        if *own == 0 {
            self.bytes_by_principal.remove(&principal);
        }
    }
}
