//! What an observation means, and what may be done about it: clocks, classes, retries, breakers. Pure: `now` is a
//! parameter, nothing is measured or sent here.

pub mod breaker;
mod class;
mod classify;
pub mod course;
mod hints;
pub mod retry;
mod rotation_settings;
mod said;
mod sentences;
mod spans;
mod verdict;

use std::time::Duration;

pub use class::{Class, Reason, Rotate, Side};
pub use classify::{Evidence, Failure, classify, status_of};
pub use hints::{Hints, organisation};
pub use rotation_settings::{OnOrganisationChange, RotationSettings};
pub use said::Said;
pub use sentences::{PHRASES, Sentence};
pub use verdict::{Reach, Verdict};

/// Every clock of an exchange, each from its start event to its stop event. Defaults and reasons:
/// `config.example.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clocks {
    /// DNS and TCP, the company's proxy included.
    pub connect: Duration,
    /// The TLS handshake behind it.
    pub tls: Duration,
    /// Silence of the provider while it takes the request.
    pub send: Duration,
    /// From the request sent to the answer's head, where the head comes when the model is done.
    pub headers: Duration,
    /// As `headers`, of streams whose head comes at once: Messages and Responses.
    pub stream_headers: Duration,
    /// From the head to the first event that says something, where heartbeats were seen.
    pub first_event: Duration,
    /// No byte at all, where the stream has shown no heartbeat.
    pub idle: Duration,
    /// No byte at all, where the stream has shown a heartbeat.
    pub heartbeat_idle: Duration,
    /// Nothing but heartbeats.
    pub progress: Duration,
    /// As `progress`, while reasoning is open.
    pub reasoning: Duration,
    /// As `progress`, while a tool runs at the provider.
    pub server_tool: Duration,
    /// As `progress`, while the provider compacts the history.
    pub compaction: Duration,
    /// The whole exchange.
    pub total: Duration,
    /// How long an answer may be held back before its first event, while another attempt could still be made.
    pub gate: Duration,
    /// How long a request may wait for a profile that rests.
    pub queue: Duration,
}

impl Default for Clocks {
    fn default() -> Self {
        let seconds = Duration::from_secs;
        Self {
            connect: seconds(5),
            tls: seconds(5),
            send: seconds(30),
            headers: seconds(600),
            stream_headers: seconds(60),
            first_event: seconds(120),
            idle: seconds(240),
            heartbeat_idle: seconds(90),
            progress: seconds(240),
            reasoning: seconds(600),
            server_tool: seconds(900),
            compaction: seconds(900),
            total: seconds(3600),
            gate: seconds(10),
            queue: seconds(30),
        }
    }
}
