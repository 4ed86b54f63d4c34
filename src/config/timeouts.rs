//! Converts `[timeouts]` and `[rotation]` to settings.

use std::time::Duration;

use super::file::{Meaning, RotationSection, TimeoutsSection, Written};
use crate::{
    policy::{ExchangeTimeouts, RotationSettings},
    upstream::{ProxyEnvironment, UpstreamSettings},
};

/// Time that an idle connection to a provider stays open for reuse. Providers close after 30 s or more.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(25);
/// Maximum number of idle connections per upstream host.
const POOL_IDLE_MAX: usize = 64;

/// Builds the timeouts of an exchange.
pub(super) fn exchange_timeouts(section: &TimeoutsSection, rotation: &RotationSection) -> ExchangeTimeouts {
    let fixed = ExchangeTimeouts::default();
    let [connect, headers, idle, progress, server_tool] = [
        &section.connect,
        &section.headers,
        &section.idle,
        &section.progress,
        &section.server_tool,
    ]
    .map(Written::value_or_default);
    ExchangeTimeouts {
        connect,
        tls: old_or(section.tls.as_ref(), connect),
        send: old_or(section.send.as_ref(), fixed.send),
        headers,
        stream_headers: old_or(
            section.stream_headers.as_ref(),
            fixed.stream_headers.max(headers / 10).min(headers),
        ),
        first_event: old_or(
            section.first_event.as_ref(),
            fixed.first_event.max(progress / 2).min(progress),
        ),
        idle,
        heartbeat_idle: old_or(section.heartbeat_idle.as_ref(), fixed.heartbeat_idle.min(idle)),
        progress,
        reasoning: section.reasoning.value_or_default(),
        server_tool,
        compaction: old_or(section.compaction.as_ref(), server_tool),
        total: section.total.value_or_default(),
        gate: section.gate.value_or_default(),
        // A wait for a profile in cooldown also ends with `rotation.wait` itself.
        queue: old_or(
            section.queue.as_ref(),
            fixed.queue.max(rotation.wait.value_or_default()),
        ),
    }
}

/// Returns the value of an old key, else the one that takes its place.
pub(super) fn old_or<M: Meaning<Value = Duration>>(old: Option<&Written<M>>, new: Duration) -> Duration {
    old.map_or(new, Written::value_or_default)
}

/// Builds the settings of the HTTP client towards providers, with the timeouts of `clocks`.
pub(super) fn upstream_settings(
    section: &TimeoutsSection,
    clocks: &ExchangeTimeouts,
    proxies: ProxyEnvironment,
) -> UpstreamSettings {
    UpstreamSettings {
        connect_timeout: clocks.connect,
        tls_timeout: clocks.tls,
        send_timeout: clocks.send,
        pool_idle_timeout: old_or(section.pool_idle.as_ref(), POOL_IDLE_TIMEOUT),
        pool_idle_max: POOL_IDLE_MAX,
        proxies,
    }
}

/// Builds the settings of rotation.
pub(super) fn rotation_settings(section: &RotationSection) -> RotationSettings {
    RotationSettings {
        wait: section.wait.value_or_default(),
        on_organisation_change: section.on_organisation_change.0,
    }
}
