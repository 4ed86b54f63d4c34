//! One struct an event = its log line and its metrics. Never content, never a secret, never a query string.

use std::time::Duration;

use crate::{
    repair::{Mode, Report},
    wire::{Format, Unreadable},
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
    /// Who ended it: `client`, `proxy`, `network`, `provider`; none for a plain end.
    pub side: Option<&'static str>,
    /// In which phase: `request`, `connect`, `send`, `headers`, `body`, `done`.
    pub phase: &'static str,
    /// The stable name of the failure, or `ok`.
    pub code: &'static str,
}
