//! Changes that other processes make to a shared ledger: caches learn from them that they are out of date.
//!
//! A cache notes the [`ChangeStamp`] of a principal before it reads the principal's records, and trusts what it has read
//! for as long as the stamp stays the same. Without a live stream of changes there are no stamps, so that nothing is
//! trusted and every question reads the ledger.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

use tokio::sync::broadcast;

use antiphon_core::digest::DigestHashBuilder;

use super::{RecordKind, RecordName};
use crate::principal::{Principal, PrincipalHash};

/// The principals whose changes are counted, about 48 bytes each. With more of them all stamps change.
const PRINCIPALS_MAX: usize = 100_000;
/// The changes that a slow receiver may be behind before it is told of a gap.
const WAITING_MAX: usize = 4_096;

/// A record that another process has written or removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordChange {
    /// The kind of the record.
    pub kind: RecordKind,
    /// Its owner.
    pub principal: PrincipalHash,
    /// Its name.
    pub name: RecordName,
}

/// News about a shared ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeEvent {
    /// Another process has changed a record.
    Changed(RecordChange),
    /// Changes may have been missed, or will be: nothing that was read before is certain.
    Gap,
}

/// The state of a principal's records, as far as this process has been told of changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChangeStamp {
    epoch: u64,
    changes: u64,
}

/// The changes of a ledger by other processes. Cheap to clone.
#[derive(Clone, Debug)]
pub struct LedgerChanges(Option<Arc<ChangeState>>);

#[derive(Debug)]
struct ChangeState {
    counts: RwLock<ChangeCounts>,
    events: broadcast::Sender<ChangeEvent>,
}

#[derive(Debug, Default)]
struct ChangeCounts {
    /// Increases with each gap.
    epoch: u64,
    /// `true` while every change is told.
    is_live: bool,
    by_principal: HashMap<PrincipalHash, u64, DigestHashBuilder>,
}

impl LedgerChanges {
    /// Returns the changes of a ledger that no other process writes: there are none.
    pub const fn none() -> Self {
        Self(None)
    }

    /// Creates the changes of a shared ledger, which are not live yet.
    pub fn of_shared() -> Self {
        Self(Some(Arc::new(ChangeState {
            counts: RwLock::default(),
            events: broadcast::Sender::new(WAITING_MAX),
        })))
    }

    /// Returns `true` if both are the changes that one process is told of.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.0, &other.0) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (one, other) => one.is_none() && other.is_none(),
        }
    }

    /// Returns the stamp of a principal. `None` while changes may be missed.
    pub fn stamp(&self, principal: Principal) -> Option<ChangeStamp> {
        let Some(state) = &self.0 else {
            return Some(ChangeStamp { epoch: 0, changes: 0 });
        };
        let counts = state.counts.read().unwrap_or_else(PoisonError::into_inner);
        let changes = counts
            .by_principal
            .get(principal.as_bytes())
            .copied()
            .unwrap_or_default();
        counts.is_live.then_some(ChangeStamp {
            epoch: counts.epoch,
            changes,
        })
    }

    /// Returns the number of the period without gaps. `None` while changes may be missed.
    pub fn epoch(&self) -> Option<u64> {
        let Some(state) = &self.0 else { return Some(0) };
        let counts = state.counts.read().unwrap_or_else(PoisonError::into_inner);
        counts.is_live.then_some(counts.epoch)
    }

    /// Returns the events from now on. `None` if no other process writes.
    pub fn subscribe(&self) -> Option<broadcast::Receiver<ChangeEvent>> {
        Some(self.0.as_ref()?.events.subscribe())
    }

    /// Notes changes by other processes.
    pub fn note_changes(&self, changes: &[RecordChange]) {
        let Some(state) = &self.0 else { return };
        let mut counts = state.counts.write().unwrap_or_else(PoisonError::into_inner);
        let mut is_full = false;
        for change in changes {
            if counts.by_principal.len() >= PRINCIPALS_MAX {
                counts.by_principal.clear();
                counts.epoch = counts.epoch.wrapping_add(1);
                is_full = true;
            }
            let count = counts.by_principal.entry(change.principal).or_default();
            *count = count.wrapping_add(1);
        }
        drop(counts);
        if is_full {
            drop(state.events.send(ChangeEvent::Gap));
        }
        for change in changes {
            // Without receivers nobody needs to know.
            drop(state.events.send(ChangeEvent::Changed(*change)));
        }
    }

    /// Notes that every change is told from now on, and that some were missed before.
    pub fn note_live(&self) {
        self.begin_epoch(|_| true);
    }

    /// Notes that any record may have changed.
    pub fn note_unknown(&self) {
        self.begin_epoch(|was_live| was_live);
    }

    /// Notes that changes may be missed from now on.
    pub fn note_gap(&self) {
        self.begin_epoch(|_| false);
    }

    /// Makes all stamps invalid. `is_live` returns whether changes are told from now on, given whether they were before.
    fn begin_epoch(&self, is_live: impl FnOnce(bool) -> bool) {
        let Some(state) = &self.0 else { return };
        let mut counts = state.counts.write().unwrap_or_else(PoisonError::into_inner);
        counts.epoch = counts.epoch.wrapping_add(1);
        counts.is_live = is_live(counts.is_live);
        drop(counts);
        drop(state.events.send(ChangeEvent::Gap));
    }
}
