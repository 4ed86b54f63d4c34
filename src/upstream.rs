//! The HTTP client: one send with its deadlines.

use std::{fmt, time::Duration};

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
    /// The proxies of the environment.
    pub proxies: ProxyEnvironment,
}

/// The proxy variables, as they were found; a URL may hold a password.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ProxyEnvironment {
    /// `HTTPS_PROXY`.
    pub https: Option<String>,
    /// `HTTP_PROXY`.
    pub http: Option<String>,
    /// `ALL_PROXY`.
    pub all: Option<String>,
    /// `NO_PROXY`.
    pub no: Option<String>,
}

impl fmt::Debug for ProxyEnvironment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let set = |value: &Option<String>| value.as_ref().map(|_| "set");
        let mut debug = f.debug_struct("ProxyEnvironment");
        debug.field("https", &set(&self.https)).field("http", &set(&self.http));
        debug.field("all", &set(&self.all)).field("no", &self.no).finish()
    }
}
