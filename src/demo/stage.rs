//! The setting of the stories: the provider, the proxy in front of it, and the output.

use std::{net::SocketAddr, time::Duration};

use strict_provider::Provider;

use super::tell::Tell;

/// Everything that a story needs.
pub(super) struct Stage {
    pub(super) tell: Tell,
    pub(super) provider: Provider,
    /// Address of the provider.
    pub(super) provider_at: SocketAddr,
    /// Address of the proxy.
    pub(super) proxy_at: SocketAddr,
    /// Address of the admin listener.
    pub(super) admin_at: SocketAddr,
    /// Token of the tool service.
    pub(super) token: String,
    /// Pause between two stories.
    pub(super) pace: Duration,
    /// `true` as long as everything was as expected.
    pub(super) is_as_promised: bool,
}

impl Stage {
    /// Records an observation that should be true.
    pub(super) fn expects(&mut self, seen: bool) {
        self.is_as_promised &= seen;
    }

    /// Waits for the reader.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(self.pace).await;
    }
}
