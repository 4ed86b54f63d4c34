//! Descriptors on Unix.

use std::{fs::File, io};

use rustix::{
    io::Errno,
    process::{Resource, Rlimit, getrlimit, setrlimit},
};

/// Codes of errors for lack of descriptors: in the process, and in the system.
pub(super) const EXHAUSTED: [i32; 2] = [Errno::MFILE.raw_os_error(), Errno::NFILE.raw_os_error()];

/// Raises the soft limit of descriptors to the hard one. Returns the limit in force; `None` if there is none.
pub(crate) fn raise_limit() -> Option<u64> {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => raised.current,
        // macOS does not accept "no limit".
        Err(error) => {
            tracing::debug!(%error, "failed to raise the limit of file descriptors");
            limit.current
        }
    }
}

/// Returns `true` if no file can be opened for lack of descriptors.
pub(crate) fn are_exhausted() -> bool {
    open_spare().is_err_and(|error| super::is_exhausted(&error))
}

/// Opens a file whose only use is its descriptor.
pub(crate) fn open_spare() -> io::Result<File> {
    File::open("/dev/null")
}
