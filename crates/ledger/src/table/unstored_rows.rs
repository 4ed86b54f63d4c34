//! Rows that a request must see stored, of whatever table: before the head of an answer to them, or before the send.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use super::TableParts;
use crate::{ledger::RecordKey, writer::Subject};

/// A table for whose rows requests wait.
pub(super) trait AwaitedTable: Send + Sync {
    /// Returns the ledger of the table, with its writer.
    fn parts(&self) -> &TableParts;

    /// Returns the generation of what is to be stored in a row. `None` if nothing is to be waited for.
    fn unstored_generation(&self, key: &RecordKey) -> Option<u64>;
}

/// A row with its table.
pub(super) type UnstoredRow = (Arc<dyn AwaitedTable>, RecordKey);

/// Rows that a crash may still lose, and the records of their principals.
#[derive(Default)]
pub struct UnstoredRows(Vec<UnstoredRow>);

impl fmt::Debug for UnstoredRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // They identify calls, so a log does not show them.
        write!(f, "UnstoredRows({})", self.0.len())
    }
}

impl FromIterator<UnstoredRow> for UnstoredRows {
    fn from_iter<I: IntoIterator<Item = UnstoredRow>>(rows: I) -> Self {
        Self(rows.into_iter().collect())
    }
}

impl UnstoredRows {
    /// Adds rows of another table.
    pub fn append(&mut self, mut other: Self) {
        self.0.append(&mut other.0);
    }

    /// Waits until the ledger has these rows, or the deadline. They are written in any case.
    pub async fn await_stored(&self, deadline: Instant) {
        // The usual case: the provider took longer than the disk.
        let Some((table, _)) = self.0.first().filter(|_| self.is_due()) else {
            return;
        };
        let TableParts { writer, counter, .. } = table.parts();
        // No answer waits while the store fails.
        let is_over = || !self.is_due() || writer.is_failing();
        writer.await_end(deadline, is_over).await;
        if self.is_due() {
            // The rows stay. The writer goes on with them.
            counter.count_late_write();
            for (table, key) in &self.0 {
                if let Some(generation) = table.unstored_generation(key) {
                    writer.note_late(&Subject::of_record(key), generation);
                }
            }
        }
    }

    /// Returns `true` if the ledger lacks one of these rows. One that was late once delays no more.
    fn is_due(&self) -> bool {
        self.0.iter().any(|(table, key)| {
            let is_due = |generation| !table.parts().writer.is_late(&Subject::of_record(key), generation);
            table.unstored_generation(key).is_some_and(is_due)
        })
    }
}
