//! The worker that exchanges cooldowns with other processes over their ledger.

use std::{collections::HashMap, sync::Weak, time::Duration};

use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::{interval, sleep},
};

use super::{KeyRests, stored_rest::StoredRest};
use crate::{
    clock,
    ledger::{ChangeEvent, CommitOutcome, CommitStep, Ledger, LedgerError, ROWS_MAX, RecordKey, RecordKind},
};

/// The pause between two looks while other processes cannot tell of their changes, and after a failure.
const LOOK_PAUSE: Duration = Duration::from_secs(1);
/// The pause after a look. Of many changes at once, all are read together.
const GATHER_PAUSE: Duration = Duration::from_millis(100);
/// The tries of a write that other processes prevent. The last of them has written what this one knows, most likely.
const TRIES_MAX: usize = 8;

/// The worker. Nothing is shared unless it runs.
#[derive(Debug)]
pub struct KeyRestWorker {
    rests: KeyRests,
    ledger: Weak<dyn Ledger>,
    waiting: mpsc::Receiver<StoredRest>,
    events: broadcast::Receiver<ChangeEvent>,
    /// Cooldowns that the ledger lacks.
    unwritten: HashMap<RecordKey, StoredRest>,
    /// `true` if the ledger may have cooldowns that this process does not know.
    wants_look: bool,
}

impl KeyRestWorker {
    pub(super) fn new(
        rests: KeyRests,
        ledger: Weak<dyn Ledger>,
        (waiting, events): (mpsc::Receiver<StoredRest>, broadcast::Receiver<ChangeEvent>),
    ) -> Self {
        Self {
            rests,
            ledger,
            waiting,
            events,
            unwritten: HashMap::new(),
            wants_look: true,
        }
    }

    /// Exchanges cooldowns until the ledger is dropped.
    pub async fn run(mut self) {
        let mut looks = interval(LOOK_PAUSE);
        loop {
            tokio::select! {
                Some(rest) = self.waiting.recv() => self.add_unwritten(rest),
                event = self.events.recv() => match event {
                    Ok(ChangeEvent::Changed(change)) => self.wants_look |= change.kind == RecordKind::KeyRest,
                    Ok(ChangeEvent::Gap) | Err(RecvError::Lagged(_)) => self.wants_look = true,
                    Err(RecvError::Closed) => return,
                },
                _ = looks.tick() => {
                    let Some(ledger) = self.ledger.upgrade() else { return };
                    self.wants_look |= ledger.changes().epoch().is_none();
                }
            }
            if self.unwritten.is_empty() && !self.wants_look {
                continue;
            }
            let Some(ledger) = self.ledger.upgrade() else { return };
            let pause = match self.exchange(&*ledger).await {
                Ok(()) => GATHER_PAUSE,
                // The cooldowns of this process hold all the same.
                Err(_) => LOOK_PAUSE,
            };
            drop(ledger);
            sleep(pause).await;
        }
    }

    fn add_unwritten(&mut self, rest: StoredRest) {
        self.unwritten.insert(rest.key(), rest);
    }

    fn take_waiting(&mut self) {
        while let Ok(rest) = self.waiting.try_recv() {
            self.add_unwritten(rest);
        }
    }

    /// Writes what the ledger lacks, and applies what it has.
    async fn exchange(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        self.take_waiting();
        let keys: Vec<RecordKey> = self.unwritten.keys().copied().collect();
        for key in keys {
            if let Some(rest) = self.unwritten.get(&key) {
                write_rest(ledger, key, rest).await?;
                self.unwritten.remove(&key);
            }
        }
        if !self.wants_look {
            return Ok(());
        }
        // Before the read, so that a change during it is looked at again.
        self.wants_look = false;
        let owner = *StoredRest::owner().as_bytes();
        let listed = ledger.list_records(RecordKind::KeyRest, owner, ROWS_MAX, clock::unix_time());
        let records = listed.await.inspect_err(|_| self.wants_look = true)?;
        // What this process has learned since is newer.
        self.take_waiting();
        let is_newer = |rest: &StoredRest| !self.unwritten.contains_key(&rest.key());
        let rests = records.iter().filter_map(|record| StoredRest::decode(&record.value));
        let rests: Vec<StoredRest> = rests.filter(is_newer).collect();
        self.rests.apply(&rests);
        Ok(())
    }
}

/// Writes a cooldown, or its end, unless the ledger has a later word about it.
async fn write_rest(ledger: &dyn Ledger, key: RecordKey, rest: &StoredRest) -> Result<(), LedgerError> {
    for _ in 0..TRIES_MAX {
        let now = clock::unix_time();
        let record = ledger.read(vec![key], now).await?.into_iter().flatten().next();
        let stored = record.as_ref().and_then(|record| StoredRest::decode(&record.value));
        let Some(next) = rest.applied_to(stored.as_ref()) else {
            return Ok(());
        };
        let (value, expires_at) = (next.encode(), next.expires_at(now));
        let step = match &record {
            Some(record) => CommitStep::Replace {
                key,
                version: record.version,
                value,
                expires_at,
            },
            None => CommitStep::insert_record(key, value, expires_at),
        };
        if ledger.commit(vec![step], now).await? == CommitOutcome::Done {
            return Ok(());
        }
    }
    Ok(())
}
