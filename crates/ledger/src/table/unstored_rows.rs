//! Rows that a request must see stored, of whatever table: before the head of an answer to them, or before the send.

use std::{fmt, sync::Arc};

use tokio::time::Instant;

use super::TableParts;
use crate::{ledger::RecordKey, writer::Subject};

/// A table for whose rows requests wait.
pub(super) trait AwaitedRows: Send + Sync {
    /// Returns the ledger of the table, with its writer.
    fn parts(&self) -> &TableParts;

    /// Returns the generation of what is to be stored in a row. `None` if nothing is to be waited for.
    fn unstored_generation(&self, key: &RecordKey) -> Option<u64>;
}

/// A row with its table.
pub(super) type UnstoredRow = (Arc<dyn AwaitedRows>, RecordKey);

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

    /// Returns `true` if the ledger lacks one of these rows. One whose wait has timed out is not waited for again.
    fn is_due(&self) -> bool {
        self.0.iter().any(|(table, key)| {
            let is_due = |generation| !table.parts().writer.is_late(&Subject::of_record(key), generation);
            table.unstored_generation(key).is_some_and(is_due)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicUsize, Ordering},
        time::Duration,
    };

    use tokio::time::sleep;

    use super::*;
    use crate::{
        clock,
        digest_cache::Lifetime,
        ledger::{Ledger, LedgerSettings, MemoryLedger, RecordKind, RecordName},
        principal::Principal,
        table::{
            DecidedTable, KnownPrincipals, MemoryLimit, TablePolicy, VerifiedCallers, WritePolicy,
            decided_table::choice::Choice,
        },
        writer::{LedgerCounter, Writer, WriterTask, writer},
    };

    const WHO: Principal = Principal::from_bytes([7; 32]);
    const NAME: RecordName = [1; 32];
    const WAIT: Duration = Duration::from_secs(1);

    /// Counts late writes.
    #[derive(Clone, Debug, Default)]
    struct LateWrites(Arc<AtomicUsize>);

    impl LedgerCounter for LateWrites {
        fn count_lost_write(&self, _kind: RecordKind) {}

        fn count_missed_read(&self) {}

        fn count_late_write(&self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A process whose writer does not run yet.
    struct Process {
        ledger: Arc<dyn Ledger>,
        writes: Writer,
        worker: WriterTask,
        late: LateWrites,
        tables: [DecidedTable<Choice>; 2],
    }

    impl Process {
        fn with_policy(writes: WritePolicy) -> Self {
            let ledger: Arc<dyn Ledger> = Arc::new(MemoryLedger::new(LedgerSettings::default(), [9; 32]));
            let late = LateWrites::default();
            let (writer, worker) = writer(Arc::clone(&ledger), late.clone());
            let parts = TableParts::new(&ledger, &writer, late.clone());
            let callers = VerifiedCallers::new(&parts);
            callers.mark_verified(WHO);
            let tables = [RecordKind::PinnedResult, RecordKind::ClientResult].map(|kind| {
                let policy = TablePolicy {
                    kind,
                    writes,
                    memory: MemoryLimit::Rows(100),
                    lifetime: Lifetime::Unlimited,
                    record_ttl: Duration::from_secs(60),
                    principals: KnownPrincipals::Any,
                    caches_absence: false,
                    needs_lasting_ledger: false,
                    restores_lost: false,
                    daily: None,
                };
                DecidedTable::new(&parts, &callers, policy)
            });
            Self {
                ledger,
                writes: writer,
                worker,
                late,
                tables,
            }
        }

        /// Decides on a row of the first table. Returns the time that this took, and the late writes so far.
        async fn decide(&self, text: &str) -> (Duration, usize) {
            let began = clock::now();
            let given = vec![(NAME, choice(text, false))];
            let standing = self.tables[0].decide(WHO, given, began + WAIT).await;
            assert!(standing.iter().flatten().all(|row| row.text == text), "{standing:?}");
            (clock::now() - began, self.late.0.load(Ordering::Relaxed))
        }
    }

    fn choice(text: &str, is_accepted: bool) -> Choice {
        let text = text.to_owned();
        Choice { text, is_accepted }
    }

    async fn stored(ledger: &Arc<dyn Ledger>, kind: RecordKind) -> Option<Choice> {
        let key = RecordKey::new(kind, WHO, NAME);
        let records = ledger.read(vec![key], clock::unix_time()).await.unwrap();
        records[0].as_ref().map(|record| Choice::from_bytes(&record.value))
    }

    #[expect(clippy::disallowed_methods, reason = "no server drains in a test")]
    fn run(worker: WriterTask) {
        drop(tokio::spawn(worker.run()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_rows_of_all_tables() {
        let process = Process::with_policy(WritePolicy::BeforeHead);
        let [one, other] = &process.tables;
        let mut unstored = one.accept(WHO, vec![(NAME, choice("one", true))]);
        unstored
            .0
            .extend(other.accept(WHO, vec![(NAME, choice("other", true))]).0);
        let began = clock::now();
        let late_worker = async {
            sleep(WAIT / 2).await;
            run(process.worker);
        };
        tokio::join!(unstored.await_stored(began + WAIT), late_worker);
        assert_eq!(clock::now() - began, WAIT / 2);
        assert_eq!(process.late.0.load(Ordering::Relaxed), 0);
        for (kind, text) in [(RecordKind::PinnedResult, "one"), (RecordKind::ClientResult, "other")] {
            assert_eq!(stored(&process.ledger, kind).await, Some(choice(text, true)));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_late_once_delays_no_more_until_it_is_decided_anew() {
        let process = Process::with_policy(WritePolicy::BeforeSend);
        assert_eq!(process.decide("one").await, (WAIT, 1));
        assert_eq!(process.decide("one").await, (Duration::ZERO, 1));
        process.tables[0].roll_back(WHO, [(NAME, |row: &Choice| row.text == "one")]);
        assert_eq!(process.decide("other").await, (WAIT, 2));
        run(process.worker);
        process.writes.flush().await;
        assert_eq!(
            stored(&process.ledger, RecordKind::PinnedResult).await,
            Some(choice("other", false))
        );
    }
}
