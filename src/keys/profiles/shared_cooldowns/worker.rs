//! The worker that exchanges cooldowns with other processes over their ledger.

use std::{collections::HashMap, sync::Weak, time::Duration};

use tokio::{
    sync::{
        broadcast::{self, error::RecvError},
        mpsc,
    },
    time::{interval, sleep},
};

use super::{SharedCooldowns, stored_cooldown::StoredCooldown};
use crate::{
    clock,
    ledger::{ChangeEvent, CommitStep, Ledger, LedgerError, ROWS_MAX, RecordKey, RecordKind, update_records},
};

/// The time between two reads while other processes cannot tell of their changes, and after a failure.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a read. Of many changes at once, all are read together.
const GATHER_PAUSE: Duration = Duration::from_millis(100);
/// The most cooldowns that wait for the ledger, and that are read from it.
const UNWRITTEN_MAX: usize = 4_096;

/// The worker. Nothing is shared unless it runs.
#[derive(Debug)]
pub struct SharedCooldownWorker {
    cooldowns: SharedCooldowns,
    ledger: Weak<dyn Ledger>,
    waiting: mpsc::Receiver<StoredCooldown>,
    events: broadcast::Receiver<ChangeEvent>,
    /// Cooldowns that the ledger lacks.
    unwritten: HashMap<RecordKey, StoredCooldown>,
    /// `true` if the ledger may have cooldowns that this process does not know.
    wants_read: bool,
}

impl SharedCooldownWorker {
    pub(super) fn new(
        cooldowns: SharedCooldowns,
        ledger: Weak<dyn Ledger>,
        (waiting, events): (mpsc::Receiver<StoredCooldown>, broadcast::Receiver<ChangeEvent>),
    ) -> Self {
        Self {
            cooldowns,
            ledger,
            waiting,
            events,
            unwritten: HashMap::new(),
            wants_read: true,
        }
    }

    /// Exchanges cooldowns until the ledger is dropped.
    pub async fn run(mut self) {
        let mut polls = interval(POLL_INTERVAL);
        loop {
            tokio::select! {
                Some(cooldown) = self.waiting.recv() => self.add_unwritten(cooldown),
                () = self.cooldowns.keys_changed() => self.wants_read = true,
                event = self.events.recv() => match event {
                    Ok(ChangeEvent::Changed(change)) => self.wants_read |= change.kind == RecordKind::SharedCooldown,
                    Ok(ChangeEvent::Gap) | Err(RecvError::Lagged(_)) => self.wants_read = true,
                    Err(RecvError::Closed) => return,
                },
                _ = polls.tick() => {
                    let Some(ledger) = self.ledger.upgrade() else { return };
                    self.wants_read |= ledger.changes().epoch().is_none();
                }
            }
            if self.unwritten.is_empty() && !self.wants_read {
                continue;
            }
            let Some(ledger) = self.ledger.upgrade() else { return };
            let pause = match self.exchange(&*ledger).await {
                Ok(()) => GATHER_PAUSE,
                // The cooldowns of this process hold all the same.
                Err(_) => POLL_INTERVAL,
            };
            drop(ledger);
            sleep(pause).await;
        }
    }

    /// Adds what this process has learned to what the ledger lacks.
    fn add_unwritten(&mut self, cooldown: StoredCooldown) {
        if self.unwritten.len() >= UNWRITTEN_MAX {
            // The others learn of the cooldown from the provider.
            return;
        }
        let key = cooldown.key();
        let merged = self.unwritten.get(&key).map(|earlier| cooldown.merged_with(earlier));
        self.unwritten.insert(key, merged.unwrap_or(cooldown));
    }

    fn take_waiting(&mut self) {
        while let Ok(cooldown) = self.waiting.try_recv() {
            self.add_unwritten(cooldown);
        }
    }

    /// Writes what the ledger lacks, and applies what it has.
    async fn exchange(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        self.take_waiting();
        let written = self.write_all(ledger).await;
        // A ledger without room is still read.
        let read = self.read_all(ledger).await;
        written.and(read)
    }

    /// Writes what the ledger lacks. What fails is tried again later, and nothing else waits for it.
    async fn write_all(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        let now = clock::unix_time();
        self.unwritten.retain(|_, cooldown| !cooldown.is_over(now));
        let keys: Vec<RecordKey> = self.unwritten.keys().copied().collect();
        let mut all = Ok(());
        for key in keys {
            let Some(cooldown) = self.unwritten.get(&key) else {
                continue;
            };
            match write_cooldown(ledger, key, cooldown).await {
                Ok(()) => drop(self.unwritten.remove(&key)),
                Err(error) => all = Err(error),
            }
        }
        all
    }

    /// Applies what the ledger has, if it may have anything new.
    async fn read_all(&mut self, ledger: &dyn Ledger) -> Result<(), LedgerError> {
        // Before the read, so that a change during it is read again.
        if !std::mem::take(&mut self.wants_read) {
            return Ok(());
        }
        let owner = *StoredCooldown::owner().as_bytes();
        let (mut cooldowns, mut after) = (Vec::new(), 0);
        while cooldowns.len() < UNWRITTEN_MAX {
            let list = ledger.list_after(RecordKind::SharedCooldown, owner, after, ROWS_MAX, clock::unix_time());
            let page = list.await.inspect_err(|_| self.wants_read = true)?;
            cooldowns.extend(
                page.iter()
                    .filter_map(|(_, record)| StoredCooldown::decode(&record.value)),
            );
            let Some((last, _)) = page.last().filter(|_| page.len() == ROWS_MAX) else {
                break;
            };
            after = *last;
        }
        // What this process has learned since is newer.
        self.take_waiting();
        cooldowns.retain(|cooldown| !self.unwritten.contains_key(&cooldown.key()));
        self.cooldowns.apply(&cooldowns);
        Ok(())
    }
}

/// Writes a cooldown, or its end, unless the ledger has a later word about it.
async fn write_cooldown(ledger: &dyn Ledger, key: RecordKey, cooldown: &StoredCooldown) -> Result<(), LedgerError> {
    update_records(ledger, [key], |[record], now| {
        let stored = record.as_ref().and_then(|record| StoredCooldown::decode(&record.value));
        let next = cooldown.applied_to(stored.as_ref());
        let step = next.map(|next| CommitStep::put_record(key, record.as_ref(), next.encode(), next.expires_at(now)));
        (step.into_iter().collect(), ())
    })
    .await
}
