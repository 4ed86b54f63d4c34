//! The process as it stands: version, addresses, configuration.

use serde::Serialize;
use utoipa::ToSchema;

use super::date;
use crate::{
    admin::{Parts, control::UpstreamView},
    clock,
};

/// The process as it stands.
#[derive(Debug, Serialize, ToSchema)]
pub(in crate::admin) struct Status {
    version: &'static str,
    /// RFC 3339.
    started_at: String,
    uptime_seconds: f64,
    /// Where the proxy listens; null where it does not.
    listen: Option<String>,
    /// Whether what runs is finished and nothing new is taken.
    draining: bool,
    upstreams: Vec<UpstreamRow>,
    /// Answers whose bodies are flowing.
    streams_active: i64,
    config: ConfigRow,
    log_level: String,
}

/// An upstream.
#[derive(Debug, Serialize, ToSchema)]
struct UpstreamRow {
    name: String,
    url: String,
    /// What its routes do about findings: `repair`, `strict` or `observe`.
    mode: &'static str,
}

/// The configuration in force.
#[derive(Debug, Serialize, ToSchema)]
struct ConfigRow {
    /// The file; null where there is none.
    path: Option<String>,
    /// RFC 3339.
    loaded_at: String,
    /// How often it was loaded anew.
    reloads: u64,
    /// Why the last attempt to load it anew failed; null where it did not.
    last_error: Option<String>,
}

/// The status.
pub(in crate::admin) fn status(parts: &Parts) -> Status {
    let (control, now) = (&parts.control, clock::since_1970());
    let in_force = control.in_force();
    let upstream = |view: &UpstreamView| UpstreamRow {
        name: view.name.clone(),
        url: view.url.clone(),
        mode: view.mode.label(),
    };
    Status {
        version: env!("CARGO_PKG_VERSION"),
        started_at: date(control.started_at()),
        uptime_seconds: now.saturating_sub(control.started_at()).as_secs_f64(),
        listen: control.listen().map(|address| address.to_string()),
        draining: !parts.readiness.is_ready(),
        upstreams: in_force.upstreams.iter().map(upstream).collect(),
        streams_active: parts.telemetry.active_streams(),
        config: ConfigRow {
            path: in_force.path.clone(),
            loaded_at: date(in_force.loaded_at),
            reloads: in_force.reloads,
            last_error: control.last_error(),
        },
        log_level: control.log().level(),
    }
}
