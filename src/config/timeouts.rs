//! Converts `[timeouts]` and `[rotation]` to settings.

use std::time::Duration;

use super::lowering::{Lowering, TIMEOUT_MIN};
use crate::{
    policy::{ExchangeTimeouts, RotationSettings},
    upstream::{ProxyEnvironment, UpstreamSettings},
};

/// Maximum number of idle connections per upstream host.
const POOL_IDLE_MAX: usize = 64;

/// Builds the timeouts of an exchange.
pub(super) fn lower_timeouts(lowering: &mut Lowering) -> ExchangeTimeouts {
    let section = lowering.file.timeouts.clone();
    let mut clock = |key: &str, text: &str| lowering.duration_or_report(&format!("timeouts.{key}"), text, TIMEOUT_MIN);
    ExchangeTimeouts {
        connect: clock("connect", &section.connect),
        tls: clock("tls", &section.tls),
        send: clock("send", &section.send),
        headers: clock("headers", &section.headers),
        stream_headers: clock("stream_headers", &section.stream_headers),
        first_event: clock("first_event", &section.first_event),
        idle: clock("idle", &section.idle),
        heartbeat_idle: clock("heartbeat_idle", &section.heartbeat_idle),
        progress: clock("progress", &section.progress),
        reasoning: clock("reasoning", &section.reasoning),
        server_tool: clock("server_tool", &section.server_tool),
        compaction: clock("compaction", &section.compaction),
        total: clock("total", &section.total),
        // Zero turns these two off. For every other timeout it would end each exchange at once.
        gate: lowering.duration_or_report("timeouts.gate", &section.gate, Duration::ZERO),
        queue: lowering.duration_or_report("timeouts.queue", &section.queue, Duration::ZERO),
    }
}

/// Returns the timeout for clients that read nothing.
pub(super) fn lower_client_stall(lowering: &mut Lowering) -> Duration {
    let section = lowering.file.timeouts.client_stall.clone();
    lowering.duration_or_report("timeouts.client_stall", &section, TIMEOUT_MIN)
}

/// Builds the settings of the HTTP client towards providers, with the timeouts of `clocks`.
pub(super) fn lower_upstream_settings(
    lowering: &mut Lowering,
    clocks: &ExchangeTimeouts,
    proxies: ProxyEnvironment,
) -> UpstreamSettings {
    let pool_idle = lowering.file.timeouts.pool_idle.clone();
    UpstreamSettings {
        connect_timeout: clocks.connect,
        tls_timeout: clocks.tls,
        send_timeout: clocks.send,
        pool_idle_timeout: lowering.duration_or_report("timeouts.pool_idle", &pool_idle, TIMEOUT_MIN),
        pool_idle_max: POOL_IDLE_MAX,
        proxies,
    }
}

/// Builds the settings of rotation.
pub(super) fn lower_rotation(lowering: &mut Lowering) -> RotationSettings {
    let section = lowering.file.rotation.clone();
    RotationSettings {
        // Zero is allowed: a lane then never waits for its own profile.
        wait: lowering.duration_or_report("rotation.wait", &section.wait, Duration::ZERO),
        on_organisation_change: section.on_organisation_change.0,
    }
}
