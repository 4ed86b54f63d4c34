//! How much a ledger holds, in total and of each principal; what was counted can be counted back.

use std::collections::HashMap;

use super::{RECORD_BYTES, Usage};
use crate::session::PrincipalHash;

/// What is held.
#[derive(Debug, Default)]
pub(super) struct Tally {
    usage: Usage,
    of_principals: HashMap<PrincipalHash, u64>,
    /// What was counted since the last [`Tally::settle`], oldest first.
    log: Vec<Counted>,
}

#[derive(Clone, Copy, Debug)]
struct Counted {
    principal: PrincipalHash,
    bytes: u64,
    came: bool,
}

impl Tally {
    /// What a record with a value of so many bytes counts.
    pub(super) const fn size(value: u64) -> u64 {
        RECORD_BYTES.saturating_add(value)
    }

    /// A record came.
    pub(super) fn come(&mut self, principal: PrincipalHash, value: u64) {
        self.note(Counted {
            principal,
            bytes: Self::size(value),
            came: true,
        });
    }

    /// A record went.
    pub(super) fn go(&mut self, principal: PrincipalHash, value: u64) {
        self.note(Counted {
            principal,
            bytes: Self::size(value),
            came: false,
        });
    }

    /// Everything that is held.
    pub(super) const fn usage(&self) -> Usage {
        self.usage
    }

    /// Bytes of one principal.
    pub(super) fn of(&self, principal: &PrincipalHash) -> u64 {
        self.of_principals.get(principal).copied().unwrap_or_default()
    }

    /// The present, for [`Tally::back_to`].
    pub(super) const fn mark(&self) -> usize {
        self.log.len()
    }

    /// Counts back whatever was counted since.
    pub(super) fn back_to(&mut self, mark: usize) {
        while self.log.len() > mark {
            let Some(counted) = self.log.pop() else { return };
            self.count(counted, !counted.came);
        }
    }

    /// What was counted stays: marks from before mean nothing any more.
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
        if *own == 0 {
            self.of_principals.remove(&principal);
        }
    }
}
