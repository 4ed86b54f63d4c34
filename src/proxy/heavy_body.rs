//! The cost above which a pass over a whole body is heavy work, and the later passes over a body that is in memory.

use std::future::Future;

use tokio::time::Instant;

use crate::server::budget::{BudgetClient, HeavyWork};

/// Size above which one pass over a body is heavy work: 256 KiB. It reads and plans the body, or searches, hashes or
/// signs it. Below it takes some milliseconds at most, whatever the body contains.
const HEAVY_PASS_BYTES_MIN: usize = 256 * 1024;
/// Size above which the plan of a resend is heavy work: 64 KiB. It is up to four passes: the body is read and planned for
/// each reading of the refusal, and again for each repair that is tried.
const HEAVY_RESEND_BYTES_MIN: usize = 64 * 1024;
/// Number of unanswered calls above which any plan is heavy work: each call is looked up, planned and pinned.
pub(super) const HEAVY_CALLS_MIN: usize = 128;

/// Returns `true` if one pass over a body of `bytes` is heavy work.
pub(super) const fn is_heavy_pass(bytes: usize) -> bool {
    bytes > HEAVY_PASS_BYTES_MIN
}

/// Returns `true` if the plan of a resend of a body of `bytes` is heavy work.
pub(super) const fn is_heavy_resend(bytes: usize) -> bool {
    bytes > HEAVY_RESEND_BYTES_MIN
}

/// The runner of later passes over the body of one exchange.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaterPasses<'x> {
    pub(super) work: &'x HeavyWork,
    /// Client whose share of the places the passes use.
    pub(super) client: BudgetClient,
    /// End of the exchange's time, until which a pass waits for its place.
    pub(super) deadline: Instant,
}

impl LaterPasses<'_> {
    /// Runs a pass, as heavy work if it `is_heavy`. Returns `None` if the time of the exchange ended before it had a place.
    pub(super) async fn run_pass<T>(self, is_heavy: bool, pass: impl Future<Output = T>) -> Option<T> {
        if is_heavy {
            self.work.run_later(self.client, self.deadline, pass).await
        } else {
            Some(pass.await)
        }
    }
}
