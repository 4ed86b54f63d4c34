//! The composition root: builds every part from its settings, starts it, drains it in order.

use std::{net::SocketAddr, time::Duration};

use crate::{
    provider::Routes,
    proxy::{Proxy, ProxySettings},
    server::{self, BindError, ServerSettings, Tasks},
    telemetry::Telemetry,
    upstream::{Sender, UpstreamSettings},
};

/// Everything the app is built from.
#[derive(Debug)]
pub struct AppSettings {
    /// Where requests go.
    pub routes: Routes,
    /// The data path.
    pub proxy: ProxySettings,
    /// Clocks and pool towards providers.
    pub upstream: UpstreamSettings,
    /// The data listener.
    pub server: ServerSettings,
    /// The sink of events.
    pub telemetry: Telemetry,
    /// The admin listener: its address, and what it serves.
    pub admin: Option<(SocketAddr, axum::Router)>,
}

/// Why the app did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// An address could not be listened on.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// TLS towards providers cannot be set up.
    #[error("tls cannot be set up")]
    Tls(#[from] rustls::Error),
}

/// The composition root.
#[derive(Debug)]
pub struct App;

impl App {
    /// Listens and serves until the drain.
    pub async fn start(settings: AppSettings) -> Result<Running, StartError> {
        let AppSettings {
            routes,
            proxy,
            upstream,
            mut server,
            telemetry,
            admin,
        } = settings;
        let tasks = Tasks::default();
        let data = server::bind(server.listen).await?;
        let address = data.local_addr().unwrap_or(server.listen);
        server.listen = address;
        let admin = match admin {
            Some((listen, router)) => Some((server::bind(listen).await?, listen, router)),
            None => None,
        };
        let sender = Sender::new(&upstream, tasks.clone())?;
        let proxy = Proxy::new(routes, proxy, sender, telemetry, address.ip(), upstream.idle_timeout);
        let drain_timeout = server.drain_timeout;
        tasks.spawn_background(server::serve(data, server, tasks.clone(), proxy));
        let admin_address = admin.map(|(listener, listen, router)| {
            let bound = listener.local_addr().unwrap_or(listen);
            // The admin listener answers until the end, so that a drain can be watched.
            tasks.spawn_background(async move {
                if let Err(error) = axum::serve(listener, router).await {
                    tracing::error!(%error, "the admin listener has ended");
                }
            });
            bound
        });
        Ok(Running {
            address,
            admin_address,
            tasks,
            drain_timeout,
        })
    }
}

/// A running app.
#[derive(Debug)]
pub struct Running {
    address: SocketAddr,
    admin_address: Option<SocketAddr>,
    tasks: Tasks,
    drain_timeout: Duration,
}

impl Running {
    /// Where the data listener is bound.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Where the admin listener is bound.
    pub fn admin_address(&self) -> Option<SocketAddr> {
        self.admin_address
    }

    /// Stops accepting, lets what runs finish within the drain timeout, cuts the rest; how many connections were cut.
    pub async fn drain(&self) -> usize {
        self.tasks.drain(self.drain_timeout).await
    }
}
