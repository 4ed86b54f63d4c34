//! Listeners, connection limits, owned tasks, drain.

use std::{net::SocketAddr, time::Duration};

/// Settings of one listener.
#[derive(Clone, Debug)]
pub struct ServerSettings {
    /// Where to listen.
    pub listen: SocketAddr,
    /// Connections at once; more wait in the kernel's queue.
    pub connections_max: usize,
    /// Time for a client to send its request's head.
    pub header_timeout: Duration,
    /// Time for what runs to finish after SIGTERM.
    pub drain_timeout: Duration,
}
