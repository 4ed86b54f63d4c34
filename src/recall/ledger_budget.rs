//! The time that one exchange may wait for the ledger: 250 ms in total.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::clock;

/// The remaining waiting time of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBudget(Duration);

impl LedgerBudget {
    /// The waiting time of a new exchange.
    pub const FULL: Self = Self(Duration::from_millis(250));

    /// Runs `work`, passes it the deadline, and subtracts the time that it took.
    pub async fn spend<W: Future>(&mut self, work: impl FnOnce(Instant) -> W) -> W::Output {
        let began = clock::now();
        let done = work(began + self.0).await;
        self.0 = self.0.saturating_sub(clock::now().duration_since(began));
        done
    }
}
