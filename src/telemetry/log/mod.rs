//! Log lines: output, format and level, and the one line of each exchange.
//!
//! Bodies and secrets are never logged.

mod exchange_line;
mod settings;
mod writer;

pub(super) use exchange_line::log_exchange;
pub use settings::{LogControl, LogFormat, LogSettings};
pub use writer::flush_log_lines;
