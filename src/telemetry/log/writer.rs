//! The output of log lines to stderr. Lines of exchanges are buffered and written together, which saves system calls.
//!
//! Threads write the buffer before they go idle, so a line is delayed only while the process is busy. Every other line
//! is written at once, after all lines before it. While another program has the terminal, all lines are held.

use std::{
    io::{self, Write},
    panic,
    sync::{Mutex, MutexGuard, PoisonError},
    thread,
};

use tracing::Metadata;
use tracing_subscriber::fmt::MakeWriter;

/// The target of the lines of exchanges.
pub(super) const EXCHANGE_TARGET: &str = "antiphon::exchange";

/// Limit of buffered bytes: about thirty lines.
const BUFFERED_BYTES_MAX: usize = 16 * 1024;
/// Limit of held lines. The first ones usually have the cause of those that follow.
const HELD_LINES_MAX: usize = 200;
/// Limit of the bytes of held lines.
const HELD_BYTES_MAX: usize = 256 * 1024;

/// Formatted lines that are not written yet.
static WAITING_LINES: Mutex<WaitingLines> = Mutex::new(WaitingLines {
    buffered: Vec::new(),
    held: None,
});

#[derive(Debug)]
struct WaitingLines {
    /// Lines that are written when a thread goes idle.
    buffered: Vec<u8>,
    /// Lines that are held. `None` if none are.
    held: Option<HeldLines>,
}

#[derive(Debug, Default)]
struct HeldLines {
    text: Vec<u8>,
    count: usize,
    /// Lines beyond the limits.
    left_out: u64,
}

impl HeldLines {
    /// Holds a line, or counts it if there is no room.
    fn add_line(&mut self, line: &[u8]) {
        let has_room = self.count < HELD_LINES_MAX && line.len() <= HELD_BYTES_MAX.saturating_sub(self.text.len());
        if has_room {
            self.text.extend_from_slice(line);
            self.count += 1;
        } else {
            self.left_out += 1;
        }
    }
}

/// Holds all log lines until it is dropped: another program has the terminal, and draws on its screen.
#[derive(Debug)]
pub struct LogHold(());

impl LogHold {
    /// Begins to hold lines. Those before it are written now.
    pub fn begin() -> Self {
        // A panic of one exchange is reported on stderr too.
        panic::set_hook(Box::new(|panic| {
            let mut output = LogLineOutput { is_bufferable: false };
            drop(output.write_all(format!("{panic}\n").as_bytes()));
        }));
        let mut waiting = lock_waiting();
        write_buffered(&mut waiting.buffered);
        waiting.held.get_or_insert_default();
        Self(())
    }
}

impl Drop for LogHold {
    /// Writes the lines, and the number of those that had no room.
    fn drop(&mut self) {
        // The hook of the standard library again. A thread that panics may not change it.
        if !thread::panicking() {
            drop(panic::take_hook());
        }
        let Some(mut held) = lock_waiting().held.take() else {
            return;
        };
        if held.left_out > 0 {
            let more = held.left_out;
            let note = format!("antiphon: {more} more log lines were left out; 2>FILE writes all of them at once\n");
            held.text.extend_from_slice(note.as_bytes());
        }
        write_buffered(&mut held.text);
    }
}

/// Writes the buffered lines. Every thread must call it before it goes idle, and `main` at the end.
pub fn flush_log_lines() {
    write_buffered(&mut lock_waiting().buffered);
}

fn lock_waiting() -> MutexGuard<'static, WaitingLines> {
    WAITING_LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_buffered(lines: &mut Vec<u8>) {
    if !lines.is_empty() {
        // A failed write cannot be reported, because errors go to stderr too.
        drop(io::stderr().lock().write_all(lines));
        lines.clear();
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
    /// Takes a whole line: the formatter writes each with one call.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = lock_waiting();
        if let Some(held) = &mut waiting.held {
            held.add_line(bytes);
            return Ok(bytes.len());
        }
        // A line that may not wait is written with those before it, which keeps the order.
        waiting.buffered.extend_from_slice(bytes);
        if !self.is_bufferable || waiting.buffered.len() > BUFFERED_BYTES_MAX {
            write_buffered(&mut waiting.buffered);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing to do: `flush_log_lines` writes the buffer.
        Ok(())
    }
}
