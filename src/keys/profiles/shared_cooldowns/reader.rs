//! The task that reads the cooldowns of other processes from their common ledger.

use std::time::Duration;

use tokio::{
    sync::broadcast::{self, error::RecvError},
    time::{interval, sleep},
};

use super::{SharedCooldowns, stored_cooldown::StoredCooldown};
use crate::{
    clock,
    ledger::{ChangeEvent, Ledger, LedgerError, ROWS_MAX, RecordKind},
};

/// The time between two reads while other processes cannot tell of their changes, and after a failure.
const POLL_INTERVAL: Duration = Duration::from_secs(1);
/// The pause after a read. Of many changes at once, all are read together.
const GATHER_PAUSE: Duration = Duration::from_millis(100);
/// The most cooldowns that are read.
const COOLDOWNS_MAX: usize = 4_096;

/// The reader. This process learns of no cooldown of others unless it runs.
#[derive(Debug)]
pub struct SharedCooldownReader {
    cooldowns: SharedCooldowns,
    events: broadcast::Receiver<ChangeEvent>,
}

impl SharedCooldownReader {
    pub(super) const fn new(cooldowns: SharedCooldowns, events: broadcast::Receiver<ChangeEvent>) -> Self {
        Self { cooldowns, events }
    }

    /// Reads cooldowns until the ledger is dropped.
    pub async fn run(mut self) {
        let mut polls = interval(POLL_INTERVAL);
        // The ledger may have cooldowns that this process does not know.
        let mut wants_read = true;
        loop {
            tokio::select! {
                () = self.cooldowns.keys_changed() => wants_read = true,
                event = self.events.recv() => match event {
                    Ok(ChangeEvent::Changed(change)) => wants_read |= change.kind == RecordKind::SharedCooldown,
                    Ok(ChangeEvent::Gap) | Err(RecvError::Lagged(_)) => wants_read = true,
                    Err(RecvError::Closed) => return,
                },
                _ = polls.tick() => {
                    let Some(ledger) = self.cooldowns.0.ledger.upgrade() else { return };
                    wants_read |= ledger.changes().epoch().is_none();
                }
            }
            if !wants_read {
                continue;
            }
            let Some(ledger) = self.cooldowns.0.ledger.upgrade() else {
                return;
            };
            // A failed read is repeated, and so is one during which this process has changed something.
            let pause = match self.read_all(&*ledger).await {
                Ok(is_whole) => {
                    wants_read = !is_whole;
                    GATHER_PAUSE
                }
                // The cooldowns of this process hold all the same.
                Err(_) => POLL_INTERVAL,
            };
            drop(ledger);
            sleep(pause).await;
        }
    }

    /// Applies what the ledger has, apart from what this process is about to write. Returns `false` if this process has
    /// learned or written more meanwhile: some of it may be older, and the next read finds that.
    async fn read_all(&self, ledger: &dyn Ledger) -> Result<bool, LedgerError> {
        let changes = self.cooldowns.change_count();
        let owner = *StoredCooldown::owner().as_bytes();
        let (mut cooldowns, mut after) = (Vec::new(), 0);
        while cooldowns.len() < COOLDOWNS_MAX {
            let list = ledger.list_after(RecordKind::SharedCooldown, owner, after, ROWS_MAX, clock::unix_time());
            let page = list.await?;
            cooldowns.extend(
                page.iter()
                    .filter_map(|(_, record)| StoredCooldown::decode(&record.value)),
            );
            let Some((last, _)) = page.last().filter(|_| page.len() == ROWS_MAX) else {
                break;
            };
            after = *last;
        }
        cooldowns.retain(|cooldown| !self.cooldowns.is_unwritten(cooldown));
        self.cooldowns.apply(&cooldowns);
        Ok(self.cooldowns.change_count() == changes)
    }
}
