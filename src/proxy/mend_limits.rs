//! Limits of mends.
//!
//! A server that refuses everything in the words of a row must cost neither itself nor the client many more requests.

use std::time::Duration;

use tokio::time::Instant;

use super::fact_scope::FactScope;
use crate::{
    auth::Principal,
    digest_cache::{DigestCache, EntryChange, Lifetime},
    mend::BlockHash,
    recall::FactKey,
};

/// Most callers, rows and blocks that are remembered.
const ENTRIES_MAX: u64 = 10_000;
/// Most resends with a mend that one caller gets at once.
const RESENDS_AT_ONCE: u32 = 30;
/// Time after which a resend is free again. With those at once there are 60 in any minute at most.
const RESEND_INTERVAL: Duration = Duration::from_secs(2);
/// Number of vain mends after which a row rests.
const VAIN_MAX: u32 = 3;
/// Time for which a row rests.
const REST: Duration = Duration::from_secs(10 * 60);

/// Time for which it is known that a client has seen a refusal.
const TOLD_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of mends. None of them is stored: after a restart everybody begins anew.
#[derive(Debug)]
pub(super) struct MendLimits {
    /// The time at which each caller has all its resends again.
    resends: DigestCache<Principal, Instant>,
    /// The vain mends of each row, by caller and server.
    vain: DigestCache<FactKey, u32>,
    /// Blocks that users have written newly and whose refusal their client has seen, each with the digest of that body.
    told_blocks: DigestCache<FactKey, [u8; 32]>,
}

impl MendLimits {
    pub(super) fn new() -> Self {
        Self {
            resends: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(RESEND_INTERVAL * RESENDS_AT_ONCE)),
            vain: DigestCache::new(ENTRIES_MAX, Lifetime::SinceWrite(REST)),
            told_blocks: DigestCache::new(ENTRIES_MAX, Lifetime::SinceUse(TOLD_MAX)),
        }
    }

    /// Counts a resend of a caller. Returns `false` if it has none free.
    pub(super) fn take_resend(&self, caller: Principal, now: Instant) -> bool {
        let mut is_free = true;
        self.resends.change(&caller, |known| {
            let taken = known.unwrap_or(now).max(now) + RESEND_INTERVAL;
            is_free = taken <= now + RESEND_INTERVAL * RESENDS_AT_ONCE;
            if is_free {
                EntryChange::Put(taken)
            } else {
                EntryChange::Keep
            }
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
    async fn a_caller_gets_sixty_resends_in_any_minute_and_a_row_rests_after_three_vain_mends() {
        let limits = MendLimits::new();
        let caller = Principal::from_bytes([7; 32]);
        // As many as are free, in each second of three minutes.
        let mut taken = Vec::new();
        for _ in 0..180 {
            taken.push((0..100).filter(|_| limits.take_resend(caller, clock::now())).count());
            tokio::time::advance(Duration::from_secs(1)).await;
        }
        assert_eq!(taken[..5], [30, 0, 1, 0, 1]);
        let of_minutes = taken.windows(60).map(|minute| minute.iter().sum::<usize>());
        assert_eq!(of_minutes.max(), Some(59));
        assert!(limits.take_resend(Principal::from_bytes([8; 32]), clock::now()));
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
