//! The arguments of an emitted call. They are noted only if asked for, bounded, and never shown.

use std::{borrow::Cow, fmt};

/// Bytes that are noted of the arguments of one call. Of longer ones nothing is.
const INPUT_BYTES_MAX: usize = 64 * 1024;

/// The arguments of one call, as far as the answer has carried them.
#[derive(Clone, Default, PartialEq, Eq)]
pub enum CallInput {
    /// Nothing was noted, or the arguments are too long.
    #[default]
    Unknown,
    /// One JSON value.
    Json(Vec<u8>),
    /// Text, which is JSON for most tools.
    Text(Vec<u8>),
}

impl CallInput {
    /// Notes arguments that came as a whole, as one JSON value.
    pub(crate) fn set_json(&mut self, json: &[u8]) {
        *self = if json.is_empty() || json.len() > INPUT_BYTES_MAX {
            Self::Unknown
        } else {
            Self::Json(json.to_vec())
        };
    }

    /// Notes that arguments come in pieces of text.
    pub(crate) fn begin_text(&mut self) {
        *self = Self::Text(Vec::new());
    }

    /// Adds a piece of text.
    pub(crate) fn add_text(&mut self, piece: &[u8]) {
        if let Self::Text(text) = self {
            if text.len().saturating_add(piece.len()) > INPUT_BYTES_MAX {
                *self = Self::Unknown;
            } else {
                text.extend_from_slice(piece);
            }
        }
    }

    /// Returns the arguments as a request spells them: JSON, or a JSON string. `None` if they are unknown.
    pub fn as_json(&self) -> Option<Cow<'_, [u8]>> {
        match self {
            Self::Unknown => None,
            Self::Json(json) => Some(Cow::Borrowed(json)),
            Self::Text(text) => {
                let quoted = crate::wire::json::quote_string(std::str::from_utf8(text).ok()?);
                Some(Cow::Owned(quoted.into_bytes()))
            }
        }
    }
}

impl fmt::Debug for CallInput {
    // Arguments are content, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("Unknown"),
            Self::Json(input) | Self::Text(input) => write!(f, "CallInput({} bytes)", input.len()),
        }
    }
}
