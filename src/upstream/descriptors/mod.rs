//! File descriptors of the process: their limit, and errors for lack of them.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

use std::io;

#[cfg(unix)]
use unix as platform;
#[cfg(windows)]
use windows as platform;

pub(crate) use platform::{are_exhausted, open_spare, raise_limit};

/// Returns `true` if an operation failed because the process or the system has no descriptor left.
pub(crate) fn is_exhausted(error: &io::Error) -> bool {
    error
        .raw_os_error()
        .is_some_and(|code| platform::EXHAUSTED.contains(&code))
}
