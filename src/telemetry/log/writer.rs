//! Log lines on their way to stderr: lines of exchanges are written together, before the thread that made them rests.
//!
//! A thread that has nothing else to do writes at once, so that lines are late only where the next is already there.
//! Every other line is written when it is made, behind all lines before it.

use std::{
    io::{self, Write},
    sync::{Mutex, MutexGuard, PoisonError},
};

use tracing::{Level, Metadata};
use tracing_subscriber::fmt::MakeWriter;

/// Target of the lines of exchanges.
pub(super) const EXCHANGE: &str = "antiphon::exchange";

/// Bytes that may wait: about thirty lines.
const WAITING_MAX: usize = 16 * 1024;

static WAITING: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes what waits. To be called by every thread before it rests, and at the end.
pub fn flush() {
    write(&mut waiting());
}

fn waiting() -> MutexGuard<'static, Vec<u8>> {
    WAITING.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write(waiting: &mut Vec<u8>) {
    if !waiting.is_empty() {
        // Nobody can be told that stderr is gone.
        drop(io::stderr().lock().write_all(waiting));
        waiting.clear();
    }
}

/// Where log lines go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines;

/// Where one line goes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Line {
    may_wait: bool,
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Line;

    fn make_writer(&'a self) -> Line {
        Line { may_wait: false }
    }

    fn make_writer_for(&'a self, metadata: &Metadata<'_>) -> Line {
        Line {
            may_wait: metadata.target() == EXCHANGE && *metadata.level() == Level::INFO,
        }
    }
}

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let mut waiting = waiting();
        waiting.extend_from_slice(bytes);
        if !self.may_wait || waiting.len() > WAITING_MAX {
            write(&mut waiting);
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
