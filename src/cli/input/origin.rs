//! The origin of a body that `check` and `repair` read: its place in the file, and the writer of the file.

use bytes::Bytes;

use crate::{splice::Span, wire::Wire};

/// A body as it was found in a file, before its format is known.
pub(super) struct FoundBody {
    /// Bytes of the body.
    pub(super) body: Bytes,
    /// Origin of the body in the file.
    pub(super) origin: BodyOrigin,
    /// The part of the file that the body stands in. `None` if the body was put together.
    pub(super) source: Option<BodySource>,
}

/// The part of a file that a body stands in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) struct BodySource {
    /// The place in the file.
    pub(in crate::cli) span: Span,
    /// Bytes in front of a list that are not in the file. The body then has a brace after it, too.
    pub(in crate::cli) key_bytes: usize,
}

impl BodySource {
    /// Returns the source of a body that stands in the file as it is.
    pub(super) const fn of_body(span: Span) -> Self {
        Self { span, key_bytes: 0 }
    }
}

/// The part of a file that a body was taken from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::cli) enum BodyOrigin {
    /// The whole file.
    WholeFile,
    /// One line of a file with a body on each.
    Line(usize),
    /// Many lines, each with one message or a part of one.
    Lines {
        /// The kind of the file.
        source: LineSource,
        /// Line of each message, counted from 1.
        lines: Vec<usize>,
    },
}

impl BodyOrigin {
    /// Returns the format that the kind of the file fixes. `None` if only the body shows it.
    pub(super) const fn known_wire(&self) -> Option<Wire> {
        match self {
            Self::Lines {
                source: LineSource::MessageStream,
                ..
            } => Some(Wire::ANTHROPIC),
            Self::Lines {
                source: LineSource::Messages,
                ..
            }
            | Self::WholeFile
            | Self::Line(_) => None,
        }
    }

    /// Returns `true` if an agent has written the lines.
    pub(in crate::cli) const fn is_of_agent(&self) -> bool {
        matches!(
            self,
            Self::Lines {
                source: LineSource::MessageStream,
                ..
            }
        )
    }
}

/// A kind of file with one message, or a part of one, on each line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::cli) enum LineSource {
    /// The stream of messages that Claude Code prints.
    MessageStream,
    /// A list of messages, which no agent has marked as its own.
    Messages,
}

impl LineSource {
    /// Returns the words for the kind of file.
    pub(in crate::cli) const fn label(self) -> &'static str {
        match self {
            Self::MessageStream => "Claude Code's stream of messages",
            Self::Messages => "one message on each line",
        }
    }
}
