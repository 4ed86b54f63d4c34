//! One reading of a file that contains a secret.

use std::{io, path::Path};

use tokio::{fs, io::AsyncReadExt as _};

use crate::auth::{
    Secret, SecretFlaw,
    credential_source::{FileFlaw, OUTPUT_BYTES_MAX},
};

/// Reads a file that contains one secret.
pub(super) async fn read_secret(path: &Path) -> Result<Secret, FileFlaw> {
    let flaw = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileFlaw::Missing,
        _ => FileFlaw::Unreadable,
    };
    // A pipe would block until somebody writes into it.
    if !fs::metadata(path).await.map_err(flaw)?.is_file() {
        return Err(FileFlaw::Irregular);
    }
    let file = fs::File::open(path).await.map_err(flaw)?;
    let limit = u64::try_from(OUTPUT_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut content = Vec::new();
    file.take(limit).read_to_end(&mut content).await.map_err(flaw)?;
    if content.len() > OUTPUT_BYTES_MAX {
        return Err(FileFlaw::TooLong);
    }
    let text = String::from_utf8(content).map_err(|_| FileFlaw::Unprintable)?;
    Secret::check_file(text).map_err(|flaw| match flaw {
        SecretFlaw::Empty => FileFlaw::Empty,
        SecretFlaw::Unprintable => FileFlaw::Unprintable,
    })
}
