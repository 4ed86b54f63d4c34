//! The one log line of an exchange.

use std::time::Duration;

use super::writer::EXCHANGE_TARGET;
use crate::telemetry::events::{ExchangeEnded, ExchangeTrace};

/// Limit of logged characters of a path.
const PATH_CHARS_MAX: usize = 256;

/// Logs an exchange that ended, under the target `antiphon::exchange`.
pub(in crate::telemetry) fn log_exchange(event: &ExchangeEnded) {
    let ExchangeEnded {
        request_id,
        method,
        status,
        sends: attempts,
        bytes_in,
        bytes_out,
        phase,
        code,
        ..
    } = event;
    tracing::info!(
        target: EXCHANGE_TARGET,
        request_id,
        trace_id = event.trace.as_deref().map(ExchangeTrace::trace_id),
        method,
        path = short_path(&event.path),
        upstream = event.upstream.as_deref(),
        format = event.format.map(crate::wire::Format::label),
        mode = event.mode.map(crate::repair::Mode::label),
        status,
        repair = event.repair_summary(),
        stop = event.answer_summary.map(|answer| answer.stop),
        calls = event.answer_summary.map(|answer| answer.calls),
        server_tools = event.answer_summary.map(|answer| answer.server_tools),
        profile = event.profile.as_deref(),
        tool = event.running_tool.as_ref().map(|tool| tool.name.as_str()),
        tool_id = event.running_tool.as_ref().map(|tool| tool.id.as_str()),
        tool_ms = event.running_tool.as_ref().map(|tool| millis(tool.age)),
        attempts, bytes_in, bytes_out,
        overhead_us = micros(event.overhead),
        head_ms = event.upstream_head.map(millis),
        dur_ms = millis(event.duration),
        // Never missing, so that a filter by side also finds exchanges without a failure.
        side = event.side.unwrap_or("-"),
        phase, code,
        // Operators filter by these keys: they must not change.
        "exchange ended"
    );
}

/// Returns the start of a path, without the query, which may contain a key.
fn short_path(path: &str) -> &str {
    let path = path.split('?').next().unwrap_or_default();
    // Counted in characters: a cut inside one would not be valid UTF-8.
    let end = path.char_indices().nth(PATH_CHARS_MAX).map_or(path.len(), |(at, _)| at);
    path.get(..end).unwrap_or_default()
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
