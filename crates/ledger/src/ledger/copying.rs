//! The copy of a whole ledger into another, empty store: every record as it is, with its place, version and times, and the
//! secret. Nothing of the copy stays unless each record was compared with the original.

use std::{collections::VecDeque, ops::ControlFlow};

use super::{LedgerError, LedgerOpenError, Record, StoreInspector, postgres::DatabaseOpenError};

/// The rows of one portion, and about the bytes of their values. Both are in memory together.
const PORTION: (usize, usize) = (512, 8 * 1024 * 1024);

/// A record with its place in the order of inserts.
pub type PlacedCopy = (i64, Record);

/// A store that a copy fills.
pub trait CopyTarget {
    /// Adds records, in the order of their places.
    fn add_records(&mut self, records: &[PlacedCopy]) -> Result<(), CopyError>;

    /// Returns some of the added records after a place, in the order of their places. None if there are no more.
    fn read_records(&mut self, after: i64) -> Result<Vec<PlacedCopy>, CopyError>;

    /// Makes the copy permanent. Without it nothing of the copy stays.
    fn finish(self) -> Result<(), CopyError>;
}

/// The outcome of a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CopyReport {
    /// The number of copied records.
    pub records: u64,
    /// The length of their values in bytes.
    pub bytes: u64,
    /// The places of damaged records of the original, which were left out.
    pub damaged: Vec<i64>,
}

/// The error of a copy. Nothing of it stays.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    /// The file to be filled exists.
    #[error("{0} exists: copy into a new file")]
    FileExists(String),
    /// The database to be filled has records.
    #[error("the database has {0} records: copy into an empty one, while no replica uses it")]
    NotEmpty(i64),
    /// A record of the copy differs from the original.
    #[error("the record at place {0} of the copy differs from the original, or cannot be read: nothing was copied")]
    Differs(i64),
    /// A file cannot be opened or written.
    #[error(transparent)]
    File(#[from] LedgerOpenError),
    /// A database cannot be opened.
    #[error(transparent)]
    Database(#[from] DatabaseOpenError),
    /// A store failed.
    #[error(transparent)]
    Store(#[from] LedgerError),
}

/// Copies every sound record, compares the copy with the original, and makes it permanent.
pub fn copy_records(source: &impl StoreInspector, mut target: impl CopyTarget) -> Result<CopyReport, CopyError> {
    let mut report = CopyReport::default();
    let mut place = None;
    loop {
        let portion = read_portion(source, place)?;
        let Some(last) = portion.last else { break };
        place = Some(last);
        let bytes = portion.records.iter().map(|(_, record)| record.value.len() as u64);
        report.bytes += bytes.sum::<u64>();
        report.records += portion.records.len() as u64;
        report.damaged.extend(portion.damaged);
        target.add_records(&portion.records)?;
    }
    compare(source, &mut target)?;
    target.finish()?;
    Ok(report)
}

/// Compares each record of the copy with the original, which is read once more.
fn compare(source: &impl StoreInspector, target: &mut impl CopyTarget) -> Result<(), CopyError> {
    let (mut copied, mut after, mut place) = (VecDeque::new(), i64::MIN, None);
    loop {
        let portion = read_portion(source, place)?;
        let Some(last) = portion.last else { break };
        place = Some(last);
        for original in portion.records {
            if copied.is_empty() {
                copied.extend(target.read_records(after)?);
                after = copied.back().map_or(after, |(place, _)| *place);
            }
            if copied.pop_front().as_ref() != Some(&original) {
                return Err(CopyError::Differs(original.0));
            }
        }
    }
    // The copy has nothing else.
    copied.extend(target.read_records(after)?);
    copied
        .front()
        .map_or(Ok(()), |(place, _)| Err(CopyError::Differs(*place)))
}

/// Some rows of a store.
#[derive(Default)]
struct Portion {
    records: Vec<PlacedCopy>,
    /// The places of damaged rows.
    damaged: Vec<i64>,
    /// The place of the last row. `None` if there are no more.
    last: Option<i64>,
}

fn read_portion(source: &impl StoreInspector, after: Option<i64>) -> Result<Portion, LedgerError> {
    let (mut portion, mut bytes) = (Portion::default(), 0);
    source.for_each_row(after, |row, record| {
        portion.last = Some(row.place);
        match record {
            Some(record) => {
                bytes += record.value.len();
                portion.records.push((row.place, record));
            }
            None => portion.damaged.push(row.place),
        }
        let is_full = portion.records.len() + portion.damaged.len() >= PORTION.0 || bytes >= PORTION.1;
        let next = if is_full {
            ControlFlow::Break(())
        } else {
            ControlFlow::Continue(())
        };
        Ok::<_, LedgerError>(next)
    })?;
    Ok(portion)
}
