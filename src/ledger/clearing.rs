//! What has expired is cleared away from time to time: nobody reads it any more, but it takes room.

use std::{sync::Arc, time::Duration};

use super::{Ledger, LedgerError};
use crate::clock;

/// From one clearing to the next.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// Clears `ledger` every hour: to be run for as long as the process lives. Ends with the ledger.
pub async fn clearing(ledger: Arc<dyn Ledger>) {
    loop {
        tokio::time::sleep(EVERY).await;
        match ledger.expire(clock::since_1970()).await {
            Ok(0) => {}
            Ok(gone) => tracing::debug!(gone, "expired records were cleared out of the ledger"),
            Err(LedgerError::Closed) => return,
            Err(error) => tracing::warn!(%error, "the ledger could not be cleared"),
        }
    }
}
