//! Cooldowns of keys that replicas with one ledger share: one that begins at one of them holds at all.
//!
//! Only what a provider's answer says about a credential is shared, under a keyed hash of upstream and credential. A replica
//! is right by itself while the ledger is away, and tells the others later.

mod cooldown_write;
mod reader;
mod stored_cooldown;

use std::sync::{
    Arc, Mutex, Weak,
    atomic::{AtomicU64, Ordering},
};

use tokio::sync::Notify;

use super::{SharedPools, lock_shared};
use crate::{
    auth::{Credential, CredentialKey},
    clock,
    keys::rotation::SharedCooldown,
    ledger::Ledger,
    table::TableParts,
    writer::{Subject, Writer},
};
use cooldown_write::CooldownWrite;
pub use reader::SharedCooldownReader;
use stored_cooldown::StoredCooldown;

/// The cooldowns that this process shares with others. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedCooldowns(Arc<SharedCooldownsInner>);

#[derive(Debug)]
struct SharedCooldownsInner {
    key: CredentialKey,
    ledger: Weak<dyn Ledger>,
    writer: Writer,
    /// Counts the cooldowns that were given to the writer, and its writes.
    changes: Arc<AtomicU64>,
    /// The pools that get the cooldowns of others: those of the present configuration, and of earlier ones while exchanges
    /// use them.
    pools: Mutex<Vec<Weak<SharedPools>>>,
    /// Notified when a process may have keys whose cooldowns it has not looked for.
    keys_changed: Notify,
}

impl SharedCooldowns {
    /// Creates the cooldowns that are shared over a ledger, and what reads those of others. `None` if no other process uses
    /// the ledger.
    pub fn over_ledger(parts: &TableParts) -> Option<(Self, SharedCooldownReader)> {
        let events = parts.ledger().changes().subscribe()?;
        let cooldowns = Self(Arc::new(SharedCooldownsInner {
            key: CredentialKey::from_ledger_secret(&parts.ledger().secret()),
            ledger: Arc::downgrade(parts.ledger()),
            writer: parts.writer().clone(),
            changes: Arc::default(),
            pools: Mutex::default(),
            keys_changed: Notify::new(),
        }));
        let reader = SharedCooldownReader::new(cooldowns.clone(), events);
        Some((cooldowns, reader))
    }

    /// Adds pools that get the cooldowns of other processes, also the present ones.
    pub(super) fn add_pools(&self, pools: &Arc<SharedPools>) {
        let mut known = lock_shared(&self.0.pools);
        known.retain(|pools| pools.strong_count() > 0);
        known.push(Arc::downgrade(pools));
        drop(known);
        self.note_new_keys();
    }

    /// Notes that a profile has another key, which others may know to be in cooldown.
    pub(super) fn note_new_keys(&self) {
        self.0.keys_changed.notify_one();
    }

    /// Waits until a profile may have another key.
    async fn keys_changed(&self) {
        self.0.keys_changed.notified().await;
    }

    /// Tells other processes of a cooldown. Does not wait.
    pub(super) fn tell(&self, upstream: &str, credential: &Credential, cooldown: SharedCooldown) {
        if let Some(tag) = self.0.key.hash_credential(upstream, credential) {
            let stored = StoredCooldown::of_shared(tag, cooldown, (clock::std_now(), clock::unix_time()));
            self.0.changes.fetch_add(1, Ordering::Relaxed);
            let write = CooldownWrite::new(self.0.ledger.clone(), Arc::clone(&self.0.changes), stored);
            self.0.writer.queue(write);
        }
    }

    /// Returns the number of changes that this process has begun or written.
    fn change_count(&self) -> u64 {
        self.0.changes.load(Ordering::Relaxed)
    }

    /// Returns `true` if this process has newer word about a cooldown, which the ledger does not have yet.
    fn is_unwritten(&self, cooldown: &StoredCooldown) -> bool {
        self.0.writer.is_about(&Subject::of_record(&cooldown.key()))
    }

    /// Applies the cooldowns of a ledger.
    fn apply(&self, cooldowns: &[StoredCooldown]) {
        let now = (clock::std_now(), clock::unix_time());
        let pools: Vec<Arc<SharedPools>> = lock_shared(&self.0.pools).iter().filter_map(Weak::upgrade).collect();
        let hash = |upstream: &str, credential: &Credential| self.0.key.hash_credential(upstream, credential);
        for cooldown in cooldowns {
            let shared = cooldown.to_shared(now);
            for pools in &pools {
                pools.apply_cooldown(&cooldown.tag, &shared, &hash);
            }
        }
    }
}
