//! The meaning of an observation and its consequences: timeouts, classes, retries, breakers. Pure: `now` is a
//! parameter, nothing is measured or sent here.

mod account_sentences;
pub mod breaker;
mod class;
mod classify;
mod empty_quota;
mod hints;
mod key_statements;
mod profile_state;
mod provider_error;
pub mod retry;
mod rotation_settings;
pub mod stream_timeouts;
mod time_formats;
mod verdict;

use std::time::Duration;

pub use account_sentences::{ACCOUNT_PHRASES, AccountSentence};
pub use class::{Class, CooldownReason, CooldownSubject, ReasonRules, RotationLimit, Side};
pub use classify::{Observation, Phase, SendErrorKind, classify, status_of_error};
pub use empty_quota::EmptyQuota;
pub use hints::{LimitHints, billed_organisation};
pub use key_statements::{KEY_STATEMENTS, KeyStatement};
pub use profile_state::ProfileState;
pub use provider_error::{DailyQuota, ProviderErrorInfo, RefusedMatter};
pub use rotation_settings::{OnOrganisationChange, RotationSettings};
pub use verdict::{KeyEvidence, Verdict, VerdictScope};

/// Every timeout of an exchange. Defaults and reasons: `config.example.toml`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExchangeTimeouts {
    /// DNS and TCP, including the corporate proxy. Default 5 s.
    pub connect: Duration,
    /// The TLS handshake. Default 5 s.
    pub tls: Duration,
    /// Silence of the provider while it reads the request. Default 30 s.
    pub send: Duration,
    /// From the sent request to the response head, if the head comes when the model is done. Default 600 s.
    pub headers: Duration,
    /// Like `headers`, for streams whose head comes at once: Messages and Responses. Default 60 s.
    pub stream_headers: Duration,
    /// From the head to the first event of the answer, once two heartbeats in a row were seen. Default 120 s.
    pub first_event: Duration,
    /// No byte at all, in a stream without heartbeats. Default 240 s.
    pub idle: Duration,
    /// No byte at all, in a stream with heartbeats: the least, however fast they come. Default 90 s.
    pub heartbeat_idle: Duration,
    /// Nothing but heartbeats. Default 240 s.
    pub progress: Duration,
    /// Like `progress`, while reasoning is open. Default 600 s.
    pub reasoning: Duration,
    /// Like `progress`, while a provider-side tool is running. Default 900 s.
    pub server_tool: Duration,
    /// Like `progress`, while the provider compacts the history. Default 900 s.
    pub compaction: Duration,
    /// The whole exchange. Default 3600 s.
    pub total: Duration,
    /// Time for which an answer may be held before its first event, with a profile. Default 10 s.
    pub gate: Duration,
    /// Time for which a request may wait for a profile in cooldown. Default 30 s.
    pub queue: Duration,
}

impl Default for ExchangeTimeouts {
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
