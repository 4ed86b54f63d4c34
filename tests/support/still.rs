//! The still world: provider, proxy and clients in one process, on paused time, so that every wait is exact.
//!
//! Use it under `#[tokio::test(start_paused = true)]`: time stands while anybody can run, and then jumps to the next
//! clock. A test that waits for what never comes panics after a day, at once.

mod client;
pub mod events;
mod provider;
mod script;

use std::{net::SocketAddr, time::Duration};

use antiphon::{
    app::{self, InProcessProxy},
    policy::ExchangeTimeouts,
    proxy::ProxyServices,
    server,
};
use tokio::time::Instant;

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
/// Bytes that a connection holds in each direction.
const BUFFER_BYTES: usize = 16 * 1024;

/// Seconds.
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Fails unless `time` is as `wanted`, to the tick of tokio's timers.
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

/// A proxy with the clocks of production, its scripted provider, its clients. All times are since its beginning.
///
/// `/anthropic`, `/openai` and `/gemini` lead to the one provider.
pub struct World {
    /// What the data path shares with those who look at it.
    pub shared: ProxyServices,
    provider: Provider,
    proxy: InProcessProxy,
    clock: Clock,
}

impl World {
    /// With the default settings.
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// With other settings.
    pub fn with(change: impl FnOnce(&mut Builder)) -> Self {
        let clock = Clock(Instant::now());
        let provider = Provider::new(clock);
        let parts = towards("provider.test:80").with(settle).with(change).parts();
        Self {
            shared: parts.shared.clone(),
            proxy: app::start_in_process(parts, provider.dial()),
            provider,
            clock,
        }
    }

    /// What the provider does next: with the next connection where the first step is one of dialling, else with the
    /// next request. Scripts are used up in order.
    pub fn script(&self, steps: impl IntoIterator<Item = Step>) {
        self.provider.push(steps.into_iter().collect());
    }

    /// What the provider does with a request for which no script is left. Without this it says 500.
    pub fn otherwise(&self, choose: impl FnMut(&Message) -> Vec<Step> + Send + 'static) {
        self.provider.otherwise(Box::new(choose));
    }

    /// A new connection to the proxy.
    pub fn client(&self) -> Client {
        let (near, far) = tokio::io::duplex(BUFFER_BYTES);
        self.proxy.serve_connection(far);
        Client::new(near, self.clock)
    }

    /// A port on loopback that leads to the proxy, for clients that are programs of their own.
    ///
    /// Sockets do not hold time: run such a client in `spawn_blocking`, which does, and let the provider move it with
    /// [`Step::Advance`], for no other clock goes by then.
    pub async fn listen(&self) -> SocketAddr {
        let listener = server::bind_listener(([127, 0, 0, 1], 0).into()).await.unwrap();
        let (address, proxy) = (listener.local_addr().unwrap(), self.proxy.clone());
        spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                proxy.serve_connection(stream);
            }
        });
        address
    }

    /// One request on a connection of its own, and all of its answer.
    pub async fn ask(&self, request: impl AsRef<[u8]>) -> Answer {
        let mut client = self.client();
        client.send(request).await;
        client.answer().await
    }

    /// The present.
    pub fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Waits for a time.
    pub async fn until(&self, time: Duration) {
        tokio::time::sleep_until(self.clock.0 + time).await;
    }

    /// Waits until everybody waits: what happens at once has happened. Costs a millisecond.
    pub async fn settle(&self) {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }

    /// Every request that the provider has read whole.
    pub fn requests(&self) -> Vec<Request> {
        self.provider.requests()
    }

    /// The only one.
    #[track_caller]
    pub fn request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "requests upstream: {requests:?}");
        requests.remove(0)
    }

    /// The message of one request.
    #[track_caller]
    pub fn request_at(&self, place: usize) -> Message {
        self.requests().swap_remove(place).message
    }

    /// Forgets every script that is left.
    pub fn clear(&self) {
        self.provider.clear();
    }

    /// Every connection that the proxy has dialled.
    pub fn connections(&self) -> Vec<Connection> {
        self.provider.connections()
    }
}

/// The defaults of production.
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
