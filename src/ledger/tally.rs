//! The counter of a ledger's size, in total and for each principal. Changes can be rolled back.

use std::collections::HashMap;

use super::{RECORD_BYTES, Usage};
use crate::session::PrincipalHash;

/// The size of a ledger's content.
#[derive(Debug, Default)]
pub(super) struct Tally {
    usage: Usage,
    of_principals: HashMap<PrincipalHash, u64>,
    /// The changes since the last [`Tally::settle`], oldest first.
    log: Vec<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    principal: PrincipalHash,
    bytes: u64,
    came: bool,
}

impl Tally {
    /// Returns the bytes that a record counts whose value has `value` bytes.
    pub(super) const fn size(value: u64) -> u64 {
        RECORD_BYTES.saturating_add(value)
    }

    /// Counts a record that was added.
    pub(super) fn come(&mut self, principal: PrincipalHash, value: u64) {
        self.note(Counted {
            principal,
            bytes: Self::size(value),
            came: true,
        });
    }

    /// Counts a record that was removed.
    pub(super) fn go(&mut self, principal: PrincipalHash, value: u64) {
        self.note(Counted {
            principal,
            bytes: Self::size(value),
            came: false,
        });
    }

    /// Returns the size in total.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Returns the bytes of one principal's records.
    pub(super) fn of(&self, principal: &PrincipalHash) -> u64 {
        self.of_principals.get(principal).copied().unwrap_or_default()
    }

    /// Returns the current position in the log of changes, for [`Tally::back_to`].
    pub(super) const fn mark(&self) -> usize {
        self.log.len()
    }

    /// Rolls back the changes after `mark`.
    pub(super) fn back_to(&mut self, mark: usize) {
        while self.log.len() > mark {
            let Some(counted) = self.log.pop() else { return };
            self.count(counted, !counted.came);
        }
    }

    /// Makes all changes permanent. Earlier marks become invalid.
    pub(super) fn settle(&mut self) {
        self.log.clear();
    }

    fn note(&mut self, counted: Counted) {
        self.log.push(counted);
        self.count(counted, counted.came);
    }

    fn count(&mut self, Counted { principal, bytes, .. }: Counted, more: bool) {
        let own = self.of_principals.entry(principal).or_default();
        if more {
            *own = own.saturating_add(bytes);
            self.usage.bytes = self.usage.bytes.saturating_add(bytes);
            self.usage.records = self.usage.records.saturating_add(1);
        } else {
            *own = own.saturating_sub(bytes);
            self.usage.bytes = self.usage.bytes.saturating_sub(bytes);
            self.usage.records = self.usage.records.saturating_sub(1);
        }
        // Principals without records must not accumulate in the map.
        if *own == 0 {
            self.of_principals.remove(&principal);
        }
    }
}
