//! Reading of files that an operator has named: only regular ones, since any other may block its reader for ever.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// Largest file with a secret, a certificate or a key, in bytes: 1 MiB.
pub(crate) const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Reads a regular file that contains text.
///
/// # Errors
///
/// Fails for a pipe or another device, which would block until somebody writes into it, and for a file with more than
/// [`FILE_BYTES_MAX`] bytes.
pub(crate) fn read_regular(path: &Path) -> io::Result<String> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    let limit = u64::try_from(FILE_BYTES_MAX).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    File::open(path)?.take(limit).read_to_string(&mut text)?;
    if text.len() > FILE_BYTES_MAX {
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, "it has more than 1 MiB"));
    }
    Ok(text)
}
