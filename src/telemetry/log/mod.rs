//! Log lines: where they go, how they look, and the one line of each exchange.

pub(super) mod exchange_line;
mod settings;
mod writer;

pub use settings::{LogControl, LogFormat, LogSettings};
pub use writer::flush as flush_log_lines;
