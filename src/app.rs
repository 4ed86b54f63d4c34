//! The composition root: builds every part from its settings, starts it, drains it in order.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use tokio::io::{AsyncRead, AsyncWrite};

use crate::{
    auth::PrincipalKey,
    ledger::{Later, Ledger, Writer, later},
    provider::Routes,
    proxy::{Proxy, ProxySettings, Shared},
    server::{self, BindError, ServerSettings, Tasks},
    upstream::{Dial, Sender, UpstreamSettings},
};

/// How long a drain waits for the ledger.
const FLUSH: Duration = Duration::from_secs(2);

/// Everything that `start` needs.
#[derive(Debug)]
pub struct Parts {
    /// The table of upstreams.
    pub routes: Routes,
    /// The data listener.
    pub server: ServerSettings,
    /// Where the admin listener is.
    pub admin_listen: SocketAddr,
    /// What the admin listener serves.
    pub admin: axum::Router,
    /// The data path.
    pub proxy: ProxySettings,
    /// The client towards providers.
    pub upstream: UpstreamSettings,
    /// What the data path shares with those who look at it.
    pub shared: Shared,
    /// What outlives conversations, and what writes into it.
    pub ledger: Kept,
}

/// The ledger, with what writes into it while nobody waits.
#[derive(Debug)]
pub struct Kept {
    /// The ledger.
    pub ledger: Arc<dyn Ledger>,
    /// Where writes are handed in.
    pub later: Later,
    /// What does them.
    pub writer: Writer,
}

impl Kept {
    /// Writes into `ledger`.
    pub fn new(ledger: Arc<dyn Ledger>) -> Self {
        let (later, writer) = later(Arc::clone(&ledger));
        Self { ledger, later, writer }
    }
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TLS towards providers cannot be set up.
    #[error("tls cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// Binds both listeners and serves until the drain.
pub async fn start(parts: Parts) -> Result<Running, StartError> {
    let Parts {
        routes,
        server,
        admin_listen,
        admin,
        proxy,
        upstream: upstream_settings,
        shared,
        ledger,
    } = parts;
    let tasks = Tasks::default();
    let data = server::bind(server.listen).await?;
    let admin_listener = server::bind(admin_listen).await?;
    let data_address = data.local_addr().unwrap_or(server.listen);
    let admin_address = admin_listener.local_addr().unwrap_or(admin_listen);
    let sender = Sender::new(&upstream_settings, tasks.clone())?;
    let principals = PrincipalKey::new(ledger.ledger.secret());
    let proxy = Proxy::new(routes, proxy, sender, shared, data_address.ip(), principals);
    let drain_timeout = server.drain_timeout;
    let keeping = Tasks::default();
    keeping.spawn_background(ledger.writer.run());
    tasks.spawn_background(server::serve(data, server, tasks.clone(), proxy));
    // The admin listener answers until the end, so that a drain can be watched.
    tasks.spawn_background(async move {
        if let Err(error) = axum::serve(admin_listener, admin).await {
            tracing::error!(%error, "the admin listener has ended");
        }
    });
    Ok(Running {
        data: data_address,
        admin: admin_address,
        tasks,
        drain_timeout,
        keeping,
        later: ledger.later,
    })
}

/// The running proxy.
#[derive(Debug)]
pub struct Running {
    /// Where the data listener is bound.
    pub data: SocketAddr,
    /// Where the admin listener is bound.
    pub admin: SocketAddr,
    tasks: Tasks,
    drain_timeout: Duration,
    /// What writes into the ledger: until nobody has anything to write any more.
    keeping: Tasks,
    later: Later,
}

impl Running {
    /// Stops accepting, lets what runs finish within the drain timeout, cuts the rest.
    pub async fn drain(self) {
        let cut = self.tasks.drain(self.drain_timeout).await;
        if cut > 0 {
            tracing::warn!(connections = cut, "the drain timeout has passed: connections were cut");
        }
        if tokio::time::timeout(FLUSH, self.later.flush()).await.is_err() {
            tracing::warn!("the ledger does not answer: what it was to keep last is lost");
        }
        self.keeping.drain(Duration::ZERO).await;
    }
}

/// The data path without a socket: providers and clients live in this process. The listeners' settings say nothing.
pub fn within(parts: Parts, dial: Dial) -> Within {
    let Parts {
        routes,
        server,
        proxy,
        upstream: upstream_settings,
        shared,
        ledger,
        ..
    } = parts;
    let tasks = Tasks::default();
    let sender = Sender::with_dial(&upstream_settings, tasks.clone(), dial);
    let listen = server.listen.ip();
    let principals = PrincipalKey::new(ledger.ledger.secret());
    tasks.spawn_background(ledger.writer.run());
    Within {
        proxy: Proxy::new(routes, proxy, sender, shared, listen, principals),
        tasks,
        server,
    }
}

/// The proxy within this process. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Within {
    proxy: Proxy,
    tasks: Tasks,
    server: ServerSettings,
}

impl Within {
    /// Serves one client until its connection ends.
    pub fn serve(&self, client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let (server, tasks, proxy) = (self.server.clone(), self.tasks.clone(), self.proxy.clone());
        self.tasks
            .spawn_connection(server::connection(client, server, tasks, proxy));
    }

    /// Lets what runs finish within the drain timeout, cuts the rest, and says how many connections that was.
    pub async fn drain(self) -> usize {
        self.tasks.drain(self.server.drain_timeout).await
    }
}
