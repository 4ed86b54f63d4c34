//! The status of the process, for the admin API: version, addresses and configuration.

use serde::Serialize;
use utoipa::ToSchema;

use super::rfc3339_date;
use crate::{
    api::admin::{AdminState, control::UpstreamSummary},
    clock,
};

/// The status of the process.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Status)]
pub(in crate::api::admin) struct StatusView {
    version: &'static str,
    /// The start of the process, RFC 3339.
    started_at: String,
    uptime_seconds: f64,
    /// The address of the proxy's listener; null before it is bound.
    listen: Option<String>,
    /// True if clients must use `https`.
    tls: bool,
    /// True during a drain: running exchanges may finish, and the readiness check fails.
    draining: bool,
    upstreams: Vec<UpstreamSummary>,
    /// Streamed answers that the proxy is relaying.
    streams_active: i64,
    config: ConfigView,
    log_level: String,
}

/// The configuration in force.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ConfigRow)]
struct ConfigView {
    /// The path of the file; null if the process runs on defaults.
    path: Option<String>,
    /// The time of the last load, RFC 3339.
    loaded_at: String,
    /// The number of successful reloads.
    reloads: u64,
    /// The reason why the last reload failed; null if it succeeded.
    last_error: Option<String>,
}

/// Returns the status of the process.
pub(in crate::api::admin) fn status_view(parts: &AdminState) -> StatusView {
    let (control, now) = (&parts.control, clock::unix_time());
    // One snapshot: a reload in between must not mix two configurations.
    let in_force = control.active_config();
    StatusView {
        version: env!("CARGO_PKG_VERSION"),
        started_at: rfc3339_date(control.started_at()),
        // Saturates, because the system clock may have been set back since the start.
        uptime_seconds: now.saturating_sub(control.started_at()).as_secs_f64(),
        listen: control.listen_address().map(|address| address.to_string()),
        tls: control.has_tls(),
        draining: !parts.readiness.is_ready(),
        upstreams: in_force.upstreams.clone(),
        streams_active: parts.telemetry.active_streams(),
        config: ConfigView {
            path: in_force.path.clone(),
            loaded_at: rfc3339_date(in_force.loaded_at),
            reloads: in_force.reloads,
            last_error: control.last_error(),
        },
        log_level: control.log_control().current_level(),
    }
}
