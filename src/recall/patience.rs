//! How long one exchange waits for the ledger: a quarter of a second, all in all.

use std::{future::Future, time::Duration};

use tokio::time::Instant;

use crate::clock;

/// What is left of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience(Duration);

impl Patience {
    /// Nothing was waited for yet.
    pub const WHOLE: Self = Self(Duration::from_millis(250));

    /// Does `work`, which is told until when it may wait, and takes off how long that was.
    pub async fn spend<W: Future>(&mut self, work: impl FnOnce(Instant) -> W) -> W::Output {
        let began = clock::now();
        let done = work(began + self.0).await;
        self.0 = self.0.saturating_sub(clock::now().duration_since(began));
        done
    }
}
