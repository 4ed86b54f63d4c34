//! The one log line of an exchange.

use std::time::Duration;

use super::writer::EXCHANGE;
use crate::{
    repair::Report,
    telemetry::{ExchangeTrace, events::ExchangeEnded},
};

/// Characters of a path that are logged.
const PATH_MAX: usize = 256;

/// Writes it.
pub(in crate::telemetry) fn of_exchange(event: &ExchangeEnded) {
    let ExchangeEnded {
        request_id,
        method,
        status,
        attempts,
        bytes_in,
        bytes_out,
        phase,
        code,
        ..
    } = event;
    let path = event.path.split('?').next().unwrap_or_default();
    let end = path.char_indices().nth(PATH_MAX).map_or(path.len(), |(at, _)| at);
    let path = path.get(..end).unwrap_or_default();
    tracing::info!(
        target: EXCHANGE,
        request_id,
        trace_id = event.trace.as_deref().map(ExchangeTrace::id),
        method,
        path,
        upstream = event.upstream.as_deref(),
        format = event.format.map(crate::wire::Format::label),
        mode = event.mode.map(crate::repair::Mode::label),
        status,
        repair = repair_words(event),
        stop = event.watched.map(|watched| watched.stop),
        calls = event.watched.map(|watched| watched.calls),
        server_tools = event.watched.map(|watched| watched.server_tools),
        profile = event.profile.as_deref(),
        tool = event.tool.as_ref().map(|tool| tool.name.as_str()),
        tool_id = event.tool.as_ref().map(|tool| tool.id.as_str()),
        tool_ms = event.tool.as_ref().map(|tool| millis(tool.age)),
        attempts, bytes_in, bytes_out,
        overhead_us = micros(event.overhead),
        head_ms = event.upstream_head.map(millis),
        dur_ms = millis(event.duration),
        side = event.side.unwrap_or("-"),
        phase, code,
        "exchange ended"
    );
}

/// What was done about the body, in the words of `x-antiphon-repair`; none where no body was looked at.
pub(in crate::telemetry) fn repair_words(event: &ExchangeEnded) -> Option<String> {
    if event.rejected {
        return Some("rejected".to_owned());
    }
    // Of a batch some entries may be unreadable and others mended.
    let mended = event.report.as_ref().is_some_and(|report| !report.actions.is_empty());
    if let Some(reason) = event.unreadable.filter(|_| !mended) {
        return Some(format!("unreadable; reason={}", reason.code()));
    }
    let Report { findings, actions, .. } = event.report.as_ref()?;
    if !actions.is_empty() {
        let counted: Vec<String> = actions
            .iter()
            .map(|(action, times)| format!("{}={times}", action.label()))
            .collect();
        return Some(counted.join(", "));
    }
    Some(if findings.is_empty() { "none" } else { "observed" }.to_owned())
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
