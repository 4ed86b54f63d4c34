//! Records of one kind as values, without memory in front of the ledger: their keys, reads, lists and steps.

use std::{fmt, marker::PhantomData, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    ledger::{
        CommitOutcome, CommitStep, Index, Ledger, LedgerError, Moment, ROWS_MAX, Record, RecordKey, RecordKind,
        RecordName,
    },
    principal::Principal,
};

/// The value of one kind of record.
pub trait RecordValue: Sized {
    /// The kind of the records.
    const KIND: RecordKind;

    /// Returns the bytes of the value.
    fn encode(&self) -> Bytes;

    /// Reads the bytes of a value. `None` if they are no complete one of a version that is known: the record counts as
    /// missing.
    fn decode(bytes: &[u8]) -> Option<Self>;

    /// Returns the index of the record with this key. `None` if tool services cannot find it.
    fn index(&self, _key: &RecordKey) -> Option<Index> {
        None
    }

    /// Returns the time until which a record that is inserted at `now` is stored. `ttl` is that of the ledger.
    fn expires_at(&self, now: Moment, ttl: Duration) -> Moment;

    /// Returns the time until which the value is stored in place of the one in `record`.
    fn replaced_until(&self, record: &Record, ttl: Duration) -> Moment {
        self.expires_at(record.made_at, ttl)
    }

    /// Returns the key of a principal's record.
    fn key(principal: Principal, name: RecordName) -> RecordKey {
        RecordKey::new(Self::KIND, principal, name)
    }
}

/// A record with its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored<V> {
    /// The record as it was read.
    pub record: Record,
    /// Its value.
    pub value: V,
}

impl<V: RecordValue> Stored<V> {
    /// Reads the value of a record. `None` if this version does not know its encoding.
    pub fn from_record(record: Record) -> Option<Self> {
        let value = V::decode(&record.value)?;
        Some(Self { record, value })
    }
}

/// The records of one kind. Cheap to clone.
pub struct Records<V> {
    ledger: Arc<dyn Ledger>,
    /// The time for which records are stored that do not say otherwise.
    ttl: Duration,
    value: PhantomData<fn() -> V>,
}

impl<V> Clone for Records<V> {
    /// Returns the records of the same ledger.
    fn clone(&self) -> Self {
        Self {
            ledger: Arc::clone(&self.ledger),
            ..*self
        }
    }
}

impl<V: RecordValue> fmt::Debug for Records<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({})", V::KIND.label())
    }
}

impl<V: RecordValue> Records<V> {
    /// Returns the records of a ledger.
    pub fn new(ledger: &Arc<dyn Ledger>, ttl: Duration) -> Self {
        Self {
            ledger: Arc::clone(ledger),
            ttl,
            value: PhantomData,
        }
    }

    /// Reads the record of a key.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails.
    pub async fn read(&self, key: RecordKey, now: Moment) -> Result<Option<Stored<V>>, LedgerError> {
        let record = self.ledger.read(vec![key], now).await?.into_iter().flatten().next();
        Ok(record.and_then(Stored::from_record))
    }

    /// Reads the latest `limit` records of an index, whoever owns them.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails.
    pub async fn find(&self, index: Index, limit: usize, now: Moment) -> Result<Vec<Stored<V>>, LedgerError> {
        let records = self.ledger.find_by_index(V::KIND, index, limit, now).await?;
        Ok(records.into_iter().filter_map(Stored::from_record).collect())
    }

    /// Reads all records of every principal, and gives them to `take` one by one.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails. What was read before was given.
    pub async fn read_everyone(&self, now: Moment, mut take: impl FnMut(Stored<V>) + Send) -> Result<(), LedgerError> {
        let mut after = None;
        loop {
            let principals = self.ledger.list_principals(V::KIND, after, ROWS_MAX).await?;
            let Some(last) = principals.last() else { return Ok(()) };
            after = Some(*last);
            for principal in &principals {
                let mut place = 0;
                loop {
                    let page = self
                        .ledger
                        .list_after(V::KIND, *principal, place, ROWS_MAX, now)
                        .await?;
                    let Some((last, _)) = page.last() else { break };
                    place = *last;
                    page.into_iter()
                        .filter_map(|(_, record)| Stored::from_record(record))
                        .for_each(&mut take);
                }
            }
        }
    }

    /// Builds the step that inserts a record.
    pub fn insert_step(&self, key: RecordKey, value: &V, now: Moment) -> CommitStep {
        CommitStep::Insert {
            key,
            index: value.index(&key),
            value: value.encode(),
            expires_at: value.expires_at(now, self.ttl),
        }
    }

    /// Builds the step that replaces the value of a record, unless another writer was first.
    pub fn replace_step(&self, record: &Record, value: &V) -> CommitStep {
        CommitStep::Replace {
            key: record.key,
            version: record.version,
            value: value.encode(),
            expires_at: value.replaced_until(record, self.ttl),
        }
    }

    /// Replaces the value of a record. Returns `false` if another writer was first.
    ///
    /// # Errors
    ///
    /// [`LedgerError`] if the ledger fails, or has no room.
    pub async fn replace(&self, record: &Record, value: &V, now: Moment) -> Result<bool, LedgerError> {
        let steps = vec![self.replace_step(record, value)];
        Ok(self.ledger.commit(steps, now).await? == CommitOutcome::Done)
    }
}
