//! The one log event of an exchange: every field, at the level of its outcome.

use std::{borrow::Cow, time::Duration};

use super::writer::EXCHANGE_TARGET;
use crate::{
    conversation::{Finding, FindingKind},
    printable::{printable_text, printable_word, to_word},
    repair::{BROKEN_CALLS_MAX, RepairReport},
    telemetry::events::{ExchangeEnded, ExchangeTrace},
};

/// Limit of logged characters of a path.
const PATH_CHARS_MAX: usize = 256;

/// Writes the event of an exchange at a level, which tracing wants as a constant of the place in the code.
macro_rules! exchange_event {
    ($level:ident, $event:ident) => {{
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
        } = $event;
        let (answer, tool) = ($event.answer_summary, $event.running_tool.as_ref());
        let report = $event.report.as_ref();
        tracing::$level!(
            target: EXCHANGE_TARGET,
            request_id,
            trace_id = $event.trace.as_deref().map(ExchangeTrace::trace_id),
            method,
            path = &*short_path(&$event.path),
            upstream = $event.upstream.as_deref(),
            format = $event.format.map(crate::wire::Format::label),
            mode = $event.mode.map(crate::repair::Mode::label),
            status,
            repair = $event.repair_summary(),
            rules = $event.rules(),
            stop = answer.map(|answer| answer.stop),
            calls = answer.map(|answer| answer.calls),
            server_tools = answer.map(|answer| answer.server_tools),
            profile = $event.profile.as_deref(),
            tool = tool.map(|tool| to_word(tool.name.clone())),
            tool_id = tool.map(|tool| to_word(tool.id.clone())),
            tool_ms = tool.map(|tool| millis(tool.age)),
            attempts, bytes_in, bytes_out,
            overhead_us = micros($event.overhead),
            ledger_hold_ms = Some(millis($event.ledger_hold)).filter(|held| *held > 0),
            head_ms = $event.upstream_head.map(millis),
            dur_ms = millis($event.duration),
            // Never missing, so that a filter by side also finds exchanges without a failure.
            side = $event.side.unwrap_or("-"),
            phase, code,
            cause = $event.cause.map(crate::upstream::NetworkCause::label),
            model = $event.model.as_deref(),
            client = $event.client.as_deref(),
            client_token = $event.client_token.as_deref(),
            lane = $event.lane.as_deref(),
            // An answer that reports no tokens must not look like one of none.
            input_tokens = answer.map(|answer| answer.input_tokens).filter(|tokens| *tokens > 0),
            output_tokens = answer.map(|answer| answer.output_tokens).filter(|tokens| *tokens > 0),
            findings = report.map(|report| report.findings.len()).filter(|count| *count > 0),
            broken_calls = report.and_then(broken_calls),
            history_refused = $event.is_history_refused.then_some(true),
            // Operators filter by these keys: they must not change.
            "exchange ended"
        );
    }};
}

/// Logs an exchange that ended, under the target `antiphon::exchange`: failures as warnings, the others as information.
pub(in crate::telemetry) fn log_exchange(event: &ExchangeEnded) {
    if event.is_failure() {
        exchange_event!(warn, event);
    } else {
        exchange_event!(info, event);
    }
}

/// Returns the first broken calls, each as fault, tool and call id. `None` if there are none.
fn broken_calls(report: &RepairReport) -> Option<String> {
    let calls = report.broken_calls.iter();
    let mut words: Vec<String> = calls.map(|call| call_words(call.kind, &call.tool, &call.id)).collect();
    // Values that the client dropped, and calls that exist at the provider only, are findings without a call in the body.
    let is_new =
        |finding: &&Finding| !finding.id.is_empty() && !report.broken_calls.iter().any(|call| call.has_id(&finding.id));
    let room = BROKEN_CALLS_MAX.saturating_sub(words.len());
    let others = report.findings.iter().filter(is_new).take(room);
    words.extend(others.map(|finding| call_words(finding.kind, "", &finding.id)));
    (!words.is_empty()).then(|| words.join(", "))
}

/// Returns the fault, the tool and the id of a call. Names of others are escaped and shortened.
fn call_words(kind: FindingKind, tool: &str, id: &str) -> String {
    let (tool, id) = (printable_word(tool.as_bytes()), printable_word(id.as_bytes()));
    format!("{} {tool} {id}", kind.code())
}

/// Returns the start of a path, without the query, which may contain a key.
fn short_path(path: &str) -> Cow<'_, str> {
    let path = path.split('?').next().unwrap_or_default();
    // Counted in characters: a cut inside one would not be valid UTF-8.
    let end = path.char_indices().nth(PATH_CHARS_MAX).map_or(path.len(), |(at, _)| at);
    let start = path.get(..end).unwrap_or_default();
    if start.bytes().all(|byte| byte.is_ascii_graphic()) {
        Cow::Borrowed(start)
    } else {
        Cow::Owned(printable_text(start))
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
