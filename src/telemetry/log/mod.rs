//! Log lines: output, format and level, and the one line of each exchange.
//!
//! Every exchange is one event with all of its fields. As text for people it is a short line: `exchange_columns`.
//! Bodies and secrets are never logged.

mod exchange_columns;
mod exchange_fields;
mod exchange_line;
mod json_format;
mod settings;
mod text_format;
mod writer;

pub(super) use exchange_line::log_exchange;
pub use settings::{LogControl, LogFormat, LogSettings};
pub use writer::{LogHold, flush_log_lines};
