//! The provider's script, step by step.

use std::time::Duration;

use super::secs;

/// A step. A script without further steps closes the connection, as [`Step::Break`] does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Dialling, only step: the connection is refused.
    Refuse,
    /// Dialling, only step: the name does not resolve.
    Dns,
    /// Dialling, only step: the connection is never accepted.
    ConnectHang,
    /// Dialling, only step: the handshake fails.
    TlsFail,
    /// Dialling, only step: the handshake never ends.
    TlsHang,
    /// Dialling, first step: connects after a pause and continues with the script.
    ConnectAfter(Duration),
    /// Dialling, only step: connects but reads nothing of any request.
    StopReading,
    /// A head, chunked unless it has a `content-length`.
    Head(u16, Vec<(String, String)>),
    /// Raw bytes.
    Bytes(Vec<u8>),
    /// One chunk.
    Chunk(String),
    /// One event with this data, as one chunk.
    Event(String),
    /// A pause.
    Wait(Duration),
    /// A pause while a blocking task holds time: advances time second by second.
    Advance(u32),
    /// An endless pause.
    Hang,
    /// Ends the answer properly, then closes.
    End,
    /// Ends the answer properly and keeps the connection open for another request.
    Keep,
    /// Closes in the middle of the answer.
    Break,
    /// Resets the connection.
    Reset,
}

impl Step {
    /// Reports whether the step belongs to the next connection instead of a request.
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

/// Returns a head with these headers.
pub fn head(status: u16, fields: &[(&str, &str)]) -> Step {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    Step::Head(status, fields.iter().map(owned).collect())
}

/// Returns the head of an event stream.
pub fn sse() -> Step {
    head(200, &[("content-type", "text/event-stream")])
}

/// Returns one chunk.
pub fn say(text: impl Into<String>) -> Step {
    Step::Chunk(text.into())
}

/// Returns a pause in seconds.
pub const fn wait(seconds: u64) -> Step {
    Step::Wait(secs(seconds))
}

/// Returns a pause in seconds while a blocking task holds time.
pub const fn advance(seconds: u32) -> Step {
    Step::Advance(seconds)
}

/// Returns a whole JSON answer.
pub fn json(status: u16, body: &str) -> Vec<Step> {
    error(status, &[], body)
}

/// Returns a whole JSON answer with these headers.
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
