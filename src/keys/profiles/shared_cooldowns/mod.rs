//! Cooldowns of keys that replicas with one ledger share: one that begins at one of them holds at all.
//!
//! Only what a provider's answer says about a credential is shared, under a keyed hash of upstream and credential. A replica
//! is right by itself while the ledger is away, and tells the others later.

mod stored_cooldown;
mod worker;

use std::sync::{Arc, Mutex, Weak};

use tokio::sync::{Notify, mpsc};

use super::{SharedPools, lock_shared};
use crate::{
    auth::{Credential, CredentialKey},
    clock,
    keys::rotation::SharedCooldown,
    ledger::Ledger,
};
use stored_cooldown::StoredCooldown;
pub use worker::SharedCooldownWorker;

/// The cooldowns that may wait for the worker. Of more, the others learn by themselves.
const WAITING_MAX: usize = 4_096;

/// The cooldowns that this process shares with others. Cheap to clone.
#[derive(Clone, Debug)]
pub struct SharedCooldowns(Arc<SharedCooldownsInner>);

#[derive(Debug)]
struct SharedCooldownsInner {
    key: CredentialKey,
    /// Cooldowns on their way to the ledger.
    changes: mpsc::Sender<StoredCooldown>,
    /// The pools that get the cooldowns of others: those of the present configuration, and of earlier ones while exchanges
    /// use them.
    pools: Mutex<Vec<Weak<SharedPools>>>,
    /// Notified when a process may have keys whose cooldowns it has not looked for.
    keys_changed: Notify,
}

impl SharedCooldowns {
    /// Creates the cooldowns that are shared over a ledger, and their worker. `None` if no other process uses the ledger.
    pub fn over_ledger(ledger: &Arc<dyn Ledger>) -> Option<(Self, SharedCooldownWorker)> {
        let events = ledger.changes().subscribe()?;
        let (changes, waiting) = mpsc::channel(WAITING_MAX);
        let cooldowns = Self(Arc::new(SharedCooldownsInner {
            key: CredentialKey::from_ledger_secret(&ledger.secret()),
            changes,
            pools: Mutex::default(),
            keys_changed: Notify::new(),
        }));
        let worker = SharedCooldownWorker::new(cooldowns.clone(), Arc::downgrade(ledger), (waiting, events));
        Some((cooldowns, worker))
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
            // A full queue loses it: the others learn of it from the provider.
            drop(self.0.changes.try_send(stored));
        }
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
