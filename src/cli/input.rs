//! Input of `check` and `repair`: bodies from files or standard input, and their wire format.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use bytes::Bytes;

use crate::wire::{Unreadable, Wire, detect_wire, plainly_other_format};

/// Error for an input that cannot be checked. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// The file cannot be read.
    #[error("{name}: {source}")]
    Io {
        /// Name of the file.
        name: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The wire format could not be detected.
    #[error("{name}: {source} (name the format with --wire NAME)")]
    Undetected {
        /// Name of the file.
        name: String,
        /// Reason of the failure.
        source: crate::wire::Undetected,
    },
    /// The body has members that the named format never has.
    #[error("{name}: this is a {found} body, and --wire names {wire} (without --wire, the format is detected)")]
    OtherFormat {
        /// Name of the file.
        name: String,
        /// Format that `--wire` names.
        wire: Wire,
        /// Format of the body.
        found: &'static str,
    },
    /// The body does not follow its format. The proxy would forward it unchanged.
    #[error("{name}: unreadable as {wire}: {source}; the proxy would forward it unchanged")]
    Unreadable {
        /// Name of the file.
        name: String,
        /// Format that was tried.
        wire: Wire,
        /// Reason of the failure.
        source: Unreadable,
    },
}

/// One body to check.
pub(super) struct BodyInput {
    /// Name of the file, or `-`.
    pub(super) name: String,
    /// Bytes of the body.
    pub(super) body: Bytes,
    /// Wire format of the body.
    pub(super) wire: Wire,
}

/// Reads one body; `-` is standard input.
pub(super) fn read_input(path: &Path, wire: Option<Wire>) -> Result<BodyInput, InputError> {
    let name = path.display().to_string();
    let bytes = if name == "-" {
        let mut bytes = Vec::new();
        io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
    } else {
        fs::read(path)
    };
    let body = match bytes {
        Ok(bytes) => Bytes::from(bytes),
        Err(source) => return Err(InputError::Io { name, source }),
    };
    // A format that cannot be right is refused: its reader would find nothing, and call the body healthy.
    if let Some(wire) = wire
        && let Some(found) = plainly_other_format(&body, wire)
    {
        return Err(InputError::OtherFormat { name, wire, found });
    }
    // Otherwise `--wire` overrides the detection, since a broken body may look like another format.
    match wire.map_or_else(|| detect_wire(&body), Ok) {
        Ok(wire) => Ok(BodyInput { name, body, wire }),
        Err(source) => Err(InputError::Undetected { name, source }),
    }
}
