//! The time of the last write of a file, and the reason why one cannot be read.

use std::{
    fs, io,
    time::{Duration, UNIX_EPOCH},
};

/// Returns the time of the last write, since 1970.
pub(super) fn time_since_1970(metadata: &fs::Metadata) -> Duration {
    let modified = metadata.modified().ok();
    modified
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok())
        .unwrap_or_default()
}

/// Says why a path cannot be looked at, and what to do.
pub(super) fn describe_fault(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "there is no such file".to_owned(),
        io::ErrorKind::PermissionDenied => "no permission to read it: run this as its owner".to_owned(),
        _ => format!("it cannot be read: {error}"),
    }
}
