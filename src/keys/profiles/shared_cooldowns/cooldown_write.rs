//! The write of a cooldown by the background writer.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering},
};

use super::stored_cooldown::StoredCooldown;
use crate::{
    clock,
    ledger::{CommitStep, Ledger, RecordKind, update_records},
    writer::{Subject, Update, UpdateError, UpdateSize, Work, WriteTrack},
};

/// Bytes that a write counts.
const WRITE_BYTES: usize = 1024;

/// The write of a cooldown, or of its end, unless the ledger has a later word about it.
#[derive(Debug)]
pub(super) struct CooldownWrite {
    ledger: Weak<dyn Ledger>,
    /// Counts the write.
    changes: Arc<AtomicU64>,
    cooldown: StoredCooldown,
}

impl CooldownWrite {
    pub(super) fn new(ledger: Weak<dyn Ledger>, changes: Arc<AtomicU64>, cooldown: StoredCooldown) -> Self {
        Self {
            ledger,
            changes,
            cooldown,
        }
    }

    async fn write(&self, ledger: &dyn Ledger) -> Result<bool, UpdateError> {
        let key = self.cooldown.key();
        let written = update_records(ledger, [key], |[record], now| {
            let stored = record.as_ref().and_then(|record| StoredCooldown::decode(&record.value));
            let next = self.cooldown.applied_to(stored.as_ref());
            let step =
                next.map(|next| CommitStep::put_record(key, record.as_ref(), next.encode(), next.expires_at(now)));
            let has_step = step.is_some();
            (step.into_iter().collect(), has_step)
        })
        .await;
        self.changes.fetch_add(1, Ordering::Relaxed);
        written
    }
}

impl Update for CooldownWrite {
    fn track(&self) -> WriteTrack {
        WriteTrack::Reading
    }

    fn subjects(&self) -> Vec<Subject> {
        vec![Subject::of_record(&self.cooldown.key())]
    }

    fn size(&self) -> UpdateSize {
        UpdateSize {
            rows: 1,
            bytes: WRITE_BYTES,
        }
    }

    fn lost_records(&self) -> (RecordKind, usize) {
        (RecordKind::SharedCooldown, 1)
    }

    fn begin(self: Arc<Self>) -> Work {
        // A ledger that was away for long needs no cooldown that is over.
        match self.ledger.upgrade() {
            Some(ledger) if !self.cooldown.is_over(clock::unix_time()) => {
                Work::Change(Box::pin(async move { self.write(&*ledger).await }))
            }
            _ => Work::Nothing,
        }
    }
}
