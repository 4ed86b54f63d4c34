//! A value that an answer carried, or that stands for a lost one.

use std::{fmt, sync::Arc};

use crate::repair::ContinuityKind;

/// Bytes that a value counts in addition to its text.
pub(super) const VALUE_OVERHEAD_BYTES: usize = 192;

/// A value for a gap.
#[derive(Clone, PartialEq, Eq)]
pub enum CarriedValue {
    /// The value that an answer carried.
    Text(Arc<str>),
    /// The documented value that stands for a lost one.
    Neutral,
}

impl fmt::Debug for CarriedValue {
    // Reasoning is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Text(text) => write!(f, "Text({} bytes)", text.len()),
            Self::Neutral => f.write_str("Neutral"),
        }
    }
}

impl CarriedValue {
    /// Returns the text that is written into the body. `None` if the kind has no neutral value.
    pub fn text(&self, kind: ContinuityKind) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Neutral => kind.neutral_value(),
        }
    }

    /// Returns the name of the source, which is a metric label.
    pub const fn source_label(&self) -> &'static str {
        match self {
            Self::Text(_) => "noted",
            Self::Neutral => "neutral",
        }
    }

    /// Returns the bytes that the value counts.
    pub(super) fn byte_len(&self) -> usize {
        match self {
            Self::Text(text) => text.len().saturating_add(VALUE_OVERHEAD_BYTES),
            Self::Neutral => VALUE_OVERHEAD_BYTES,
        }
    }
}
