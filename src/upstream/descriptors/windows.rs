//! Windows, which has no such limit of its own.

use std::{fs::File, io};

/// Codes of errors for lack of handles and of sockets: `ERROR_TOO_MANY_OPEN_FILES` and `WSAEMFILE`.
pub(super) const EXHAUSTED: [i32; 2] = [4, 10_024];

/// Returns `None`: there is no limit to raise.
pub(crate) const fn raise_limit() -> Option<u64> {
    None
}

/// Returns `false`: this cannot be tried without a socket.
pub(crate) const fn are_exhausted() -> bool {
    false
}

/// Fails: a file is no reserve for a socket here.
pub(crate) fn open_spare() -> io::Result<File> {
    Err(io::ErrorKind::Unsupported.into())
}
