//! Opening of files that an operator has named: only regular ones, since any other may block its reader for ever.

use std::{
    fs::{self, File},
    io::{self, Read as _},
    path::Path,
};

/// Opens a regular file for reading.
///
/// # Errors
///
/// Fails for a pipe or another device: it would block until somebody writes into it.
pub(crate) fn open_regular(path: &Path) -> io::Result<File> {
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is no regular file"));
    }
    File::open(path)
}

/// Reads a regular file that contains text. Fails if it has more than `bytes_max` bytes.
pub(crate) fn read_regular(path: &Path, bytes_max: usize) -> io::Result<String> {
    let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX).saturating_add(1);
    let mut text = String::new();
    open_regular(path)?.take(limit).read_to_string(&mut text)?;
    if text.len() > bytes_max {
        let error = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, error));
    }
    Ok(text)
}
