//! The profiles of one upstream: their credentials, their rotation, and the pool that a reload puts in their place.

use std::{
    sync::{Arc, Mutex, OnceLock, Weak},
    time::Instant,
};

use tokio::sync::Notify;

use super::{credential_cell::CredentialCell, endpoint_state::EndpointState, lock_shared};
use crate::{
    auth::Profile,
    clock,
    keys::rotation::{
        AttemptReport, CredentialState, ProfileId, ProfileQuery, Rotation, Selection, SharedCooldown, Slot,
    },
    policy::Reason,
};

/// The profiles of one upstream.
#[derive(Debug)]
pub(super) struct ProfilePool {
    pub(super) profiles: Vec<Profile>,
    /// The present credentials, by profile.
    pub(super) credentials: Vec<CredentialCell>,
    pub(super) rotation: Mutex<Rotation>,
    /// Notified if a profile may be ready sooner or later than requests that wait for it expect, and if a credential has
    /// come or its source has failed.
    pub(super) changed: Notify,
    /// Set when the pool is first used, or when it takes the place of another.
    pub(super) links: OnceLock<PoolLinks>,
}

/// The state that a pool shares with those that reloads have replaced or will put in its place.
#[derive(Clone, Debug, Default)]
pub(super) struct PoolLinks {
    pub(super) endpoint: Arc<Mutex<EndpointState>>,
    /// The pool of the last reload. Weak, so that a pool lives only as long as something uses it.
    pub(super) present: Arc<Mutex<Weak<ProfilePool>>>,
}

/// The consequences of an attempt.
#[derive(Debug)]
pub(super) struct RecordedAttempt {
    /// The reason of a cooldown that has begun or become longer.
    pub(super) began: Option<Reason>,
    /// The cooldowns that it has begun and ended.
    pub(super) changes: Vec<(Arc<Profile>, SharedCooldown)>,
}

/// A request's place in a profile. The place becomes free if this is dropped.
#[derive(Debug)]
pub struct ProfilePlace {
    pool: Arc<ProfilePool>,
    id: ProfileId,
}

impl ProfilePlace {
    /// Wraps a place that was taken.
    pub(super) fn new(pool: &Arc<ProfilePool>, id: ProfileId) -> Self {
        Self {
            pool: Arc::clone(pool),
            id,
        }
    }
}

/// A slot that a waiting request has reserved. It is given back if this is dropped unused.
#[derive(Debug)]
pub struct ReservedSlot {
    pool: Arc<ProfilePool>,
    id: ProfileId,
    model: Option<String>,
    slot: Slot,
    is_used: bool,
}

impl ReservedSlot {
    /// Wraps a slot that was taken.
    pub(super) fn new(pool: &Arc<ProfilePool>, id: ProfileId, model: Option<&str>, slot: Slot) -> Self {
        Self {
            pool: Arc::clone(pool),
            id,
            model: model.map(ToOwned::to_owned),
            slot,
            is_used: false,
        }
    }

    /// Returns the profile and the slot.
    pub const fn slot(&self) -> (ProfileId, Slot) {
        (self.id, self.slot)
    }

    /// Ends the reservation, because the request uses its slot, or reserves it again.
    pub fn mark_used(&mut self) {
        self.is_used = true;
    }
}

impl Drop for ReservedSlot {
    fn drop(&mut self) {
        if !self.is_used {
            let now = clock::std_now();
            lock_shared(&self.pool.rotation).return_slot(self.id, self.model.as_deref(), self.slot, now);
        }
    }
}

impl Drop for ProfilePlace {
    fn drop(&mut self) {
        lock_shared(&self.pool.rotation).release_place(self.id);
        let profile = self.pool.profiles.get(self.id);
        if profile.is_some_and(|profile| profile.max_concurrent.is_some()) {
            self.pool.changed.notify_waiters();
        }
    }
}

impl ProfilePool {
    pub(super) fn links(&self) -> &PoolLinks {
        self.links.get_or_init(PoolLinks::default)
    }

    /// Selects a profile with a credential that can be sent. Returns the slot for which a request has to wait, too.
    pub(super) fn select_sendable(
        &self,
        ask: &ProfileQuery<'_>,
        now: Instant,
    ) -> (Selection, Option<(ProfileId, Slot)>) {
        let mut rotation = lock_shared(&self.rotation);
        // Once for each profile at most: one that has lost its credential is not selected again.
        for _ in 0..self.profiles.len() {
            let selection = rotation.select_profile(ask, now);
            let used = match selection {
                Selection::Use { id, .. } => self.credentials.get(id).map(|cell| (id, cell)),
                _ => None,
            };
            let Some((id, cell)) = used.filter(|(_, cell)| cell.has_lost_credential()) else {
                let slot = rotation.commit_selection(ask, &selection, now);
                return (selection, slot);
            };
            // The process's clock stands still while the machine sleeps, so the rotation did not see the end.
            rotation.set_credential_state(id, CredentialState::Missing);
            cell.refused.notify_one();
        }
        (rotation.select_profile(ask, now), None)
    }

    /// Records the outcome of an attempt, here and in the pool that is in use now.
    pub(super) fn apply_attempt(&self, id: ProfileId, report: &AttemptReport<'_>, now: Instant) -> RecordedAttempt {
        let mut rotation = lock_shared(&self.rotation);
        let before = rotation.early_ends();
        let began = rotation.record_attempt(id, report, now);
        let changes = rotation.take_changes();
        let has_changed = began.is_some() || rotation.early_ends() != before;
        // Found under the lock, so that a reload at this moment neither loses the report nor counts it twice.
        let successor = self.find_successor(id);
        drop(rotation);
        if has_changed {
            self.changed.notify_waiters();
        }
        let Some((present, id)) = successor else {
            self.report_refusal(id, began);
            return RecordedAttempt {
                began,
                changes: self.with_profiles(changes),
            };
        };
        let mut rotation = lock_shared(&present.rotation);
        let began = rotation.record_attempt(id, report, now);
        let changes = rotation.take_changes();
        drop(rotation);
        present.changed.notify_waiters();
        present.report_refusal(id, began);
        RecordedAttempt {
            began,
            changes: present.with_profiles(changes),
        }
    }

    /// Returns cooldowns with the profiles, and their present credentials, that they belong to.
    pub(super) fn with_profiles(
        &self,
        changes: Vec<(ProfileId, SharedCooldown)>,
    ) -> Vec<(Arc<Profile>, SharedCooldown)> {
        let profile = |id: ProfileId| Some(self.credentials.get(id)?.load_profile());
        let changes = changes.into_iter();
        changes
            .filter_map(|(id, cooldown)| Some((profile(id)?, cooldown)))
            .collect()
    }

    /// Applies the cooldown of another process to the profiles that `is_its` accepts. Returns `true` if that is news for
    /// one of them.
    pub(super) fn apply_cooldown(
        &self,
        cooldown: &SharedCooldown,
        now: Instant,
        is_its: impl Fn(&Profile) -> bool,
    ) -> bool {
        let cells = self.credentials.iter().enumerate();
        let its = cells.filter(|(_, cell)| is_its(&cell.load_profile())).map(|(id, _)| id);
        let its: Vec<ProfileId> = its.collect();
        let mut rotation = lock_shared(&self.rotation);
        let mut has_changed = false;
        for id in its {
            has_changed |= rotation.apply_cooldown(id, cooldown, now);
        }
        drop(rotation);
        if has_changed {
            self.changed.notify_waiters();
        }
        has_changed
    }

    /// Tells a credential's source that the provider has refused it: the source may have a newer one.
    fn report_refusal(&self, id: ProfileId, cooldown: Option<Reason>) {
        if let Some(cell) = self.credentials.get(id).filter(|_| cooldown == Some(Reason::Auth)) {
            cell.refused.notify_one();
        }
    }

    /// Stores the organisation that a profile's answers name, here and in the pool that is in use now.
    pub(super) fn learn_organisation(&self, id: ProfileId, organisation: &str) {
        let mut rotation = lock_shared(&self.rotation);
        rotation.learn_organisation(id, organisation);
        let successor = self.find_successor(id);
        drop(rotation);
        if let Some((present, id)) = successor {
            lock_shared(&present.rotation).learn_organisation(id, organisation);
        }
    }

    /// Returns the pool that a reload has put in this one's place, and the profile's id there.
    fn find_successor(&self, id: ProfileId) -> Option<(Arc<Self>, ProfileId)> {
        let present = lock_shared(&self.links.get()?.present).upgrade()?;
        if std::ptr::eq(Arc::as_ptr(&present), self) {
            return None;
        }
        let own = self.credentials.get(id)?;
        let id = present.credentials.iter().position(|cell| cell.continues(own))?;
        Some((present, id))
    }
}
