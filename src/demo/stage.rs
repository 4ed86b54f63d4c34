//! The setting of the stories: the provider, the proxy in front of it, the output and the score.

use std::{net::SocketAddr, time::Duration};

use strict_provider::Provider;

use super::{DiffLines, setup::Tokens, tell::Tell};

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
    /// Tokens of the clients and of the tool service.
    pub(super) tokens: Tokens,
    /// Function that compares two bodies.
    pub(super) diff: DiffLines,
    /// Variables with the address of the proxy and the token of `antiphon mcp`.
    #[cfg_attr(not(unix), expect(dead_code, reason = "the wrapper runs on Unix only"))]
    pub(super) wrapper_variables: [&'static str; 2],
    /// Pause between two stories.
    pub(super) pace: Duration,
    /// Outcomes so far.
    pub(super) score: Score,
}

/// The outcomes of the stories.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Score {
    /// Number of stories.
    pub(super) stories: usize,
    /// Number of stories that failed at the provider itself.
    pub(super) failed: usize,
    /// Number of stories that went on through the proxy.
    pub(super) went_on: usize,
    /// Number of observations that were not as expected.
    surprises: usize,
}

impl Score {
    /// Reports whether every story failed without the proxy and went on with it, and nothing else was unexpected.
    pub(super) const fn is_as_expected(&self) -> bool {
        self.failed == self.stories && self.went_on == self.stories && self.surprises == 0
    }
}

impl Stage {
    /// Counts a story with its outcome without the proxy and with it.
    pub(super) fn count_story(&mut self, failed: bool, went_on: bool) {
        self.score.stories += 1;
        self.score.failed += usize::from(failed);
        self.score.went_on += usize::from(went_on);
    }

    /// Records an observation that should be true, and returns it.
    pub(super) fn expect_true(&mut self, seen: bool) -> bool {
        self.score.surprises += usize::from(!seen);
        seen
    }

    /// Waits for the reader.
    pub(super) async fn pause(&self) {
        tokio::time::sleep(self.pace).await;
    }
}
