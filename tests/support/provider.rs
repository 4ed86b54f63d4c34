//! The strict provider on a real socket. It records every request.

use std::net::SocketAddr;

use antiphon::wire::Wire;
use strict_provider::Recording;
use tokio::{net::TcpListener, task::JoinHandle};

pub use strict_provider::{ReceivedRequest as Seen, Reply, Settings, ToolCall, binding};

use super::judge;

/// Returns the settings of a provider that thinks, and judges the formats of `wires` by further rules.
pub fn ruled(wires: &[Wire], rules: judge::ServerRules) -> Settings {
    Settings {
        dialects: wires.iter().map(|wire| judge::reading(*wire)).collect(),
        thinks: true,
        rules,
        ..Settings::default()
    }
}

/// A running provider. It ends on drop.
pub struct Provider {
    address: SocketAddr,
    inner: strict_provider::Provider,
    task: JoinHandle<()>,
}

impl Provider {
    /// Starts a provider that reads every format as its author does.
    pub async fn start() -> Self {
        Self::reading(&[]).await
    }

    /// Starts a provider that reads the formats of `wires` in their dialects, and all others as their authors do.
    pub async fn reading(wires: &[Wire]) -> Self {
        Self::serving(wires, false).await
    }

    /// Starts a provider whose models think before each message and bind the thinking to its prefix.
    pub async fn binding() -> Self {
        Self::serving(&[], true).await
    }

    /// Starts a provider that thinks, and judges the formats of `wires` by further rules of a kind of server.
    pub async fn ruled(wires: &[Wire], rules: judge::ServerRules) -> Self {
        Self::with_settings(ruled(wires, rules)).await
    }

    async fn serving(wires: &[Wire], binds_thinking: bool) -> Self {
        Self::with_settings(Settings {
            dialects: wires.iter().map(|wire| judge::reading(*wire)).collect(),
            binds_thinking,
            recording: Recording::All,
            ..Settings::default()
        })
        .await
    }

    /// Starts a provider with any settings.
    pub async fn with_settings(settings: Settings) -> Self {
        let inner = strict_provider::Provider::new(settings);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, task) = inner.serve(listener).unwrap();
        Self { address, inner, task }
    }

    /// Returns `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Returns the address of the listener.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Queues the reply to the next accepted request without one. With an empty queue the model returns a short text.
    pub fn reply(&self, reply: Reply) {
        self.inner.reply(reply);
    }

    /// Loses the prompt cache: every turn so far is cold.
    pub fn restart_cache(&self) {
        self.inner.restart_cache();
    }

    /// Changes what the server counts as its own.
    pub fn remember(&self, change: impl FnOnce(&mut judge::ServerMemory)) {
        self.inner.remember(change);
    }

    /// Returns every request so far, in order of their answers.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.received()
    }

    /// Returns the last request.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("a request")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}
