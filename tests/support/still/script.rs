//! What the provider does, step by step.

use std::time::Duration;

use super::secs;

/// One step. A script that runs out closes the connection, as [`Step::Break`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Dialling, as the only step: the connection is refused.
    Refuse,
    /// Dialling, as the only step: the name does not resolve.
    Dns,
    /// Dialling, as the only step: nobody answers.
    ConnectHang,
    /// Dialling, as the only step: the handshake fails.
    TlsFail,
    /// Dialling, as the only step: the handshake does not end.
    TlsHang,
    /// Dialling, as the first step: connects after a while, and goes on with the script.
    ConnectAfter(Duration),
    /// Dialling, as the only step: connects, and takes nothing of any request.
    StopReading,
    /// A head; chunked, unless it says a `content-length`.
    Head(u16, Vec<(String, String)>),
    /// Bytes as they stand.
    Bytes(Vec<u8>),
    /// One chunk.
    Chunk(String),
    /// One event with this data, as one chunk.
    Event(String),
    /// Does nothing for a while.
    Wait(Duration),
    /// As `Wait`, where a blocking task holds time: moves it, second by second.
    Advance(u32),
    /// Does nothing for ever.
    Hang,
    /// Ends the answer as it should, then closes.
    End,
    /// Ends the answer as it should; the connection may bring another request.
    Keep,
    /// Closes in the middle.
    Break,
    /// Resets the connection.
    Reset,
}

impl Step {
    /// Whether this is for the next connection, not for a request.
    pub(super) const fn is_dialling(&self) -> bool {
        matches!(
            self,
            Self::Refuse
                | Self::Dns
                | Self::ConnectHang
                | Self::TlsFail
                | Self::TlsHang
                | Self::ConnectAfter(_)
                | Self::StopReading
        )
    }
}

/// A head with these fields.
pub fn head(status: u16, fields: &[(&str, &str)]) -> Step {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Step::Head(status, fields.iter().map(owned).collect())
}

/// The head of a stream of events.
pub fn sse() -> Step {
    head(200, &[("content-type", "text/event-stream")])
}

/// One chunk.
pub fn say(text: impl Into<String>) -> Step {
    Step::Chunk(text.into())
}

/// Some seconds without a byte.
pub const fn wait(seconds: u64) -> Step {
    Step::Wait(secs(seconds))
}

/// Some seconds without a byte, while a blocking task holds time.
pub const fn advance(seconds: u32) -> Step {
    Step::Advance(seconds)
}

/// A whole answer in JSON.
pub fn json(status: u16, body: &str) -> Vec<Step> {
    error(status, &[], body)
}

/// A whole answer in JSON, with more fields.
pub fn error(status: u16, fields: &[(&str, &str)], body: &str) -> Vec<Step> {
    let length = body.len().to_string();
    let own = [
        ("content-type", "application/json"),
        ("content-length", length.as_str()),
    ];
    vec![
        head(status, &[&own, fields].concat()),
        Step::Bytes(body.as_bytes().to_vec()),
        Step::End,
    ]
}
