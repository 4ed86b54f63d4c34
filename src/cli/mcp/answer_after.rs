//! The time after which a call that still runs gets an answer that says so.

use std::time::Duration;

/// The time of an early answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum AnswerAfter {
    /// Before the client's timeout, where that is known.
    #[default]
    Auto,
    Never,
    After(Duration),
}
