//! What the stories are played on: the provider, the proxy before it, and who tells of them.

use std::{net::SocketAddr, time::Duration};

use strict_provider::Provider;

use super::tell::Tell;

/// The stage.
pub(super) struct Stage {
    pub(super) tell: Tell,
    pub(super) provider: Provider,
    /// Where the provider answers by itself.
    pub(super) provider_at: SocketAddr,
    /// Where the proxy answers.
    pub(super) proxy_at: SocketAddr,
    /// Where its admin listener does.
    pub(super) admin_at: SocketAddr,
    /// Of the service that posts results.
    pub(super) token: String,
    /// Between two stories, for who reads along.
    pub(super) pace: Duration,
    /// Whether all that was seen so far is what should be.
    pub(super) is_as_promised: bool,
}

impl Stage {
    /// Says whether what was seen is what should be.
    pub(super) fn expects(&mut self, seen: bool) {
        self.is_as_promised &= seen;
    }

    /// Lets the reader breathe.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(self.pace).await;
    }
}
