//! The strict provider on a real socket, as tests use it: it records every request.

use std::net::SocketAddr;

use antiphon::wire::Wire;
use strict_provider::{Recording, Settings};
use tokio::{net::TcpListener, task::JoinHandle};

pub use strict_provider::{ReceivedRequest as Seen, Reply, ToolCall, binding};

use super::judge;

/// A running provider; it ends when dropped.
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

    /// Starts a provider that reads the formats of `wires` as these do, and the others as their authors do.
    pub async fn reading(wires: &[Wire]) -> Self {
        Self::serving(wires, false).await
    }

    /// Starts a provider whose models think before each message, and bind that to what stands before it.
    pub async fn binding() -> Self {
        Self::serving(&[], true).await
    }

    async fn serving(wires: &[Wire], binds_thinking: bool) -> Self {
        let inner = strict_provider::Provider::new(Settings {
            dialects: wires.iter().map(|wire| judge::reading(*wire)).collect(),
            binds_thinking,
            recording: Recording::All,
            ..Settings::default()
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, task) = inner.serve(listener).unwrap();
        Self { address, inner, task }
    }

    /// `http://127.0.0.1:PORT`, without a slash at the end.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What the model does at the next request that is accepted and has no reply yet; without any it says a few words.
    pub fn reply(&self, reply: Reply) {
        self.inner.reply(reply);
    }

    /// Every request so far, in order of their answers.
    pub fn seen(&self) -> Vec<Seen> {
        self.inner.received()
    }

    /// The last request.
    pub fn last(&self) -> Seen {
        self.seen().pop().expect("a request")
    }
}

impl Drop for Provider {
    fn drop(&mut self) {
        self.task.abort();
    }
}
