//! One reading of a file that contains a secret.

use std::{
    io::{self, Read as _},
    path::Path,
};

use crate::{
    auth::{Secret, SecretFlaw},
    keys::credential_source::{FileFlaw, OUTPUT_BYTES_MAX},
    server::regular_file::open_regular,
};

/// Reads a file that contains one secret.
pub(super) async fn read_secret(path: &Path) -> Result<Secret, FileFlaw> {
    let path = path.to_owned();
    // A file on a network may take long to answer.
    let read = tokio::task::spawn_blocking(move || read_text(&path)).await;
    let text = read.unwrap_or(Err(FileFlaw::Unreadable))?;
    Secret::check_file(text).map_err(|flaw| match flaw {
        SecretFlaw::Empty => FileFlaw::Empty,
        SecretFlaw::Unprintable => FileFlaw::Unprintable,
    })
}

/// Reads the text of a regular file.
fn read_text(path: &Path) -> Result<String, FileFlaw> {
    let flaw = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileFlaw::Missing,
        io::ErrorKind::InvalidInput => FileFlaw::Irregular,
        _ => FileFlaw::Unreadable,
    };
    let file = open_regular(path).map_err(flaw)?;
    let limit = u64::try_from(OUTPUT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content).map_err(flaw)?;
    if content.len() > OUTPUT_BYTES_MAX {
        return Err(FileFlaw::TooLong);
    }
    String::from_utf8(content).map_err(|_| FileFlaw::Unprintable)
}
