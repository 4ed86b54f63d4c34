//! The life of one exchange, top to bottom.

use std::time::Duration;

use crate::repair::RepairPolicy;

/// Settings of the data path.
#[derive(Clone, Debug)]
pub struct ProxySettings {
    /// Bodies above this size, in bytes, are not inspected.
    pub inspect_bytes_max: usize,
    /// Silence of a client in the middle of its body.
    pub upload_idle_timeout: Duration,
    /// Origins of web pages that may call us, exactly as browsers send them.
    pub allow_origins: Vec<String>,
    /// Host names, besides loopback, under which we may be called; no port.
    pub allow_hosts: Vec<String>,
    /// Whether `x-antiphon-mode` may also make a route less strict.
    pub trust_mode_header: bool,
    /// What repair may do.
    pub policy: RepairPolicy,
}
