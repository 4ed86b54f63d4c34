//! The table of bodies in memory: bytes of each, order of those that wait, and the choice of those to evict.
//!
//! Pure but for the wakers that it keeps: `body_memory` waits, wakes and reads the clock.

use std::{
    collections::{BTreeMap, HashMap},
    task::Waker,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    BudgetClient,
    table_share::{ClientTotal, Share, ShareKind, ShareUse},
    waiting_shares::{ShareId, WaitingShares},
};
use crate::digest::DigestHashBuilder;

/// The fraction of the memory that only small bodies use: one sixteenth.
const SMALL_DIVISOR: u64 = 16;
/// The fraction of the memory that one client leaves to others: a quarter.
const OTHERS_DIVISOR: u64 = 4;
/// The most bodies that are evicted at once.
const EVICTED_MAX: usize = 64;

/// Pause before further bodies are evicted, if those before were not enough.
pub(super) const EVICTION_PAUSE: Duration = Duration::from_secs(1);

/// Bodies in memory.
#[derive(Debug)]
pub(super) struct BodyTable {
    bytes_max: u64,
    bytes: u64,
    next_id: ShareId,
    shares: BTreeMap<ShareId, Share>,
    clients: HashMap<BudgetClient, ClientTotal, DigestHashBuilder>,
    /// Large shares for the processing of bodies that wait.
    waiting_processing: WaitingShares,
    /// Small shares that wait.
    waiting_small: WaitingShares,
    /// Large bodies that wait.
    waiting_large: WaitingShares,
    /// Those of all three that skip their queue.
    waiting_skipping: WaitingShares,
    /// Times at which large processing got memory.
    processing_grants: u64,
    /// Bodies that could be evicted.
    evictable: usize,
    /// Bodies that were evicted, and are not released yet.
    evicted: usize,
    /// Time before which no further body is evicted.
    next_eviction_at: Option<Instant>,
    /// Until this time, no body can be evicted for a client that holds so many bytes, or more: it is not looked for again.
    vain_search: Option<(Instant, u64)>,
    /// Address space that bodies have reserved.
    reserved: u64,
}

/// Outcome of [`BodyTable::try_grow`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GrowOutcome {
    /// The share has so many bytes more: those that were asked for at least.
    Grown(u64),
    Waiting,
    Evicted,
}

/// Outcome of [`BodyTable::evict_for`].
#[derive(Debug)]
pub(super) enum Eviction {
    /// Other bodies were evicted. Their tasks must be woken.
    Others(Vec<Waker>),
    /// The body that waits is evicted itself. So are others, whose tasks must be woken.
    Waiter(Vec<Waker>),
    /// Nobody for now.
    Nobody,
}

impl BodyTable {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self {
            bytes_max,
            bytes: 0,
            next_id: 0,
            shares: BTreeMap::new(),
            clients: HashMap::with_hasher(DigestHashBuilder::new()),
            waiting_processing: WaitingShares::default(),
            waiting_small: WaitingShares::default(),
            waiting_large: WaitingShares::default(),
            waiting_skipping: WaitingShares::default(),
            processing_grants: 0,
            evictable: 0,
            evicted: 0,
            next_eviction_at: None,
            vain_search: None,
            reserved: 0,
        }
    }

    /// Adds a share without any bytes. `claimed` is the length of a body that its client claims.
    pub(super) fn open(&mut self, client: BudgetClient, kind: ShareKind, claimed: Option<u64>) -> ShareId {
        let id = self.next_id;
        self.next_id = id.wrapping_add(1);
        let own = self.clients.entry(client).or_default();
        own.shares += 1;
        own.bodies += usize::from(kind == ShareKind::Body);
        self.shares.insert(
            id,
            Share {
                client,
                kind,
                bytes: 0,
                claimed: claimed.unwrap_or(0),
                wanted: 0,
                is_reading: kind == ShareKind::Body,
                is_evicted: false,
                skips_queue: false,
                grants_seen: self.processing_grants,
                reserved: 0,
                waker: None,
            },
        );
        id
    }

    /// Takes `bytes` more for a body that is being read, if they are free and no older body waits for them.
    ///
    /// A large body that had to wait takes all the rest of its claimed length at once: so the memory that is freed lets
    /// one body after the other finish. In equal parts none of them might.
    pub(super) fn try_grow(&mut self, id: ShareId, bytes: u64) -> GrowOutcome {
        let Some(share) = self.shares.get(&id).filter(|share| !share.is_evicted) else {
            return GrowOutcome::Evicted;
        };
        let (share_use, client, skips_queue) = (share.use_with(bytes), share.client, share.skips_queue);
        if share.bytes.saturating_add(bytes) > self.limit_of(share_use) {
            // It would wait for memory that can never be free.
            return GrowOutcome::Evicted;
        }
        let rest = if share_use == ShareUse::LargeBody {
            bytes.max(share.claimed.saturating_sub(share.bytes))
        } else {
            bytes
        };
        let wanted = if share.wanted > 0 { rest } else { bytes };
        let may_grow = skips_queue || self.is_in_turn(id, share_use);
        if may_grow && self.is_free(share_use, wanted) && !self.is_held_back(share, wanted) {
            self.stop_waiting(id);
            self.add(id, wanted);
            self.processing_grants += u64::from(share_use == ShareUse::Processing);
            return GrowOutcome::Grown(wanted);
        }
        if let Some(share) = self.shares.get_mut(&id) {
            share.wanted = rest;
        }
        match share_use {
            ShareUse::Processing => &mut self.waiting_processing,
            ShareUse::Small => &mut self.waiting_small,
            ShareUse::LargeBody => &mut self.waiting_large,
        }
        .insert(client, id);
        if skips_queue {
            self.waiting_skipping.insert(client, id);
        }
        GrowOutcome::Waiting
    }

    /// Returns the bytes up to which shares of this use may fill the memory. Large ones leave some free, so that they cannot
    /// delay small ones of other clients.
    const fn limit_of(&self, share_use: ShareUse) -> u64 {
        match share_use {
            ShareUse::Small => self.bytes_max,
            ShareUse::Processing | ShareUse::LargeBody => self.bytes_max - self.bytes_max / SMALL_DIVISOR,
        }
    }

    /// Returns `true` if no other share must get memory before this one.
    fn is_in_turn(&self, id: ShareId, share_use: ShareUse) -> bool {
        // What becomes free goes to the processing of bodies, until none of it waits that may grow.
        let is_behind_processing =
            share_use == ShareUse::LargeBody && self.first_waiting(ShareUse::Processing).is_some();
        !is_behind_processing && self.first_waiting(share_use).is_none_or(|first| first >= id)
    }

    /// Returns `true` if there is memory for `more` bytes of this use.
    const fn is_free(&self, share_use: ShareUse, more: u64) -> bool {
        self.bytes.saturating_add(more) <= self.limit_of(share_use)
    }

    /// Returns `true` if a client with several bodies would be above its limit with `more` bytes.
    ///
    /// The bodies of one client, which its provider may be slow to take, must not fill the memory for all others.
    fn is_above_limit(&self, share: &Share, more: u64) -> bool {
        // The client holds no more than all together, so it mostly need not be looked up.
        if self.bytes.saturating_add(more) <= self.client_limit() {
            return false;
        }
        let own = self.clients.get(&share.client).copied().unwrap_or_default();
        own.bodies > 1 && own.bytes.saturating_add(more) > self.client_limit()
    }

    /// Returns `true` if the limit of its client lets a share not grow by `more` bytes.
    fn is_held_back(&self, share: &Share, more: u64) -> bool {
        // One pass at a time lets the client's bodies finish one after the other.
        self.is_above_limit(share, more) && !self.is_only_pass(share)
    }

    /// Returns `true` if what a share waits for is free, and the limit of its client lets it grow by that.
    fn has_room(&self, share: &Share) -> bool {
        self.is_free(share.use_with(share.wanted), share.wanted) && !self.is_held_back(share, share.wanted)
    }

    /// Returns `true` for scratch memory if its client has no other.
    fn is_only_pass(&self, share: &Share) -> bool {
        let own_scratch = self.clients.get(&share.client).map_or(0, |own| own.scratch_bytes);
        share.kind == ShareKind::Scratch && own_scratch == share.bytes
    }

    const fn client_limit(&self) -> u64 {
        self.bytes_max - self.bytes_max / OTHERS_DIVISOR
    }

    /// Returns the oldest share of this use that waits, and whose client is not above its limit. Others wait behind it: a
    /// client above its limit must not make others wait. Few clients can be above theirs at once, so the search is short.
    fn first_waiting(&self, share_use: ShareUse) -> Option<ShareId> {
        self.oldest_of(self.waiting_of(share_use), |share| {
            !self.is_above_limit(share, share.wanted)
        })
    }

    /// Returns the oldest of these shares that `is_meant`, among the oldest of each client.
    fn oldest_of(&self, waiting: &WaitingShares, is_meant: impl Fn(&Share) -> bool) -> Option<ShareId> {
        let is_meant = |id: &ShareId| self.shares.get(id).is_some_and(&is_meant);
        waiting.oldest_of_each().find(is_meant)
    }

    const fn waiting_of(&self, share_use: ShareUse) -> &WaitingShares {
        match share_use {
            ShareUse::Small => &self.waiting_small,
            ShareUse::Processing => &self.waiting_processing,
            ShareUse::LargeBody => &self.waiting_large,
        }
    }

    /// Counts `bytes` more of a body, whether or not they are free.
    pub(super) fn add(&mut self, id: ShareId, bytes: u64) {
        self.change(id, |share| share.bytes = share.bytes.saturating_add(bytes));
    }

    /// Gives back `bytes` of a body.
    pub(super) fn give_back(&mut self, id: ShareId, bytes: u64) {
        self.change(id, |share| share.bytes = share.bytes.saturating_sub(bytes));
    }

    /// Changes a share, and keeps the sums right.
    fn change(&mut self, id: ShareId, change: impl FnOnce(&mut Share)) {
        let Some(share) = self.shares.get_mut(&id) else { return };
        let (bytes, scratch, was_evictable) = (share.bytes, share.scratch_bytes(), usize::from(share.is_evictable()));
        change(share);
        let is_evictable = usize::from(share.is_evictable());
        if (bytes, scratch, was_evictable) == (share.bytes, share.scratch_bytes(), is_evictable) {
            return;
        }
        let own = self.clients.entry(share.client).or_default();
        let new_sum = |sum: u64| sum.saturating_sub(bytes).saturating_add(share.bytes);
        (own.bytes, self.bytes) = (new_sum(own.bytes), new_sum(self.bytes));
        own.scratch_bytes = own.scratch_bytes.saturating_sub(scratch) + share.scratch_bytes();
        let new_count = |count: usize| count.saturating_sub(was_evictable).saturating_add(is_evictable);
        (own.evictable, self.evictable) = (new_count(own.evictable), new_count(self.evictable));
    }

    /// Makes scratch memory a copy, which stays.
    pub(super) fn keep_as_copy(&mut self, id: ShareId) {
        self.change(id, |share| share.kind = ShareKind::Copy);
    }

    /// Notes that the whole body has been read. Returns `false` if it was evicted.
    pub(super) fn end_reading(&mut self, id: ShareId) -> bool {
        self.stop_waiting(id);
        self.change(id, |share| {
            share.is_reading &= share.is_evicted;
            share.waker = None;
        });
        self.shares.get(&id).is_some_and(|share| !share.is_evicted)
    }

    /// Removes a body with its bytes.
    pub(super) fn release(&mut self, id: ShareId) {
        self.stop_waiting(id);
        self.give_back(id, u64::MAX);
        let Some(share) = self.shares.remove(&id) else { return };
        self.reserved = self.reserved.saturating_sub(share.reserved);
        self.evicted = self.evicted.saturating_sub(usize::from(share.is_evicted));
        match self.clients.get_mut(&share.client) {
            Some(own) if own.shares > 1 => {
                own.shares -= 1;
                own.bodies -= usize::from(share.kind == ShareKind::Body);
            }
            // Removed with the last share, so that the map does not grow with every client.
            _ => drop(self.clients.remove(&share.client)),
        }
    }

    /// Notes that a body does not wait any more.
    pub(super) fn stop_waiting(&mut self, id: ShareId) {
        let Some(share) = self.shares.get_mut(&id).filter(|share| share.wanted > 0) else {
            return;
        };
        share.wanted = 0;
        for waiting in [
            &mut self.waiting_processing,
            &mut self.waiting_small,
            &mut self.waiting_large,
            &mut self.waiting_skipping,
        ] {
            waiting.remove(share.client, id);
        }
    }

    /// Sets the waker of a body that waits, or that must notice when it is evicted. Returns `true` if it was evicted.
    pub(super) fn watch(&mut self, id: ShareId, waker: &Waker) -> bool {
        let Some(share) = self.shares.get_mut(&id) else {
            return true;
        };
        if !share.waker.as_ref().is_some_and(|known| known.will_wake(waker)) {
            share.waker = Some(waker.clone());
        }
        share.is_evicted
    }

    /// Returns the wakers of the shares that may grow now.
    pub(super) fn next_wakers(&self) -> [Option<Waker>; 6] {
        self.next_to_grow().map(|id| self.shares.get(&id?)?.waker.clone())
    }

    /// Returns the shares that may grow now: the oldest of each use, one that skips its queue, and passes of clients above
    /// their limit, which are small or large.
    fn next_to_grow(&self) -> [Option<ShareId>; 6] {
        let [processing, small, large] =
            [ShareUse::Processing, ShareUse::Small, ShareUse::LargeBody].map(|share_use| self.first_waiting(share_use));
        let [pass, small_pass] = [&self.waiting_processing, &self.waiting_small].map(|waiting| {
            self.oldest_of(waiting, |share| {
                self.is_above_limit(share, share.wanted) && self.has_room(share)
            })
        });
        let skipping = self.oldest_of(&self.waiting_skipping, |share| self.has_room(share));
        [processing, small, large, pass, small_pass, skipping]
    }

    /// Evicts bodies since `waiter` has waited for too long: as many as the oldest share that waits needs to finish, or as
    /// the waiter needs, if the client of the oldest holds more than its own.
    ///
    /// Each is the youngest body of the client that holds the most, among those that are still being read, and never one of
    /// a client that holds less than the waiter's. No further ones are evicted within a second, nor before those are
    /// released: their memory may suffice.
    pub(super) fn evict_for(&mut self, waiter: ShareId, now: Instant) -> Eviction {
        let Some(share) = self.shares.get(&waiter) else {
            return Eviction::Waiter(Vec::new());
        };
        let (share_use, client) = (share.use_with(share.wanted), share.client);
        let own = self.clients.get(&client).copied().unwrap_or_default();
        let own_after = own.bytes.saturating_add(share.wanted);
        let is_limited = self.is_held_back(share, share.wanted);
        if !is_limited && self.is_free(share_use, share.wanted) {
            // It only waits behind one that wants more than is free. It is not refused while there is memory for it.
            self.skip_queue(waiter);
            return Eviction::Nobody;
        }
        // The memory of others is of no use to a client that is at its limit.
        let (target, lacking) = if is_limited {
            (waiter, own_after.saturating_sub(self.client_limit()))
        } else {
            let target = self.eviction_target(waiter, share_use, own.bytes);
            let wanted = self.shares.get(&target).map_or(0, |share| share.wanted);
            let after = self.bytes.saturating_add(wanted);
            (target, after.saturating_sub(self.limit_of(share_use)))
        };
        let evictable = if is_limited { own.evictable } else { self.evictable };
        let is_paused = self.evicted > 0 || self.next_eviction_at.is_some_and(|at| now < at);
        if evictable > 0 && is_paused {
            return Eviction::Nobody;
        }
        let is_vain = !is_limited
            && self
                .vain_search
                .is_some_and(|(until, held)| now < until && own.bytes >= held);
        let order = if evictable == 0 || is_vain {
            Vec::new()
        } else {
            self.eviction_order(client, is_limited)
        };
        if order.is_empty() {
            if evictable > 0 && !is_vain {
                self.vain_search = Some((now + EVICTION_PAUSE, own.bytes));
            }
            // Bodies that were read hold all of it, for as long as their providers take.
            return if share_use == ShareUse::Processing && self.may_wait_on(waiter) {
                Eviction::Nobody
            } else {
                Eviction::Waiter(Vec::new())
            };
        }
        self.next_eviction_at = Some(now + EVICTION_PAUSE);
        if !is_limited && target == waiter {
            // What it gets must not go to an older one of a client that holds more.
            self.skip_queue(waiter);
        }
        let (wakers, is_waiter) = self.evict(order, lacking, target, waiter);
        if is_waiter {
            Eviction::Waiter(wakers)
        } else {
            Eviction::Others(wakers)
        }
    }

    /// Evicts bodies of `order` until `lacking` bytes are freed, or `target` is one of them. Returns their wakers, and `true`
    /// if `waiter` is one of them.
    fn evict(&mut self, order: Vec<ShareId>, lacking: u64, target: ShareId, waiter: ShareId) -> (Vec<Waker>, bool) {
        let (mut freed, mut wakers, mut is_waiter) = (0, Vec::new(), false);
        for id in order {
            self.change(id, |share| share.is_evicted = true);
            self.evicted += 1;
            is_waiter |= id == waiter;
            if let Some(share) = self.shares.get(&id) {
                freed += share.bytes;
                // Without a waker it is being polled, and will see it.
                wakers.extend(share.waker.clone());
            }
            if freed >= lacking || id == target {
                break;
            }
        }
        (wakers, is_waiter)
    }

    /// Returns the share that gets what an eviction for `waiter` frees: the oldest that waits, unless its client holds more
    /// than the `own_bytes` of the waiter's. Nobody pays for a client that holds more.
    fn eviction_target(&self, waiter: ShareId, share_use: ShareUse, own_bytes: u64) -> ShareId {
        let held = |id: &ShareId| {
            let share = self.shares.get(id);
            let own = share.and_then(|share| self.clients.get(&share.client));
            own.map_or(0, |own| own.bytes)
        };
        let oldest = self.first_waiting(share_use).filter(|id| held(id) <= own_bytes);
        oldest.unwrap_or(waiter)
    }

    /// Lets a share that waits have its memory before those that came earlier.
    fn skip_queue(&mut self, id: ShareId) {
        if let Some(share) = self.shares.get_mut(&id).filter(|share| share.wanted > 0) {
            share.skips_queue = true;
            self.waiting_skipping.insert(share.client, id);
        }
    }

    /// Returns `true` if large processing that waits may still get its memory: others got theirs since it was last asked, or
    /// it is the oldest of its client. Those that wait hold bodies, so the oldest gets what the others free by failing.
    fn may_wait_on(&mut self, waiter: ShareId) -> bool {
        let is_oldest = self.waiting_processing.oldest_of_each().any(|oldest| oldest == waiter);
        let grants = self.processing_grants;
        let seen = self
            .shares
            .get_mut(&waiter)
            .map(|share| std::mem::replace(&mut share.grants_seen, grants));
        is_oldest || seen.is_some_and(|seen| seen < grants)
    }

    /// Returns the bodies that could be evicted for one of `client`, those of the client that holds the most first, and its
    /// youngest first; its own only if it `is_limited`. At most [`EVICTED_MAX`].
    ///
    /// A client that holds less than this one loses nothing to it: many bodies of one client, which it has sent, must not
    /// cost others the few that they are sending.
    fn eviction_order(&self, client: BudgetClient, is_limited: bool) -> Vec<ShareId> {
        let held = |client: &BudgetClient| self.clients.get(client).map_or(0, |own| own.bytes);
        let own = held(&client);
        let may_go = |share: &Share| {
            let is_meant = share.client == client || !is_limited && held(&share.client) >= own;
            share.is_evictable() && is_meant
        };
        let candidates = self.shares.iter().filter(|(_, share)| may_go(share));
        let mut candidates: Vec<_> = candidates.map(|(id, share)| (held(&share.client), *id)).collect();
        if candidates.len() > EVICTED_MAX {
            candidates.select_nth_unstable_by(EVICTED_MAX, |one, other| other.cmp(one));
            candidates.truncate(EVICTED_MAX);
        }
        candidates.sort_unstable_by(|one, other| other.cmp(one));
        candidates.into_iter().map(|(_, id)| id).collect()
    }

    /// Reserves address space for a body, beside the bytes that it has. Returns `false` if all bodies together reserve
    /// twice the memory already: a claim costs its client nothing.
    pub(super) fn reserve(&mut self, id: ShareId, bytes: u64) -> bool {
        let wanted = self.reserved.saturating_add(bytes);
        let may_reserve = wanted <= self.bytes_max.saturating_mul(2);
        let Some(share) = self.shares.get_mut(&id).filter(|_| may_reserve) else {
            return false;
        };
        share.reserved = share.reserved.saturating_add(bytes);
        self.reserved = wanted;
        true
    }

    /// Returns the bytes of all bodies.
    pub(super) const fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the address space that bodies have reserved.
    pub(super) const fn reserved(&self) -> u64 {
        self.reserved
    }

    /// Returns the limit of bytes.
    pub(super) const fn bytes_max(&self) -> u64 {
        self.bytes_max
    }

    /// Returns the most bytes that large bodies and their processing may use together.
    pub(super) const fn processing_bytes_max(&self) -> u64 {
        self.limit_of(ShareUse::Processing)
    }

    /// Returns the number of bodies that wait.
    pub(super) fn waiting_count(&self) -> usize {
        let waiting = [&self.waiting_processing, &self.waiting_small, &self.waiting_large];
        waiting.map(WaitingShares::len).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::*;
    use crate::clock;

    const MIB: u64 = 1024 * 1024;

    fn client(last: u8) -> BudgetClient {
        BudgetClient::Address(IpAddr::from([192, 0, 2, last]))
    }

    /// Returns the bodies that were evicted, in the order of their numbers.
    fn evicted_bodies(table: &BodyTable) -> Vec<ShareId> {
        let evicted = table.shares.iter().filter(|(_, share)| share.is_evicted);
        evicted.map(|(id, _)| *id).collect()
    }

    #[tokio::test]
    async fn the_youngest_body_of_the_largest_holder_is_evicted() {
        let mut table = BodyTable::new(64 * MIB);
        let mut read = |owner: u8, bytes: u64| {
            let id = table.open(client(owner), ShareKind::Body, None);
            assert_eq!(table.try_grow(id, bytes), GrowOutcome::Grown(bytes));
            id
        };
        let (_first, second) = (read(1, 10 * MIB), read(1, 15 * MIB));
        let large = read(2, 20 * MIB);
        let young = read(3, MIB);
        assert_eq!(table.try_grow(young, 15 * MIB), GrowOutcome::Waiting);
        let now = clock::now();
        table.evict_for(young, now);
        assert_eq!(evicted_bodies(&table), [second], "client 1 holds 25 MiB");
        // One at a time: its memory may suffice.
        table.evict_for(young, now);
        assert_eq!(evicted_bodies(&table), [second]);
        assert_eq!(table.try_grow(second, 1), GrowOutcome::Evicted);
        table.release(second);
        assert_eq!(table.try_grow(young, 10 * MIB), GrowOutcome::Grown(10 * MIB));
        // And one a second.
        let next = table.open(client(4), ShareKind::Body, None);
        assert_eq!(table.try_grow(next, 30 * MIB), GrowOutcome::Waiting);
        assert!(matches!(table.evict_for(next, now), Eviction::Nobody));
        assert!(matches!(
            table.evict_for(next, now + EVICTION_PAUSE),
            Eviction::Others(_)
        ));
        assert_eq!(evicted_bodies(&table), [large]);
    }

    #[tokio::test]
    async fn a_client_that_holds_more_evicts_no_body_of_one_that_holds_less() {
        let mut table = BodyTable::new(64 * MIB);
        let now = clock::now();
        // Client 1 fills the memory with bodies that it has sent, and the last waits for its processing.
        let sent = [20 * MIB, 20 * MIB].map(|bytes| {
            let body = table.open(client(1), ShareKind::Body, None);
            assert_eq!(table.try_grow(body, bytes), GrowOutcome::Grown(bytes));
            assert!(table.end_reading(body));
            body
        });
        let pass = table.open(client(1), ShareKind::Scratch, None);
        let sending = table.open(client(2), ShareKind::Body, None);
        assert_eq!(table.try_grow(sending, 15 * MIB), GrowOutcome::Grown(15 * MIB));
        assert_eq!(table.try_grow(pass, 8 * MIB), GrowOutcome::Waiting);
        assert!(
            matches!(table.evict_for(pass, now), Eviction::Nobody),
            "the oldest waits on"
        );
        let second_pass = table.open(client(1), ShareKind::Scratch, None);
        assert_eq!(table.try_grow(second_pass, 8 * MIB), GrowOutcome::Waiting);
        let later = now + EVICTION_PAUSE;
        assert!(matches!(table.evict_for(second_pass, later), Eviction::Waiter(_)));
        assert!(evicted_bodies(&table).is_empty());
        // The other way round it gets what it needs.
        for id in [sent[1], pass, second_pass] {
            table.release(id);
        }
        let young = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(young, 20 * MIB), GrowOutcome::Grown(20 * MIB));
        assert_eq!(table.try_grow(sending, 8 * MIB), GrowOutcome::Waiting);
        assert!(matches!(
            table.evict_for(sending, later + EVICTION_PAUSE),
            Eviction::Others(_)
        ));
        assert_eq!(evicted_bodies(&table), [young]);
    }

    #[tokio::test]
    async fn nobody_pays_for_an_older_share_of_a_client_that_holds_more() {
        let mut table = BodyTable::new(64 * MIB);
        let now = clock::now();
        let mut sent = |owner: u8, bytes: u64| {
            let body = table.open(client(owner), ShareKind::Body, None);
            assert_eq!(table.try_grow(body, bytes), GrowOutcome::Grown(bytes));
            body
        };
        let (large, small, sending) = (sent(1, 40 * MIB), sent(2, MIB), sent(3, 15 * MIB));
        assert!(table.end_reading(large) && table.end_reading(small));
        let [older, younger] = [(1, 8 * MIB), (2, 5 * MIB)].map(|(owner, bytes)| {
            let pass = table.open(client(owner), ShareKind::Scratch, None);
            assert_eq!(table.try_grow(pass, bytes), GrowOutcome::Waiting);
            pass
        });
        // The search for client 1 finds nobody, and does not keep client 2 from its own.
        assert!(matches!(table.evict_for(older, now), Eviction::Nobody));
        assert!(matches!(table.evict_for(younger, now), Eviction::Others(_)));
        assert_eq!(evicted_bodies(&table), [sending]);
        table.release(sending);
        assert_eq!(table.try_grow(younger, 5 * MIB), GrowOutcome::Grown(5 * MIB));
    }

    #[tokio::test]
    async fn freed_memory_lets_one_body_after_the_other_finish() {
        let mut table = BodyTable::new(32 * MIB);
        let bodies: Vec<_> = (0..4)
            .map(|owner| table.open(client(owner), ShareKind::Body, Some(16 * MIB)))
            .collect();
        for id in &bodies {
            assert_eq!(table.try_grow(*id, 7 * MIB), GrowOutcome::Grown(7 * MIB));
        }
        for id in &bodies {
            assert_eq!(table.try_grow(*id, 4 * MIB), GrowOutcome::Waiting);
        }
        // As many as the oldest needs for the rest of its length.
        assert!(matches!(table.evict_for(bodies[1], clock::now()), Eviction::Others(_)));
        assert_eq!(evicted_bodies(&table), bodies[3..]);
        table.release(bodies[3]);
        // 9 MiB are free. A part of them would help nobody.
        assert_eq!(table.try_grow(bodies[1], 4 * MIB), GrowOutcome::Waiting);
        assert_eq!(table.try_grow(bodies[0], 4 * MIB), GrowOutcome::Grown(9 * MIB));
        table.release(bodies[2]);
        assert_eq!(table.try_grow(bodies[1], 4 * MIB), GrowOutcome::Waiting);
        assert!(table.end_reading(bodies[0]));
        table.release(bodies[0]);
        assert_eq!(table.try_grow(bodies[1], 4 * MIB), GrowOutcome::Grown(9 * MIB));
    }

    #[tokio::test]
    async fn one_client_leaves_a_quarter_to_others() {
        let mut table = BodyTable::new(64 * MIB);
        let read: Vec<_> = (0..6).map(|_| table.open(client(1), ShareKind::Body, None)).collect();
        for id in &read {
            assert_eq!(table.try_grow(*id, 8 * MIB), GrowOutcome::Grown(8 * MIB));
            assert!(table.end_reading(*id));
        }
        let seventh = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(seventh, MIB), GrowOutcome::Waiting);
        let other = table.open(client(2), ShareKind::Body, None);
        assert_eq!(table.try_grow(other, 8 * MIB), GrowOutcome::Grown(8 * MIB));
        // The eviction of another client's body would not help.
        assert!(matches!(table.evict_for(seventh, clock::now()), Eviction::Waiter(_)));
        table.release(read[0]);
        assert_eq!(table.try_grow(seventh, MIB), GrowOutcome::Grown(MIB));
        // A single body, decoded, may have all of it.
        let mut table = BodyTable::new(64 * MIB);
        let body = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(body, 32 * MIB), GrowOutcome::Grown(32 * MIB));
        let decoding = table.open(client(1), ShareKind::Copy, None);
        assert_eq!(table.try_grow(decoding, 28 * MIB), GrowOutcome::Grown(28 * MIB));
    }

    #[tokio::test]
    async fn what_can_never_fit_is_refused_at_once() {
        let mut table = BodyTable::new(32 * MIB);
        let read = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(read, MIB), GrowOutcome::Grown(MIB));
        let decoding = table.open(client(2), ShareKind::Copy, None);
        assert_eq!(table.try_grow(decoding, 31 * MIB), GrowOutcome::Evicted);
        assert_eq!(table.waiting_count(), 0);
    }

    #[tokio::test]
    async fn processing_is_limited_by_client_and_leaves_memory_to_small_bodies() {
        let mut table = BodyTable::new(64 * MIB);
        for _ in 0..2 {
            let body = table.open(client(1), ShareKind::Body, None);
            assert_eq!(table.try_grow(body, 1024), GrowOutcome::Grown(1024));
            assert!(table.end_reading(body));
        }
        let decoding: Vec<_> = (0..2).map(|_| table.open(client(1), ShareKind::Copy, None)).collect();
        assert_eq!(table.try_grow(decoding[0], 30 * MIB), GrowOutcome::Grown(30 * MIB));
        assert_eq!(table.try_grow(decoding[1], 30 * MIB), GrowOutcome::Waiting);
        let other = table.open(client(2), ShareKind::Copy, None);
        assert_eq!(table.try_grow(other, 29 * MIB), GrowOutcome::Grown(29 * MIB));
        let third = table.open(client(3), ShareKind::Copy, None);
        assert_eq!(table.try_grow(third, 2 * MIB), GrowOutcome::Waiting);
        let small = table.open(client(4), ShareKind::Copy, None);
        assert_eq!(table.try_grow(small, 64 * 1024), GrowOutcome::Grown(64 * 1024));
    }

    #[tokio::test]
    async fn of_bodies_in_work_that_block_each_other_the_oldest_goes_on() {
        let mut table = BodyTable::new(64 * MIB);
        let now = clock::now();
        // 42 MiB are taken by bodies, and 60 are there for them and their processing.
        let bodies = [1, 2, 2].map(|owner| {
            let body = table.open(client(owner), ShareKind::Body, None);
            assert_eq!(table.try_grow(body, 14 * MIB), GrowOutcome::Grown(14 * MIB));
            assert!(table.end_reading(body));
            (owner, body)
        });
        let bodies = bodies.map(|(owner, body)| {
            let reading = table.open(client(owner), ShareKind::Scratch, None);
            assert_eq!(table.try_grow(reading, 20 * MIB), GrowOutcome::Waiting);
            (body, reading)
        });
        for (index, may_wait) in [(0, true), (1, true), (2, false)] {
            let eviction = table.evict_for(bodies[index].1, now);
            assert_eq!(matches!(eviction, Eviction::Nobody), may_wait, "{index}");
        }
        for share in [bodies[2].1, bodies[2].0] {
            table.release(share);
        }
        assert_eq!(table.try_grow(bodies[1].1, 20 * MIB), GrowOutcome::Waiting);
        assert_eq!(table.try_grow(bodies[0].1, 20 * MIB), GrowOutcome::Grown(20 * MIB));
    }

    #[tokio::test]
    async fn one_pass_at_a_time_lets_the_bodies_of_a_client_finish() {
        let mut table = BodyTable::new(64 * MIB);
        let bodies: Vec<_> = (0..3).map(|_| table.open(client(1), ShareKind::Body, None)).collect();
        for id in &bodies {
            assert_eq!(table.try_grow(*id, 16 * MIB), GrowOutcome::Grown(16 * MIB));
            assert!(table.end_reading(*id));
        }
        // The client is at its limit.
        let passes: Vec<_> = (0..3)
            .map(|_| table.open(client(1), ShareKind::Scratch, None))
            .collect();
        assert_eq!(table.try_grow(passes[0], 6 * MIB), GrowOutcome::Grown(6 * MIB));
        for id in &passes[1..] {
            assert_eq!(table.try_grow(*id, 6 * MIB), GrowOutcome::Waiting);
        }
        let copy = table.open(client(1), ShareKind::Copy, None);
        assert_eq!(table.try_grow(copy, 4 * MIB), GrowOutcome::Waiting);
        table.release(passes[0]);
        assert_eq!(table.try_grow(passes[1], 6 * MIB), GrowOutcome::Grown(6 * MIB));
        // The queue moves, so the youngest waits on, until it does not move any more.
        let now = clock::now();
        assert!(matches!(table.evict_for(copy, now), Eviction::Nobody));
        assert!(matches!(table.evict_for(copy, now), Eviction::Waiter(_)));
    }

    /// Returns a table of 64 MiB in which client 1 holds this much for two bodies that were read.
    fn table_with_held(bytes: u64) -> BodyTable {
        let mut table = BodyTable::new(64 * MIB);
        for _ in 0..2 {
            let body = table.open(client(1), ShareKind::Body, None);
            assert_eq!(table.try_grow(body, bytes / 2), GrowOutcome::Grown(bytes / 2));
            assert!(table.end_reading(body));
        }
        table
    }

    /// A wait of a client above its limit makes nobody else wait. The limit is 48 MiB of 64, and large shares may use
    /// 60 of them.
    #[tokio::test]
    async fn a_client_above_its_limit_makes_no_other_wait() {
        for (waits, wanted) in [(ShareKind::Copy, 10), (ShareKind::Scratch, 20), (ShareKind::Body, 10)] {
            for other in [ShareKind::Body, ShareKind::Copy, ShareKind::Scratch] {
                let mut table = table_with_held(42 * MIB);
                let waiting = table.open(client(1), waits, None);
                assert_eq!(table.try_grow(waiting, wanted * MIB), GrowOutcome::Waiting);
                for (owner, share) in [(2, other), (3, ShareKind::Body)] {
                    let share = table.open(client(owner), share, None);
                    let grown = table.try_grow(share, 4 * MIB);
                    assert_eq!(
                        grown,
                        GrowOutcome::Grown(4 * MIB),
                        "{owner}: {other:?} behind {waits:?}"
                    );
                }
            }
        }
    }

    /// A body behind one that wants more than is free gets what it wants after its wait: it is not refused.
    #[tokio::test]
    async fn nothing_is_refused_while_there_is_memory_for_it() {
        for kind in [ShareKind::Body, ShareKind::Copy, ShareKind::Scratch] {
            let mut table = table_with_held(30 * MIB);
            let first = table.open(client(2), ShareKind::Scratch, None);
            assert_eq!(table.try_grow(first, 40 * MIB), GrowOutcome::Waiting);
            let second = table.open(client(3), kind, None);
            assert_eq!(table.try_grow(second, 4 * MIB), GrowOutcome::Waiting, "{kind:?}");
            assert!(matches!(table.evict_for(second, clock::now()), Eviction::Nobody));
            assert_eq!(table.try_grow(second, 4 * MIB), GrowOutcome::Grown(4 * MIB));
            // Further pieces do not wait behind it again.
            assert_eq!(table.try_grow(second, 4 * MIB), GrowOutcome::Grown(4 * MIB));
            assert_eq!(table.try_grow(second, 40 * MIB), GrowOutcome::Waiting);
            // It is woken beside the first once its memory is free.
            for held in [0, 1] {
                table.release(held);
            }
            let next = table.next_to_grow();
            assert!(next.contains(&Some(first)) && next.contains(&Some(second)), "{kind:?}");
            assert_eq!(table.try_grow(second, 40 * MIB), GrowOutcome::Grown(40 * MIB));
            assert!(!table.next_to_grow().contains(&Some(second)), "{kind:?}");
        }
    }

    /// The only pass of a client above its limit is woken once its memory is free, whatever its size.
    #[tokio::test]
    async fn the_only_pass_of_a_client_above_its_limit_is_woken() {
        for size in [64 * 1024, 3 * MIB] {
            let mut table = table_with_held(48 * MIB);
            let other = table.open(client(2), ShareKind::Body, None);
            table.add(other, 16 * MIB);
            let pass = table.open(client(1), ShareKind::Scratch, None);
            assert_eq!(table.try_grow(pass, size), GrowOutcome::Waiting, "{size}");
            assert!(!table.next_to_grow().contains(&Some(pass)), "{size}");
            table.give_back(other, 7 * MIB);
            assert!(table.next_to_grow().contains(&Some(pass)), "{size}");
            assert_eq!(table.try_grow(pass, size), GrowOutcome::Grown(size), "{size}");
        }
    }

    #[tokio::test]
    async fn at_most_64_bodies_are_evicted_at_once() {
        let mut table = BodyTable::new(64 * MIB);
        let bodies: Vec<_> = (0..120).map(|_| table.open(client(1), ShareKind::Body, None)).collect();
        for id in &bodies {
            assert_eq!(table.try_grow(*id, 400 * 1024), GrowOutcome::Grown(400 * 1024));
        }
        let large = table.open(client(2), ShareKind::Body, Some(60 * MIB));
        assert_eq!(table.try_grow(large, 60 * MIB), GrowOutcome::Waiting);
        assert!(matches!(table.evict_for(large, clock::now()), Eviction::Others(_)));
        assert_eq!(evicted_bodies(&table), bodies[120 - EVICTED_MAX..]);
        for id in &bodies {
            table.release(*id);
        }
        assert_eq!((table.evictable, table.evicted, table.bytes()), (0, 0, 0));
    }

    #[tokio::test]
    async fn the_processing_of_bodies_comes_before_large_bodies() {
        let mut table = BodyTable::new(32 * MIB);
        let read = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(read, 10 * MIB), GrowOutcome::Grown(10 * MIB));
        assert!(table.end_reading(read));
        let [reading, waits] = [2, 3].map(|owner| table.open(client(owner), ShareKind::Body, Some(16 * MIB)));
        assert_eq!(table.try_grow(reading, 20 * MIB), GrowOutcome::Grown(20 * MIB));
        assert_eq!(table.try_grow(waits, 4 * MIB), GrowOutcome::Waiting);
        let decoding = table.open(client(1), ShareKind::Copy, None);
        assert_eq!(table.try_grow(decoding, 4 * MIB), GrowOutcome::Waiting);
        // Only bodies that are being read are evicted.
        assert!(matches!(table.evict_for(decoding, clock::now()), Eviction::Others(_)));
        assert_eq!(evicted_bodies(&table), [reading]);
        table.release(reading);
        assert_eq!(table.try_grow(waits, 4 * MIB), GrowOutcome::Waiting);
        assert_eq!(table.try_grow(decoding, 4 * MIB), GrowOutcome::Grown(4 * MIB));
        assert_eq!(table.try_grow(waits, 4 * MIB), GrowOutcome::Grown(16 * MIB));
    }

    #[tokio::test]
    async fn a_body_that_was_read_is_never_evicted() {
        let mut table = BodyTable::new(10 * MIB);
        let (read, reading) = (
            table.open(client(1), ShareKind::Body, None),
            table.open(client(2), ShareKind::Body, None),
        );
        assert_eq!(table.try_grow(read, 9 * MIB), GrowOutcome::Grown(9 * MIB));
        assert!(table.end_reading(read));
        assert_eq!(table.try_grow(reading, 1024), GrowOutcome::Grown(1024));
        assert_eq!(table.try_grow(reading, MIB), GrowOutcome::Waiting);
        assert!(matches!(table.evict_for(reading, clock::now()), Eviction::Waiter(_)));
        table.release(reading);
        let new = table.open(client(2), ShareKind::Body, None);
        assert_eq!(table.try_grow(new, 2 * MIB), GrowOutcome::Waiting);
        // It has no bytes yet, and nobody else can be evicted.
        assert!(matches!(table.evict_for(new, clock::now()), Eviction::Waiter(_)));
    }

    #[test]
    fn address_space_is_reserved_up_to_twice_the_memory() {
        let mut table = BodyTable::new(10 * MIB);
        let (first, second) = (
            table.open(client(1), ShareKind::Body, None),
            table.open(client(2), ShareKind::Body, None),
        );
        assert!(table.reserve(first, 16 * MIB));
        assert!(!table.reserve(second, 5 * MIB));
        assert!(table.reserve(second, 4 * MIB));
        table.release(first);
        assert!(table.reserve(second, 16 * MIB));
    }

    #[test]
    fn large_bodies_leave_a_part_to_small_ones() {
        let mut table = BodyTable::new(32 * MIB);
        let (large, small) = (
            table.open(client(1), ShareKind::Body, None),
            table.open(client(2), ShareKind::Body, None),
        );
        assert_eq!(table.try_grow(large, 29 * MIB), GrowOutcome::Grown(29 * MIB));
        let other = table.open(client(3), ShareKind::Body, None);
        assert_eq!(table.try_grow(other, 2 * MIB), GrowOutcome::Waiting);
        let begun = table.open(client(1), ShareKind::Body, Some(MIB));
        assert_eq!(table.try_grow(begun, 64 * 1024), GrowOutcome::Waiting);
        assert_eq!(table.try_grow(small, 64 * 1024), GrowOutcome::Grown(64 * 1024));
        assert_eq!(table.waiting_count(), 2);
    }

    #[test]
    fn the_oldest_that_waits_comes_first() {
        let mut table = BodyTable::new(32 * MIB);
        let bodies: Vec<_> = (0..3)
            .map(|owner| table.open(client(owner), ShareKind::Body, None))
            .collect();
        assert_eq!(table.try_grow(bodies[0], 29 * MIB), GrowOutcome::Grown(29 * MIB));
        assert_eq!(table.try_grow(bodies[1], 2 * MIB), GrowOutcome::Waiting);
        // It would fit, but then the older one might never.
        assert_eq!(table.try_grow(bodies[2], MIB), GrowOutcome::Waiting);
        table.release(bodies[0]);
        assert_eq!(table.try_grow(bodies[2], MIB), GrowOutcome::Waiting);
        assert_eq!(table.try_grow(bodies[1], 2 * MIB), GrowOutcome::Grown(2 * MIB));
        assert_eq!(table.try_grow(bodies[2], MIB), GrowOutcome::Grown(MIB));
    }

    #[test]
    fn every_byte_is_given_back() {
        let mut table = BodyTable::new(32 * MIB);
        let body = table.open(client(1), ShareKind::Body, None);
        assert_eq!(table.try_grow(body, 5 * MIB), GrowOutcome::Grown(5 * MIB));
        table.add(body, 40 * MIB);
        table.give_back(body, MIB);
        assert_eq!(table.bytes(), 44 * MIB);
        table.release(body);
        assert_eq!((table.bytes(), table.shares.len(), table.waiting_count()), (0, 0, 0));
        assert!(table.clients.is_empty());
    }
}
