//! Converts `[timeouts]` and `[rotation]` to settings.

use std::time::Duration;

use super::lowering::{Lowering, TIMEOUT_MIN};
use crate::{
    policy::{Clocks, RotationSettings},
    upstream::{ProxyEnvironment, UpstreamSettings},
};

/// Maximum number of idle connections per upstream host.
const POOL_IDLE_MAX: usize = 64;

/// Builds the timeouts of an exchange.
pub(super) fn lower_clocks(lowering: &mut Lowering) -> Clocks {
    let said = lowering.file.timeouts.clone();
    let mut clock = |key: &str, text: &str| lowering.duration(&format!("timeouts.{key}"), text, TIMEOUT_MIN);
    Clocks {
        connect: clock("connect", &said.connect),
        tls: clock("tls", &said.tls),
        send: clock("send", &said.send),
        headers: clock("headers", &said.headers),
        stream_headers: clock("stream_headers", &said.stream_headers),
        first_event: clock("first_event", &said.first_event),
        idle: clock("idle", &said.idle),
        heartbeat_idle: clock("heartbeat_idle", &said.heartbeat_idle),
        progress: clock("progress", &said.progress),
        reasoning: clock("reasoning", &said.reasoning),
        server_tool: clock("server_tool", &said.server_tool),
        compaction: clock("compaction", &said.compaction),
        total: clock("total", &said.total),
        // Zero turns these two off. For every other timeout it would end each exchange at once.
        gate: lowering.duration("timeouts.gate", &said.gate, Duration::ZERO),
        queue: lowering.duration("timeouts.queue", &said.queue, Duration::ZERO),
    }
}

/// Returns the timeout for clients that read nothing.
pub(super) fn lower_client_stall(lowering: &mut Lowering) -> Duration {
    let said = lowering.file.timeouts.client_stall.clone();
    lowering.duration("timeouts.client_stall", &said, TIMEOUT_MIN)
}

/// Builds the settings of the HTTP client towards providers, with the timeouts of `clocks`.
pub(super) fn lower_upstream_settings(
    lowering: &mut Lowering,
    clocks: &Clocks,
    proxies: ProxyEnvironment,
) -> UpstreamSettings {
    let pool_idle = lowering.file.timeouts.pool_idle.clone();
    UpstreamSettings {
        connect_timeout: clocks.connect,
        tls_timeout: clocks.tls,
        send_timeout: clocks.send,
        pool_idle_timeout: lowering.duration("timeouts.pool_idle", &pool_idle, TIMEOUT_MIN),
        pool_idle_max: POOL_IDLE_MAX,
        proxies,
    }
}

/// Builds the settings of rotation.
pub(super) fn lower_rotation(lowering: &mut Lowering) -> RotationSettings {
    let said = lowering.file.rotation.clone();
    RotationSettings {
        // Zero is allowed: a lane then never waits for its own profile.
        wait: lowering.duration("rotation.wait", &said.wait, Duration::ZERO),
        on_organisation_change: said.on_organisation_change.into(),
    }
}
