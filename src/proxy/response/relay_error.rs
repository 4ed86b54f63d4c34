//! The failure of an answer that has begun, and the message of its error event.

use crate::policy::{Class, Verdict, stream_timeouts::RunningTool};

/// The beginning of every message of an error event, and of every refusal for lack of room that passes by itself.
///
/// opencode, pi, continue, Hermes and `LiteLLM` retry on this word: see the table in `docs/broken-streams.md`.
pub(in crate::proxy) const RETRIED_PREFIX: &str = "Overloaded: ";

/// The failure of an answer's body before its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the answer ended early: {}", .0.code)]
pub struct RelayError(pub Verdict);

impl RelayError {
    /// Returns the message of the error event: the cause, after the word that most clients retry on.
    pub fn client_message(self, tool: Option<&RunningTool>) -> String {
        let text = match (self.0.class, self.0.code) {
            (Class::Broken, _) => "the stream ended before the answer was complete; try again",
            (Class::ServerTool, _) => "timeout: a tool that the provider runs gave no sign for too long; try again",
            (Class::Compaction, _) => "timeout: the provider's compaction of the history took too long; try again",
            (Class::Parked { .. }, _) => "timeout: the provider did not begin to answer; try again",
            (Class::Unavailable, _) => "the proxy restarts; try again",
            (Class::Deadline, _) => "timeout: the exchange reached its total time limit; try again",
            _ => "timeout: the provider fell silent in the middle of the answer; try again",
        };
        match tool {
            Some(tool) => format!(
                "{RETRIED_PREFIX}{text} ({} {}, {} s)",
                tool.name,
                tool.id,
                tool.age.as_secs()
            ),
            None => format!("{RETRIED_PREFIX}{text}"),
        }
    }
}
