//! The output of log lines to stderr. Lines of exchanges are buffered and written together, which saves system calls.
//!
//! Threads write the buffer before they go idle, so a line is delayed only while the process is busy. Every other line
//! is written at once, after all lines before it.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// The target of the lines of exchanges.
pub(super) const EXCHANGE_TARGET: &str = "antiphon::exchange";

/// Limit of buffered bytes: about thirty lines.
const BUFFERED_BYTES_MAX: usize = 16 * 1024;

/// Formatted lines that are not written yet.
static BUFFERED_LINES: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes the buffered lines. Every thread must call it before it goes idle, and `main` at the end.
pub fn flush_log_lines() {
    write_buffered(&mut lock_buffered());
}

fn lock_buffered() -> MutexGuard<'static, Vec<u8>> {
    BUFFERED_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_buffered(waiting: &mut Vec<u8>) {
    if !waiting.is_empty() {
        // A failed write cannot be reported, because errors go to stderr too.
        drop(io::stderr().lock().write_all(waiting));
        waiting.clear();
    }
}

/// The destination of all log lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogOutput;

/// The destination of one log line.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogLineOutput {
    is_bufferable: bool,
}

impl<'a> MakeWriter<'a> for LogOutput {
    type Writer = LogLineOutput;

    fn make_writer(&'a self) -> LogLineOutput {
        LogLineOutput { is_bufferable: false }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> LogLineOutput {
        LogLineOutput {
            is_bufferable: metadata.target() == EXCHANGE_TARGET,
        }
    }
}

impl Write for LogLineOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = lock_buffered();
        // A line that may not wait is written with those before it, which keeps the order.
        waiting.extend_from_slice(bytes);
        if !self.is_bufferable || waiting.len() > BUFFERED_BYTES_MAX {
            write_buffered(&mut waiting);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing to do: `flush_log_lines` writes the buffer.
        Ok(())
    }
}
