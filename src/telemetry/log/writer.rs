//! The output of log lines to stderr. Lines of exchanges are buffered and written together, which saves system calls.
//!
//! Threads write the buffer before they go idle, so a line is delayed only while the process is busy. Every other line
//! is written at once, after all lines before it. While another program has the terminal, all lines are held.

use std::{
    fmt,
    io::{self, Write},
    panic::{self, PanicHookInfo},
    sync::{Mutex, MutexGuard, PoisonError, TryLockError},
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

impl WaitingLines {
    /// Holds, buffers or writes a line.
    fn add_line(&mut self, line: &[u8], is_bufferable: bool) {
        if let Some(held) = &mut self.held {
            held.add_line(line);
            return;
        }
        // A line that may not wait is written with those before it, which keeps the order.
        self.buffered.extend_from_slice(line);
        if !is_bufferable || self.buffered.len() > BUFFERED_BYTES_MAX {
            write_buffered(&mut self.buffered);
        }
    }
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

/// Function that reports a panic.
type PanicHook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// Holds all log lines until it is dropped: another program has the terminal, and draws on its screen.
pub struct LogHold {
    /// The hook for panics before it. `None` once it is set again.
    earlier_hook: Option<PanicHook>,
}

impl fmt::Debug for LogHold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LogHold").finish_non_exhaustive()
    }
}

impl LogHold {
    /// Begins to hold lines. Those before it are written now.
    pub fn begin() -> Self {
        // A panic of one exchange is reported on stderr too.
        let earlier_hook = Some(panic::take_hook());
        panic::set_hook(Box::new(|panic| report_panic(&format!("{panic}\n"))));
        let mut waiting = lock_waiting();
        write_buffered(&mut waiting.buffered);
        waiting.held.get_or_insert_default();
        drop(waiting);
        Self { earlier_hook }
    }
}

impl Drop for LogHold {
    /// Writes the lines, and the number of those that had no room.
    fn drop(&mut self) {
        // A thread that panics may not change the hook.
        if !thread::panicking()
            && let Some(hook) = self.earlier_hook.take()
        {
            panic::set_hook(hook);
        }
        // Locked to the end: a line that is logged meanwhile comes after these.
        let mut waiting = lock_waiting();
        let Some(mut held) = waiting.held.take() else {
            return;
        };
        if held.left_out > 0 {
            let more = held.left_out;
            let note = format!("antiphon: {more} more log lines were left out; 2>FILE writes all of them at once\n");
            held.text.extend_from_slice(note.as_bytes());
        }
        write_buffered(&mut held.text);
        drop(waiting);
    }
}

/// Adds the report of a panic to the held lines.
fn report_panic(report: &str) {
    let mut waiting = match WAITING_LINES.try_lock() {
        Ok(waiting) => waiting,
        Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
        // This thread itself may have the lock, so it must not wait for it.
        Err(TryLockError::WouldBlock) => {
            drop(io::stderr().lock().write_all(report.as_bytes()));
            return;
        }
    };
    waiting.add_line(report.as_bytes(), false);
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
        lock_waiting().add_line(bytes, self.is_bufferable);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        // Nothing to do: `flush_log_lines` writes the buffer.
        Ok(())
    }
}
