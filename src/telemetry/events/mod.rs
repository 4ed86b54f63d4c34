//! One struct an event = its log line, its metrics and its spans. Never content, never a secret, never a query string.

use std::time::Duration;

use super::ExchangeTrace;
use crate::{
    policy::course::Snapshot,
    repair::{Mode, Report},
    wire::{Format, Unreadable, watch::Watcher},
};

/// An exchange has ended, whoever ended it.
#[derive(Clone, Debug)]
pub struct ExchangeEnded {
    /// `x-antiphon-request-id`: uuid v7.
    pub request_id: String,
    /// HTTP method of the request; `OTHER` if unusual.
    pub method: &'static str,
    /// Name of the upstream; none where no route was found.
    pub upstream: Option<String>,
    /// Path as asked, without query.
    pub path: String,
    /// Format, where the path carries a history.
    pub format: Option<Format>,
    /// Mode that was in force, where the path carries a history.
    pub mode: Option<Mode>,
    /// Status sent to the client; 0 if none was.
    pub status: u16,
    /// What was found and done; none where nothing was read.
    pub report: Option<Report>,
    /// Why the body was not read.
    pub unreadable: Option<Unreadable>,
    /// Whether the request was rejected in strict mode.
    pub rejected: bool,
    /// Sends to the provider.
    pub attempts: u32,
    /// Bytes of the request body as it came.
    pub bytes_in: u64,
    /// Bytes of the answer body as it left.
    pub bytes_out: u64,
    /// Our own time before the send: collect excluded, read, check, plan and splice included.
    pub overhead: Duration,
    /// From the send to the answer's head.
    pub upstream_head: Option<Duration>,
    /// From the answer's head to the end of its body.
    pub upstream_body: Option<Duration>,
    /// From the first byte of the request to the last of the answer.
    pub duration: Duration,
    /// What the answer said, where it was watched.
    pub watched: Option<AnswerSummary>,
    /// Name of the profile that it went up with at last; none for the client's own credential.
    pub profile: Option<String>,
    /// Whether the answer ended in a silence that one of our clocks has ended.
    pub stalled: bool,
    /// The tool that ran at the provider meanwhile.
    pub tool: Option<Snapshot>,
    /// Whose doing its end was: `client`, `proxy`, `network`, `provider`, `provider_tool`, `provider_compaction`; none for
    /// a plain end.
    pub side: Option<&'static str>,
    /// In which phase: `request`, `queue`, `connect`, `send`, `headers`, `body`, `done`.
    pub phase: &'static str,
    /// The stable name of the failure, or `ok`.
    pub code: &'static str,
    /// Its trace, where there are traces.
    pub trace: Option<Box<ExchangeTrace>>,
}

/// What an answer said: counts and names from closed lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnswerSummary {
    /// Its format.
    pub format: Format,
    /// Whether it came as a stream.
    pub streamed: bool,
    /// How it ended, as [`Facts::stop_label`](crate::wire::watch::Facts::stop_label) says.
    pub stop: &'static str,
    /// Tool calls that the client has to answer.
    pub calls: u64,
    /// Tools that the provider ran itself.
    pub server_tools: u64,
    /// Input tokens, cached ones included; 0 where nothing was said.
    pub input_tokens: u64,
    /// Output tokens, reasoning included; 0 where nothing was said.
    pub output_tokens: u64,
    /// Events that were too long to be looked at to their end.
    pub truncated: u64,
}

impl AnswerSummary {
    /// What a watcher saw; none where it knew no format.
    pub fn from_watcher(watcher: &Watcher) -> Option<Self> {
        let (format, facts) = (watcher.format()?, watcher.facts());
        Some(Self {
            format,
            streamed: watcher.is_stream(),
            stop: facts.stop_label(format),
            calls: facts.calls.count,
            server_tools: facts.server_tools.started,
            input_tokens: facts.usage.input_total(),
            output_tokens: facts.usage.output,
            truncated: facts.truncated,
        })
    }
}

/// A tool service has posted a result.
#[derive(Clone, Copy, Debug)]
pub struct ResultPosted<'e> {
    /// The service.
    pub service: &'e str,
    /// What it was answered: one of [`POST_ANSWERS`](super::POST_ANSWERS).
    pub answer: &'static str,
    /// Bytes of the content.
    pub bytes: usize,
}
