//! Limits of mends, and what is kept of those that no success has proven yet.
//!
//! A server that refuses everything in the words of a row must cost neither itself nor the client many more requests.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::time::Instant;

use super::fact_scope::FactScope;
use crate::{
    auth::Principal,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    mend::{BlockHash, Mend},
    recall::FactKey,
    session::LaneId,
};

/// Most callers, rows and conversations that are remembered.
const ENTRIES_MAX: u64 = 10_000;
/// Most resends with a mend that one caller gets in a window.
const RESENDS_MAX: u32 = 60;
/// The window of that limit.
const WINDOW: Duration = Duration::from_secs(60);
/// Number of vain mends after which a row rests.
const VAIN_MAX: u32 = 3;
/// Time for which a row rests, and for which unproven mends are kept.
const REST: Duration = Duration::from_secs(10 * 60);

/// Time for which it is known that a client has seen a refusal.
const TOLD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of mends. None of them is stored: after a restart everybody begins anew.
#[derive(Debug)]
pub(super) struct MendLimits {
    /// The resends of each caller in its present window.
    resends: DigestCache<Principal, (Instant, u32)>,
    /// The vain mends of each row, by caller and server.
    vain: DigestCache<FactKey, u32>,
    /// Mends of a conversation that its server has accepted in part: it has named another fault after them.
    unproven: DigestCache<FactKey, Arc<UnprovenMends>>,
    /// `true` once there are such mends. In most processes there are none.
    has_unproven: AtomicBool,
    /// Blocks that users have written newly and whose refusal their client has seen, each with the digest of that body.
    told_blocks: DigestCache<FactKey, [u8; 32]>,
}

/// Mends that no success has proven.
#[derive(Debug)]
pub(super) struct UnprovenMends {
    pub(super) mends: Vec<Mend>,
    /// The blocks that they have mended.
    pub(super) blocks: Vec<BlockHash>,
}

impl MendLimits {
    pub(super) fn new() -> Self {
        Self {
            resends: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(WINDOW)),
            vain: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(REST)),
            unproven: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(REST)),
            has_unproven: AtomicBool::new(false),
            told_blocks: DigestCache::new(ENTRIES_MAX, Lifetime::SinceUse(TOLD_MAX)),
        }
    }

    /// Counts a resend of a caller. Returns `false` if it has had 60 within a minute.
    pub(super) fn take_resend(&self, caller: Principal, now: Instant) -> bool {
        let mut is_free = true;
        self.resends.change(&caller, |known| match known {
            Some((began, count)) if now < began + WINDOW => {
                is_free = count < RESENDS_MAX;
                if is_free {
                    EntryChange::Put((began, count.saturating_add(1)))
                } else {
                    EntryChange::Keep
                }
            }
            Some(_) | None => EntryChange::Put((now, 1)),
        });
        is_free
    }

    /// Notes that a row has matched, and that its mend fits nowhere or has not helped.
    pub(super) fn note_vain(&self, scope: FactScope, row: &str) {
        self.vain.change(&scope.row_key(row), |known| {
            EntryChange::Put(known.map_or(1, |count| count.saturating_add(1)))
        });
    }

    /// Returns `true` if a row rests for this caller at this server: three of its mends were in vain.
    pub(super) fn rests(&self, scope: FactScope, row: &str) -> bool {
        self.vain
            .get(&scope.row_key(row))
            .is_some_and(|count| count >= VAIN_MAX)
    }

    /// Keeps the mends of a conversation with a model. The server has accepted none yet because it has named another fault.
    pub(super) fn keep_unproven(&self, scope: FactScope, lane: LaneId, model: Option<&str>, mends: UnprovenMends) {
        self.has_unproven.store(true, Ordering::Relaxed);
        let key = scope.lane_key(lane.as_bytes(), model);
        self.unproven.insert(&key, Arc::new(mends));
    }

    /// Returns the unproven mends of a conversation with a model.
    pub(super) fn unproven(&self, scope: FactScope, lane: LaneId, model: Option<&str>) -> Option<Arc<UnprovenMends>> {
        // Without any the key need not be hashed.
        let has_any = self.has_unproven.load(Ordering::Relaxed);
        has_any.then(|| self.unproven.get(&scope.lane_key(lane.as_bytes(), model)))?
    }

    /// Notes that the client sees the refusal of a block that its user has written newly. `body` is the digest of its body.
    pub(super) fn note_told(&self, scope: FactScope, block: &BlockHash, body: [u8; 32]) {
        // The first body counts: the client may send it again before its user sees the refusal.
        self.told_blocks.insert_new(&scope.block_key(block), body);
    }

    /// Returns `true` if the client has seen the refusal of a block, in answer to another body than this one.
    pub(super) fn was_told(&self, scope: FactScope, block: &BlockHash, body: &[u8; 32]) -> bool {
        let told = self.told_blocks.get(&scope.block_key(block));
        told.is_some_and(|told| told != *body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{auth::Caller, clock};

    #[tokio::test(start_paused = true)]
    async fn a_caller_gets_sixty_resends_a_minute_and_a_row_rests_after_three_vain_mends() {
        let limits = MendLimits::new();
        let caller = Principal::from_bytes([7; 32]);
        let taken = |limits: &MendLimits| (0..100).filter(|_| limits.take_resend(caller, clock::now())).count();
        assert_eq!((taken(&limits), taken(&limits)), (60, 0));
        tokio::time::advance(WINDOW).await;
        assert_eq!(taken(&limits), 60);
        let scope = FactScope {
            server: Default::default(),
            caller: Caller::of_account(caller),
        };
        let rests = [(); 4].map(|()| {
            let rests = limits.rests(scope, "row");
            limits.note_vain(scope, "row");
            rests
        });
        assert_eq!(rests, [false, false, false, true]);
        assert!(!limits.rests(scope, "other"));
    }
}
