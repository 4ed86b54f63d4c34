//! The HTTP client: one send with its deadlines.

use std::time::Duration;

/// Clocks and pool limits towards providers.
#[derive(Clone, Debug)]
pub struct UpstreamSettings {
    /// DNS, TCP and TLS together.
    pub connect_timeout: Duration,
    /// From the request sent to the answer's head.
    pub headers_timeout: Duration,
    /// Silence between two pieces of an answer's body.
    pub idle_timeout: Duration,
    /// How long a connection is kept for the next request.
    pub pool_idle_timeout: Duration,
    /// Connections kept per host.
    pub pool_idle_max: usize,
}
