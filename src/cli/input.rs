//! Bodies from files or standard input, and their wire format: what `check` and `repair` share.

use std::{
    fs,
    io::{self, Read as _},
    path::Path,
};

use bytes::Bytes;

use crate::wire::{Unreadable, Wire, detect};

/// Why an input cannot be judged. Exit code 2.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// The file cannot be read.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// What the system said.
        source: io::Error,
    },
    /// No wire format could be told.
    #[error("{name}: {source} (--wire NAME says which format it is)")]
    Undetected {
        /// The file.
        name: String,
        /// Why not.
        source: crate::wire::Undetected,
    },
    /// The body is none of its format: the proxy would forward it as it came.
    #[error("{name}: unreadable as {wire}: {source}; the proxy would forward it as it came")]
    Unreadable {
        /// The file.
        name: String,
        /// The format it was read as.
        wire: Wire,
        /// Why not.
        source: Unreadable,
    },
}

/// One body to judge.
pub(super) struct Input {
    /// The file's name, or `-`.
    pub(super) name: String,
    /// The bytes.
    pub(super) body: Bytes,
    /// Its format.
    pub(super) wire: Wire,
}

/// Reads one body; `-` is standard input.
pub(super) fn read(path: &Path, wire: Option<Wire>) -> Result<Input, InputError> {
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
    match wire.map_or_else(|| detect(&body), Ok) {
        Ok(wire) => Ok(Input { name, body, wire }),
        Err(source) => Err(InputError::Undetected { name, source }),
    }
}
