//! The time that one exchange may wait for the ledger in total: 250 ms, or 5 s for a patient one.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::clock;

/// Waiting time of most exchanges.
const USUAL: Duration = Duration::from_millis(250);
/// Waiting time of a patient exchange.
const PATIENT: Duration = Duration::from_secs(5);

/// The remaining waiting time of one exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LedgerBudget {
    left: Duration,
    is_patient: bool,
}

impl LedgerBudget {
    /// The waiting time of a new exchange.
    pub const FULL: Self = Self {
        left: USUAL,
        is_patient: false,
    };

    /// Makes the exchange patient: its body shows that the ledger may contain what the provider was sent before.
    pub fn make_patient(&mut self) {
        if !self.is_patient {
            self.left += PATIENT.saturating_sub(USUAL);
            self.is_patient = true;
        }
    }

    /// Returns `true` if the exchange is patient.
    pub const fn is_patient(&self) -> bool {
        self.is_patient
    }

    /// Runs `work`, passes it the deadline, and subtracts the time that it took.
    pub async fn spend<W: Future>(&mut self, work: impl FnOnce(Instant) -> W) -> W::Output {
        let began = clock::now();
        let done = work(began + self.left).await;
        self.left = self.left.saturating_sub(clock::now().duration_since(began));
        done
    }
}
