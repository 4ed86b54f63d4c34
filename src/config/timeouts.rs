//! Converts `[timeouts]` and `[rotation]` to settings.

use super::file::{RotationSection, TimeoutsSection};
use crate::{
    policy::{ExchangeTimeouts, RotationSettings},
    upstream::{ProxyEnvironment, UpstreamSettings},
};

/// Maximum number of idle connections per upstream host.
const POOL_IDLE_MAX: usize = 64;

/// Builds the timeouts of an exchange.
pub(super) fn exchange_timeouts(section: &TimeoutsSection) -> ExchangeTimeouts {
    ExchangeTimeouts {
        connect: section.connect.duration(),
        tls: section.tls.duration(),
        send: section.send.duration(),
        headers: section.headers.duration(),
        stream_headers: section.stream_headers.duration(),
        first_event: section.first_event.duration(),
        idle: section.idle.duration(),
        heartbeat_idle: section.heartbeat_idle.duration(),
        progress: section.progress.duration(),
        reasoning: section.reasoning.duration(),
        server_tool: section.server_tool.duration(),
        compaction: section.compaction.duration(),
        total: section.total.duration(),
        gate: section.gate.duration(),
        queue: section.queue.duration(),
    }
}

/// Builds the settings of the HTTP client towards providers.
pub(super) fn upstream_settings(section: &TimeoutsSection, proxies: ProxyEnvironment) -> UpstreamSettings {
    UpstreamSettings {
        connect_timeout: section.connect.duration(),
        tls_timeout: section.tls.duration(),
        send_timeout: section.send.duration(),
        pool_idle_timeout: section.pool_idle.duration(),
        pool_idle_max: POOL_IDLE_MAX,
        proxies,
    }
}

/// Builds the settings of rotation.
pub(super) fn rotation_settings(section: &RotationSection) -> RotationSettings {
    RotationSettings {
        wait: section.wait.duration(),
        on_organisation_change: section.on_organisation_change.0,
    }
}
