//! Pages of records: the scan behind every list, its cursor, and its end.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

use super::LateError;
use crate::{
    auth::PrincipalHash,
    clock,
    ledger::{Ledger, Moment, PlacedRecord, Record, RecordKind},
};

/// The most records that one page reads.
const RECORDS_MAX: usize = 4 * 1024;
/// Bytes of records after which a page ends: 32 MiB.
const BYTES_MAX: usize = 32 * 1024 * 1024;
/// The most reads of one page. Each principal takes at least one.
const READS_MAX: usize = 512;
/// Time after which a page ends.
const READ_TIME: Duration = Duration::from_secs(1);
/// The principals that one read returns.
const PRINCIPALS_READ: usize = 64;

/// The place of a row. A page begins after such a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListCursor {
    /// The owner of the record.
    pub principal: PrincipalHash,
    /// The place of the record.
    pub place: u64,
}

/// One page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page<T, C = ListCursor> {
    /// The rows.
    pub rows: Vec<T>,
    /// The cursor of the next page. `None` if this is the last.
    ///
    /// A page for operators or of tasks may have few rows, or none, and a next one all the same: it reads a limited number
    /// of records.
    pub next: Option<C>,
}

impl<T, C> Page<T, C> {
    /// The only page of an empty list.
    pub(super) const EMPTY: Self = Self {
        rows: Vec::new(),
        next: None,
    };

    /// Changes the cursor.
    pub(super) fn map_next<D>(self, change: impl FnOnce(C) -> D) -> Page<T, D> {
        Page {
            rows: self.rows,
            next: self.next.map(change),
        }
    }
}

/// The reading of one page: batches of records of a kind, by principal and then the oldest first.
///
/// A list asks for a batch, and adds the rows that it makes of it, until there are no more.
pub(super) struct PageScan<'l, T> {
    ledger: &'l dyn Ledger,
    kind: RecordKind,
    /// The most records of one read.
    batch: usize,
    limit: usize,
    now: Moment,
    rows: Vec<(ListCursor, T)>,
    /// The principals to read, the present one first.
    principals: VecDeque<PrincipalHash>,
    /// The place of the last record that was read, or after which the page begins.
    last: Option<ListCursor>,
    /// `true` if other principals may follow.
    has_others: bool,
    /// The rest of what the page may read. `None` without a limit.
    budget: Option<ScanBudget>,
    is_complete: bool,
}

/// The rest of what a page may read.
struct ScanBudget {
    reads: usize,
    records: usize,
    bytes: usize,
    ends_at: Instant,
}

impl<'l, T> PageScan<'l, T> {
    /// Begins a page of the records of every principal.
    pub(super) fn of_everyone(
        ledger: &'l dyn Ledger,
        (kind, batch): (RecordKind, usize),
        after: Option<ListCursor>,
        limit: usize,
        now: Moment,
    ) -> Self {
        let scan = Self {
            ledger,
            kind,
            batch,
            limit,
            now,
            rows: Vec::new(),
            // The principal of the last row may have more.
            principals: after.iter().map(|after| after.principal).collect(),
            last: after,
            has_others: true,
            budget: None,
            is_complete: false,
        };
        scan.with_budget()
    }

    /// Begins a page of the records of one caller.
    ///
    /// It reads until it has its rows: a caller that looks at the first page alone must not miss a result.
    pub(super) fn of_caller(
        ledger: &'l dyn Ledger,
        source: (RecordKind, usize),
        after: ListCursor,
        limit: usize,
        now: Moment,
    ) -> Self {
        Self {
            has_others: false,
            budget: None,
            ..Self::of_everyone(ledger, source, Some(after), limit, now)
        }
    }

    /// Limits what the page reads.
    #[must_use]
    pub(super) fn with_budget(self) -> Self {
        let budget = ScanBudget {
            reads: READS_MAX,
            records: RECORDS_MAX,
            bytes: BYTES_MAX,
            ends_at: clock::now() + READ_TIME,
        };
        Self {
            budget: Some(budget),
            ..self
        }
    }

    /// Reads the next batch. Returns `None` once the page is full, has read enough, or nothing is left.
    pub(super) async fn next_batch(&mut self) -> Result<Option<Vec<PlacedRecord>>, LateError> {
        let ledger = self.ledger;
        // One row more than wanted tells that there is a next page.
        while self.rows.len() <= self.limit && self.budget.as_ref().is_none_or(|budget| !budget.is_spent()) {
            let Some(principal) = self.principals.front().copied() else {
                let last = self.last.map(|last| last.principal);
                if self.has_others {
                    self.principals = ledger.list_principals(self.kind, last, PRINCIPALS_READ).await?.into();
                }
                if self.principals.is_empty() {
                    self.is_complete = true;
                    return Ok(None);
                }
                continue;
            };
            let place = self
                .last
                .filter(|last| last.principal == principal)
                .map_or(0, |last| last.place);
            let list = ledger.list_after(self.kind, principal, place, self.batch, self.now);
            let records = list.await?;
            if records.len() < self.batch {
                self.principals.pop_front();
            }
            let place = records.last().map_or(place, |(place, _)| *place);
            self.last = Some(ListCursor { principal, place });
            self.count_read(&records);
            if !records.is_empty() {
                return Ok(Some(records));
            }
        }
        Ok(None)
    }

    /// Adds what was read beside the batches to what the page has read.
    pub(super) fn count_bytes(&mut self, bytes: usize) {
        if let Some(budget) = &mut self.budget {
            budget.bytes = budget.bytes.saturating_sub(bytes);
        }
    }

    fn count_read(&mut self, records: &[PlacedRecord]) {
        self.count_bytes(records.iter().map(|(_, record)| record.value.len()).sum());
        if let Some(budget) = &mut self.budget {
            budget.reads = budget.reads.saturating_sub(1);
            budget.records = budget.records.saturating_sub(records.len());
        }
    }

    /// Adds the row of a record of the last batch, by the record's place.
    pub(super) fn add_row(&mut self, place: u64, row: T) {
        if let Some(ListCursor { principal, .. }) = self.last {
            self.rows.push((ListCursor { principal, place }, row));
        }
    }

    /// Reads the page, with the rows that `pick` makes of single records.
    pub(super) async fn list_records(mut self, pick: impl Fn(Record) -> Option<T>) -> Result<Page<T>, LateError> {
        while let Some(batch) = self.next_batch().await? {
            for (place, record) in batch {
                if let Some(row) = pick(record) {
                    self.add_row(place, row);
                }
            }
        }
        Ok(self.into_page())
    }

    /// Returns the page.
    pub(super) fn into_page(mut self) -> Page<T> {
        let next = if self.rows.len() > self.limit {
            self.rows.truncate(self.limit);
            self.rows.last().map(|(cursor, _)| *cursor)
        } else {
            self.last.filter(|_| !self.is_complete)
        };
        Page {
            rows: self.rows.into_iter().map(|(_, row)| row).collect(),
            next,
        }
    }
}

impl ScanBudget {
    fn is_spent(&self) -> bool {
        self.reads == 0 || self.records == 0 || self.bytes == 0 || clock::now() >= self.ends_at
    }
}
