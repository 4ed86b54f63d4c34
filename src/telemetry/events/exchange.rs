//! The event of an exchange that ended: the source of its log line, its metrics, its spans and its dashboard entry.

use std::{borrow::Cow, time::Duration};

use super::{
    mends::MadeMend,
    refusal::{RowOutcome, RowRefusal},
    trace::ExchangeTrace,
};
use crate::{
    policy::{Side, stream_timeouts::RunningTool},
    repair::{Mode, RepairReport},
    upstream::NetworkCause,
    wire::{Format, Unreadable, watch::Watcher},
};

/// An exchange that ended, for whatever reason.
#[derive(Clone, Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts of an exchange")]
pub struct ExchangeEnded {
    /// The value of `x-antiphon-request-id`: a UUID v7.
    pub request_id: String,
    /// The HTTP method of the request; `OTHER` if it is unusual.
    pub method: &'static str,
    /// The name of the upstream; `None` if no route matched.
    pub upstream: Option<String>,
    /// `true` if the path asks a model for an answer. A client may ask others to find out what runs there.
    pub asks_model: bool,
    /// The path of the request, without the query.
    pub path: String,
    /// The format of the body; `None` if requests on this path contain no history.
    pub format: Option<Format>,
    /// The mode in force; `None` if requests on this path contain no history.
    pub mode: Option<Mode>,
    /// The model that the request names, escaped and shortened; `None` if it names none, or its body was not read.
    pub model: Option<String>,
    /// The client program, such as `claude-cli/1.0.83`, escaped and shortened; `None` if it does not name itself.
    pub client: Option<String>,
    /// The name of the client token in the configuration, never its value; `None` if the client presented none.
    pub client_token: Option<String>,
    /// The lane, as the dashboard shows it: the start of its hash; `None` if nothing identifies it.
    pub lane: Option<String>,
    /// The status sent to the client; 0 if none was sent.
    pub status: u16,
    /// The findings and the repair actions; `None` if no body was read.
    pub report: Option<RepairReport>,
    /// The reason why the body could not be read.
    pub unreadable: Option<Unreadable>,
    /// `true` if strict mode rejected the request.
    pub is_rejected: bool,
    /// `true` if the provider refused the history, although the proxy repaired what it could.
    pub is_history_refused: bool,
    /// The mends of the body that was sent last.
    pub mends: Vec<MadeMend>,
    /// The refusals that rows have read, in their order.
    pub row_refusals: Vec<RowRefusal>,
    /// The number of sends to the provider, resends included. Log key `attempts`.
    pub sends: u32,
    /// Bytes of the request's body as it was received.
    pub bytes_in: u64,
    /// Bytes of the answer's body as it was sent to the client.
    pub bytes_out: u64,
    /// The time that the proxy added before the first send: to read, check, plan and splice, not to receive the body.
    pub overhead: Duration,
    /// The time for which the answer waited for the ledger: its head for pins, its end for the records of its calls.
    pub ledger_hold: Duration,
    /// The time from the send to the answer's head.
    pub upstream_head: Option<Duration>,
    /// The time from the answer's head to the first byte of its body; `None` if none came.
    pub first_byte: Option<Duration>,
    /// The time from the answer's head to the end of its body, without that for which a part of it waited for the ledger.
    pub upstream_body: Option<Duration>,
    /// The time from the first byte of the request to the last byte of the answer.
    pub duration: Duration,
    /// The summary of the answer; `None` if no watcher read it.
    pub answer_summary: Option<AnswerSummary>,
    /// The name of the profile of the last send; `None` if the client's own credential was used.
    pub profile: Option<String>,
    /// `true` if a timeout of the proxy ended an answer that had stopped sending data.
    pub is_stalled: bool,
    /// The provider-side tool that was running at the end.
    pub running_tool: Option<RunningTool>,
    /// The side that caused a failure: `client`, `proxy`, `network`, `provider`, `provider_tool` or
    /// `provider_compaction`; `None` for a normal end.
    pub side: Option<&'static str>,
    /// The phase of the end: `request`, `queue`, `connect`, `send`, `headers`, `body` or `done`.
    pub phase: &'static str,
    /// The stable name of the failure, or `ok`.
    pub code: &'static str,
    /// The cause of a failed send; `None` for every other end.
    pub cause: Option<NetworkCause>,
    /// The trace of the exchange; `None` if traces are off.
    pub trace: Option<Box<ExchangeTrace>>,
}

impl ExchangeEnded {
    /// Returns the `format` label: the format's name, or `none`.
    pub(in crate::telemetry) fn format_label(&self) -> &'static str {
        self.format.map_or("none", Format::label)
    }

    /// Returns the names of the rows because of which the body has mends, each once, with commas between them. `None` if
    /// it has no mends.
    pub fn rules(&self) -> Option<String> {
        if self.mends.is_empty() {
            return None;
        }
        let mut names: Vec<Cow<'_, str>> = Vec::new();
        for name in self.mends.iter().map(MadeMend::rule) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        Some(names.join(", "))
    }

    /// Records a refusal that a row has read, and what became of it.
    pub fn record_row(&mut self, row: &str, outcome: RowOutcome) {
        let last = self.row_refusals.last_mut();
        let is_same = |last: &&mut RowRefusal| *last.row == *row && last.outcome == RowOutcome::Relayed;
        match last.filter(is_same) {
            // The answer to a refusal that was counted already: no other body has followed it.
            Some(last) if outcome == RowOutcome::Explained => last.outcome = outcome,
            _ => self.row_refusals.push(RowRefusal {
                row: row.into(),
                outcome,
            }),
        }
    }

    /// Records that the provider has accepted the last body, which has every change because of a refusal before.
    pub fn record_accepted(&mut self) {
        let vain = self.row_refusals.iter_mut();
        vain.filter(|refusal| refusal.outcome == RowOutcome::Vain)
            .for_each(|refusal| refusal.outcome = RowOutcome::Mended);
    }

    /// Returns the latency that the proxy added: before the first send, and while the answer waited for the ledger.
    pub(in crate::telemetry) const fn added_latency(&self) -> Duration {
        self.overhead.saturating_add(self.ledger_hold)
    }

    /// Returns `true` for a failure that operators should see: all but those that the client alone caused.
    pub(in crate::telemetry) fn is_failure(&self) -> bool {
        let is_of_others = self.side.is_some_and(|side| side != Side::Client.label());
        // Broken histories are the client's fault too, but the proxy is there to prevent them.
        is_of_others || self.is_rejected || self.is_history_refused
    }

    /// Returns the side that caused a stall.
    pub(in crate::telemetry) fn stall_side(&self) -> &'static str {
        // A stall always has a side. The default only avoids a panic.
        self.side.unwrap_or("provider")
    }

    /// Returns the repair of the body, in the syntax of `x-antiphon-repair`; `None` if no body was read.
    pub(in crate::telemetry) fn repair_summary(&self) -> Option<String> {
        // A rejected request was not sent, whatever its report contains.
        if self.is_rejected {
            return Some("rejected".to_owned());
        }
        // Some entries of a batch may be unreadable while others were repaired: report the repair.
        let is_repaired = self.report.as_ref().is_some_and(|report| !report.actions.is_empty());
        if let Some(reason) = self.unreadable.filter(|_| !is_repaired) {
            return Some(format!("unreadable; reason={}", reason.code()));
        }
        let RepairReport { findings, actions, .. } = self.report.as_ref()?;
        if !actions.is_empty() {
            let counted: Vec<String> = actions
                .iter()
                .map(|(action, times)| format!("{}={times}", action.label()))
                .collect();
            return Some(counted.join(", "));
        }
        Some(if findings.is_empty() { "none" } else { "observed" }.to_owned())
    }
}

/// The summary of an answer: counts, and names from closed lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSummary {
    /// The format of the answer.
    pub format: Format,
    /// `true` for a stream of events.
    pub is_stream: bool,
    /// The stop reason, as [`Facts::stop_label`](crate::wire::watch::Facts::stop_label) returns it.
    pub stop: &'static str,
    /// Tool calls that the client has to answer.
    pub calls: u64,
    /// Tools that the provider ran itself.
    pub server_tools: u64,
    /// Input tokens, cached ones included; 0 if the answer reported none.
    pub input_tokens: u64,
    /// Output tokens, reasoning included; 0 if the answer reported none.
    pub output_tokens: u64,
    /// Events that were too long to be read to the end.
    pub truncated: u64,
}

impl AnswerSummary {
    /// Summarizes what a watcher read; `None` if the answer's format is unknown.
    pub fn from_watcher(watcher: &Watcher) -> Option<Self> {
        let (format, facts) = (watcher.format()?, watcher.facts());
        Some(Self {
            format,
            is_stream: watcher.is_stream(),
            stop: facts.stop_label(format),
            calls: facts.calls.count,
            server_tools: facts.server_tools.started,
            input_tokens: facts.usage.input_total(),
            output_tokens: facts.usage.output,
            truncated: facts.truncated,
        })
    }
}
