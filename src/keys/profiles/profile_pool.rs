//! The profiles of one upstream: their credentials, their rotation, and the pool that a reload puts in their place.

use std::{
    sync::{Arc, Mutex, OnceLock, Weak},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, futures::Notified};

use super::{
    SharedCooldowns, caller_budgets::RetryPayer, credential_cell::CredentialCell, endpoint_state::EndpointState,
    lock_shared,
};
use crate::{
    auth::{Principal, Profile},
    clock::{self, rfc3339_date},
    keys::rotation::{
        AttemptReport, CredentialState, ProfileId, ProfileQuery, ProfileStatus, Rotation, Selection, SharedCooldown,
        Slot,
    },
    policy::{Class, CooldownReason, EmptyQuota, LimitHints, Verdict},
    printable::printable_word,
    telemetry::Telemetry,
};

/// The profiles of one upstream, and the state that all its exchanges share. Empty if clients send their own credentials.
#[derive(Debug)]
pub struct ProfilePool {
    /// The upstream's name.
    pub(super) upstream: String,
    pub(super) shared: Arc<PoolListeners>,
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

/// Everything that is told of the changes of a pool.
#[derive(Debug)]
pub(super) struct PoolListeners {
    pub(super) telemetry: Telemetry,
    /// The cooldowns that other replicas share. Empty without any.
    pub(super) cooldowns: OnceLock<SharedCooldowns>,
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
struct CooldownChanges {
    /// The reason of a cooldown that has begun or become longer.
    began: Option<CooldownReason>,
    /// The cooldowns that it has begun and ended.
    changes: Vec<(Arc<Profile>, SharedCooldown)>,
}

/// The outcome of a choice.
#[derive(Debug)]
pub struct SelectedProfile {
    /// The profile, or the reason for none.
    pub selection: Selection,
    /// The place of the request; `None` unless it uses the profile now.
    pub place: Option<ProfilePlace>,
    /// The slot that the request waits for; `None` unless it waits.
    pub slot: Option<ReservedSlot>,
}

/// One attempt, whose outcome is still unknown.
#[derive(Clone, Debug)]
pub struct ObservedAttempt {
    /// The profile that is used; `None` for the client's own credential.
    pub profile: Option<ProfileId>,
    /// The model of the request.
    pub model: Option<String>,
    /// The template of the path; `None` if it is unknown.
    pub path: Option<&'static str>,
    /// The start of the attempt.
    pub began: Instant,
    /// The hash of the logical request: the same for each send, and for each retry of the client.
    pub request: u64,
    /// `true` if the attempt is the first of its exchange, and the client does not retry either.
    pub is_first: bool,
    /// `true` if a model answers such requests. Other answers prove nothing about the profile or the model's breaker.
    pub asks_model: bool,
    /// From 0 to 1: varies the length of a cooldown.
    pub jitter: f64,
    /// The caller, whose budget earns by a success and whose breaker counts failures.
    pub payer: RetryPayer,
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
    /// Returns `true` if requests to the upstream use profiles, and not the client's own credential.
    pub fn has_profiles(&self) -> bool {
        !self.profiles.is_empty()
    }

    /// Returns `true` if a profile signs requests, which requires the whole body.
    pub fn needs_body(&self) -> bool {
        let signs = |profile: &Profile| profile.credential.signs_requests();
        self.profiles.iter().any(signs)
    }

    /// Returns a profile by its id, with its present credential.
    pub fn profile(&self, id: ProfileId) -> Option<Arc<Profile>> {
        Some(self.credentials.get(id)?.load_profile())
    }

    /// Returns the id of the profile with this name.
    pub fn find_profile(&self, label: &str) -> Option<ProfileId> {
        lock_shared(&self.rotation).find_profile(label)
    }

    /// Returns the organisation of a profile, or the profile's own name if the organisation is not known.
    pub fn organisation_name(&self, id: ProfileId) -> String {
        lock_shared(&self.rotation).organisation_name(id)
    }

    /// Returns the only organisation of an upstream's profiles. `None` if there are several.
    pub fn common_organisation(&self) -> Option<String> {
        let rotation = lock_shared(&self.rotation);
        let mut names = (0..self.profiles.len()).map(|id| rotation.organisation_name(id));
        let first = names.next()?;
        names.all(|name| name == first).then_some(first)
    }

    /// Selects the profile of a send; `None` if the upstream has no profiles.
    pub fn select_profile(self: &Arc<Self>, ask: &ProfileQuery<'_>, now: Instant) -> Option<SelectedProfile> {
        if self.profiles.is_empty() {
            return None;
        }
        // The lock is released before telemetry is called.
        let (selection, slot) = self.select_sendable(ask, now);
        let mut place = None;
        if let Selection::Use { id, moved, .. } = selection {
            // Limits of models do not concern other requests.
            place = (!ask.asks_no_model).then(|| ProfilePlace::new(self, id));
            if let Some(moved) = moved {
                let from = self
                    .profiles
                    .get(moved.from)
                    .map_or("", |profile| profile.label.as_str());
                self.shared
                    .telemetry
                    .record_rotation(&self.upstream, from, moved.cause.label());
            }
        }
        let slot = slot.map(|(id, slot)| ReservedSlot::new(self, id, ask.model, slot));
        Some(SelectedProfile { selection, place, slot })
    }

    /// Takes a place in a profile that was not selected; `None` if the profile does not exist.
    pub fn take_place(self: &Arc<Self>, id: ProfileId) -> Option<ProfilePlace> {
        if id >= self.profiles.len() {
            return None;
        }
        lock_shared(&self.rotation).take_place(id);
        Some(ProfilePlace::new(self, id))
    }

    /// Returns a future that ends when the profiles have changed, so that a request which waits should ask again.
    pub fn await_change(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Returns the time until a profile may be used for a request; `None` if no time helps.
    pub fn soonest_use(&self, ask: &ProfileQuery<'_>, now: Instant) -> Option<Duration> {
        lock_shared(&self.rotation).soonest_use(ask, now)
    }

    /// Records a limit that the head of a success reports as used up.
    pub fn record_empty(&self, id: ProfileId, model: Option<&str>, empty: EmptyQuota, now: Instant) {
        lock_shared(&self.rotation).record_empty(id, model, empty, now);
    }

    /// Returns the profile that a lane has left, if it can be used for a request that only it accepts.
    pub fn former_profile(&self, from: ProfileId, ask: &ProfileQuery<'_>, now: Instant) -> Option<ProfileId> {
        lock_shared(&self.rotation).former_profile(from, ask, now)
    }

    /// Records the outcome of one attempt in the rotation, the breaker and the retry budget.
    pub fn record_attempt(&self, attempt: &ObservedAttempt, verdict: Verdict, hints: &LimitHints, now: Instant) {
        let model = attempt.model.as_deref();
        self.shared
            .telemetry
            .count_attempt(&self.upstream, verdict.class.label());
        // An answer on a path without a model has limits of its own.
        if let Some(id) = attempt.profile.filter(|_| attempt.asks_model) {
            let report = AttemptReport {
                verdict,
                model,
                path: attempt.path,
                hints: *hints,
                began: attempt.began,
                jitter: attempt.jitter,
            };
            let CooldownChanges { began, changes } = self.apply_attempt(id, &report, now);
            self.tell_cooldowns(changes);
            if let Some(reason) = began {
                let statuses = lock_shared(&self.rotation).profile_statuses(now);
                let usable = statuses.iter().zip(&self.profiles);
                let left = usable.filter(|(status, profile)| status.serves(model) && profile.allows_model(model));
                self.log_cooldown(attempt, (reason, verdict), statuses.get(id), left.count(), now);
                // Dashboards must not wait for the next refresh.
                self.shared.telemetry.announce_profiles();
            }
        }
        lock_shared(&self.links().endpoint).note_attempt(attempt, verdict, now);
    }

    /// Pays for a retry after `class`; returns `false` if the budget of the caller or of the upstream is used up.
    pub fn pay_for_retry(&self, payer: &RetryPayer, class: Class, now: Instant) -> bool {
        lock_shared(&self.links().endpoint).pay_for_retry(payer, class, now)
    }

    /// Returns `true` if a breaker of an endpoint and model blocks the proxy's own retries for this caller.
    pub fn is_breaker_open(&self, model: Option<&str>, caller: Principal, now: Instant) -> bool {
        lock_shared(&self.links().endpoint).is_breaker_open(model, caller, now)
    }

    /// Clears a profile's cooldowns on behalf of an operator. Returns `false` if the profile does not exist.
    pub(super) fn clear_cooldowns(&self, label: &str) -> bool {
        let mut rotation = lock_shared(&self.rotation);
        let id = rotation.find_profile(label);
        let is_cleared = id.is_some_and(|id| rotation.clear_cooldowns(id, clock::std_now()));
        let changes = rotation.take_changes();
        drop(rotation);
        self.tell_cooldowns(self.with_profiles(changes));
        self.changed.notify_waiters();
        is_cleared
    }

    /// Tells the other replicas of cooldowns that have begun and ended.
    fn tell_cooldowns(&self, changes: Vec<(Arc<Profile>, SharedCooldown)>) {
        let Some(cooldowns) = self.shared.cooldowns.get() else {
            return;
        };
        for (profile, cooldown) in changes {
            cooldowns.tell(&self.upstream, &profile.credential, cooldown);
        }
    }

    /// Logs a cooldown that an attempt of a profile has begun or extended: its end, and the number of profiles that are
    /// left for the model.
    fn log_cooldown(
        &self,
        attempt: &ObservedAttempt,
        (reason, verdict): (CooldownReason, Verdict),
        profile: Option<&ProfileStatus>,
        left: usize,
        now: Instant,
    ) {
        let cooldown = profile.and_then(|profile| profile.cooldown_of(reason, attempt.model.as_deref()));
        let until = cooldown.map(|cooldown| clock::system_time() + cooldown.until.saturating_duration_since(now));
        let only_model = cooldown.and_then(|cooldown| cooldown.model.as_deref());
        tracing::warn!(
            upstream = self.upstream,
            profile = profile.map(|profile| &*profile.label),
            reason = reason.label(),
            // Missing if the cooldown is for every model.
            model = only_model.map(|model| printable_word(model.as_bytes())),
            until = until.map(rfc3339_date),
            left,
            status = verdict.evidence.map(|evidence| evidence.status),
            statement = verdict.evidence.map(|evidence| evidence.statement),
            path = attempt.path,
            "profile cooldown started or extended"
        );
    }

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
            cell.rejected.notify_one();
        }
        (rotation.select_profile(ask, now), None)
    }

    /// Records the outcome of an attempt, here and in the pool that is in use now.
    fn apply_attempt(&self, id: ProfileId, report: &AttemptReport<'_>, now: Instant) -> CooldownChanges {
        let (here, successor) = self.record_here(id, report, now);
        let Some((present, id)) = successor else {
            self.report_rejection(id, here.began);
            return here;
        };
        let (recorded, _) = present.record_here(id, report, now);
        present.report_rejection(id, recorded.began);
        recorded
    }

    /// Records the outcome of an attempt in this pool. Returns the profile in the pool that a reload has put in its place,
    /// too.
    fn record_here(
        &self,
        id: ProfileId,
        report: &AttemptReport<'_>,
        now: Instant,
    ) -> (CooldownChanges, Option<(Arc<Self>, ProfileId)>) {
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
        let changes = self.with_profiles(changes);
        (CooldownChanges { began, changes }, successor)
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

    /// Tells a credential's source that the provider has rejected it: the source may have a newer one.
    fn report_rejection(&self, id: ProfileId, cooldown: Option<CooldownReason>) {
        if let Some(cell) = self
            .credentials
            .get(id)
            .filter(|_| cooldown == Some(CooldownReason::Auth))
        {
            cell.rejected.notify_one();
        }
    }

    /// Stores the organisation that a profile's answers name, here and in the pool that is in use now.
    pub fn learn_organisation(&self, id: ProfileId, organisation: &str) {
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
