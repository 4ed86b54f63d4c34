//! Groups of processes, so that programs which a program starts are killed with it.

#[cfg(unix)]
mod unix;
#[cfg(windows)]
mod windows;

#[cfg(unix)]
pub(super) use unix::{kill_group, lead_group};
#[cfg(windows)]
pub(super) use windows::{kill_group, lead_group};
