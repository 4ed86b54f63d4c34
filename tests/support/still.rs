//! The still world: provider, proxy and clients in one process on paused time, so that every wait is exact.
//!
//! Use it under `#[tokio::test(start_paused = true)]`. Time advances only when no task can run, and then jumps to the
//! next timer. A test that waits for something that never comes panics after a simulated day, at once.

mod client;
pub mod events;
mod provider;
mod script;

use std::{net::SocketAddr, time::Duration};

use antiphon::{
    app::AppParts,
    keys::profiles::Profiles,
    policy::ExchangeTimeouts,
    provider::Routes,
    proxy::{BoundAddresses, Proxy, ProxyNetwork, ProxyReload, ProxyServices, ProxySettings},
    server::budget::{BodyMemory, Budgets, HeavyWork},
    server::{self, ClientAddress, ServerSettings, Tasks},
    upstream::{InProcessDialer, Sender},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    time::Instant,
};

pub use client::{Answer, Client, Piece};
pub use provider::{Connection, Request};
pub use script::{Step, advance, error, head, json, say, sse, wait};

use super::{
    app::{Builder, towards},
    wire::{Message, spawn},
};
use provider::Provider;

/// The longest wait of a test, on paused time.
const PATIENCE: Duration = Duration::from_secs(24 * 60 * 60);
/// Buffer size of a connection in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Returns a duration in seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Asserts that `time` is `wanted`, within one timer tick of tokio.
#[track_caller]
pub fn assert_at(time: Duration, wanted: Duration) {
    let off = time.abs_diff(wanted);
    assert!(off <= Duration::from_millis(1), "at {time:?}, not at {wanted:?}");
}

/// Time since a world began.
#[derive(Clone, Copy, Debug)]
struct Clock(Instant);

impl Clock {
    fn now(self) -> Duration {
        self.0.elapsed()
    }
}

/// A running data path without sockets. Cheap to clone.
#[derive(Clone, Debug)]
struct InProcessProxy {
    proxy: Proxy,
    tasks: Tasks,
    server: ServerSettings,
}

impl InProcessProxy {
    /// Starts the data path for clients and providers in this process. Listeners' addresses are ignored.
    fn start(parts: AppParts, dial: InProcessDialer) -> Self {
        let (server, shared, tasks) = (parts.server, parts.shared, Tasks::on_current_runtime());
        let sender = Sender::with_dial(&parts.upstream, tasks.clone(), dial);
        let telemetry = shared.telemetry.clone();
        parts.background_work.start(tasks.clone(), telemetry.clone());
        sender.observe_connects(move |took| telemetry.record_connect(took));
        let network = ProxyNetwork {
            sender,
            bound: BoundAddresses {
                data: server.listen,
                admin: None,
                has_tls: false,
            },
            budgets: Budgets {
                work: parts.runtimes.heavy,
                memory: parts.body_memory,
            },
            stopping: tasks.stop_signal(),
            closing: tasks.closing_signal(),
            exchanges: tasks.exchange_tracker(),
        };
        Self {
            proxy: Proxy::new(parts.routes, parts.proxy, shared, network),
            tasks,
            server,
        }
    }

    /// Serves one client connection until it ends.
    fn serve_connection(
        &self,
        client: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        peer: Option<ClientAddress>,
    ) {
        let (server, tasks, proxy) = (self.server.clone(), self.tasks.clone(), self.proxy.clone());
        self.tasks
            .spawn_connection(server::serve_connection(client, peer, server, tasks, proxy));
    }
}

/// A proxy with production timeouts, its scripted provider, and its clients. All times are relative to its start.
///
/// `/anthropic`, `/openai` and `/gemini` lead to the same provider.
pub struct World {
    /// The services of the data path.
    pub shared: ProxyServices,
    /// The memory of request bodies.
    pub body_memory: BodyMemory,
    /// The places in heavy work, which tests may take.
    pub heavy_work: HeavyWork,
    provider: Provider,
    proxy: InProcessProxy,
    routes: Routes,
    settings: ProxySettings,
    clock: Clock,
}

impl World {
    /// Returns a world with the default settings.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// Returns a world with changed settings.
    pub fn with(change: impl FnOnce(&mut Builder)) -> Self {
        let clock = Clock(Instant::now());
        Self::before(Provider::new(clock), clock, change)
    }

    /// Returns another replica before the same provider, with its own settings.
    pub fn replica(&self, change: impl FnOnce(&mut Builder)) -> Self {
        Self::before(self.provider.clone(), self.clock, change)
    }

    fn before(provider: Provider, clock: Clock, change: impl FnOnce(&mut Builder)) -> Self {
        let parts = towards("provider.test:80").with(settle).with(change).parts();
        Self {
            shared: parts.shared.clone(),
            body_memory: parts.body_memory.clone(),
            heavy_work: parts.runtimes.heavy.clone(),
            routes: parts.routes.clone(),
            settings: parts.proxy.clone(),
            proxy: InProcessProxy::start(parts, provider.dial()),
            provider,
            clock,
        }
    }

    /// Queues a script of the provider. It is for the next connection if its first step is about dialling, otherwise
    /// for the next request.
    pub fn script(&self, steps: impl IntoIterator<Item = Step>) {
        self.provider.push(steps.into_iter().collect());
    }

    /// Sets the behaviour for requests without a script. The default is a 500.
    pub fn otherwise(&self, choose: impl FnMut(&Message) -> Vec<Step> + Send + 'static) {
        self.provider.otherwise(Box::new(choose));
    }

    /// Reloads the settings with other profiles.
    pub fn reload(&self, profiles: Profiles) {
        profiles.inherit_state(&self.shared.profiles);
        self.proxy.proxy.reload_settings(ProxyReload {
            routes: self.routes.clone(),
            settings: self.settings.clone(),
            sender: None,
            profiles,
        });
    }

    /// Opens a connection to the proxy.
    pub fn client(&self) -> Client {
        self.client_at(None)
    }

    /// Opens a connection to the proxy from `192.0.2.LAST`.
    pub fn client_from(&self, last: u8) -> Client {
        self.client_at(Some(ClientAddress([192, 0, 2, last].into())))
    }

    fn client_at(&self, peer: Option<ClientAddress>) -> Client {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        self.proxy.serve_connection(far, peer);
        Client::new(near, self.clock)
    }

    /// Opens a loopback port of the proxy, for clients that are separate programs.
    ///
    /// Sockets do not hold paused time. Run such a client in `spawn_blocking`, which does, and let the provider advance
    /// time with [`Step::Advance`]: nothing else can.
    pub fn listen(&self) -> SocketAddr {
        let listener = server::bind_listener(([127, 0, 0, 1], 0).into()).unwrap();
        let (address, proxy) = (listener.local_addr().unwrap(), self.proxy.clone());
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                proxy.serve_connection(stream, None);
            }
        });
        address
    }

    /// Drains the proxy: exchanges that still run after `timeout` are ended. Returns the number of their connections.
    pub async fn drain(&self, timeout: Duration) -> usize {
        self.proxy.tasks.drain(timeout).await
    }

    /// Sends one request over its own connection and returns the whole answer.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.client();
        client.send(request).await;
        client.answer().await
    }

    /// Returns the current time.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Waits until this time.
    pub async fn until(&self, time: Duration) {
        tokio::time::sleep_until(self.clock.0 + time).await;
    }

    /// Waits until every task is idle, which takes one millisecond.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Returns every request that the provider has read completely.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.requests()
    }

    /// Returns the only request.
    #[track_caller]
    pub fn request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests upstream: {requests:?}");
        requests.remove(0)
    }

    /// Returns the message of one request.
    #[track_caller]
    pub fn request_at(&self, place: usize) -> Message {
        self.requests().swap_remove(place).message
    }

    /// Removes all queued scripts.
    pub fn clear(&self) {
        self.provider.clear();
    }

    /// Returns every connection that the proxy has dialled.
    pub fn connections(&self) -> Vec<Connection> {
        self.provider.connections()
    }
}

/// Sets the production defaults.
fn settle(builder: &mut Builder) {
    let clocks = ExchangeTimeouts::default();
    builder.upstream.connect_timeout = clocks.connect;
    builder.upstream.tls_timeout = clocks.tls;
    builder.upstream.send_timeout = clocks.send;
    builder.proxy.timeouts = clocks;
    builder.server.client_stall = secs(120);
    builder.upstream.pool_idle_timeout = secs(25);
    builder.proxy.upload_idle_timeout = secs(30);
    builder.server.header_timeout = secs(30);
    builder.server.drain_timeout = secs(30);
}
