//! The text format of log lines: a short line for each exchange, unless more than `info` is logged.

use std::{
    fmt,
    time::{Duration, UNIX_EPOCH},
};

use tracing::{Event, Level, Subscriber, level_filters::LevelFilter};
use tracing_subscriber::{
    fmt::{
        FmtContext,
        format::{Compact, Format, FormatEvent, FormatFields, Writer},
        time::{FormatTime, SystemTime},
    },
    registry::LookupSpan,
};

use super::{
    exchange_columns::{ColumnStyle, line_columns},
    exchange_fields::ExchangeFields,
    writer::EXCHANGE_TARGET,
};
use crate::clock;

/// The last second of the year 9999, since 1970.
pub(super) const LAST_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Formats log lines as text for people.
#[derive(Debug)]
pub(super) struct TextFormat {
    time: LineTime,
    others: Format<Compact, LineTime>,
}

impl TextFormat {
    /// Creates the format. Lines on a terminal contain the time without its date.
    pub(super) fn new(is_terminal: bool) -> Self {
        let time = LineTime { is_terminal };
        let others = tracing_subscriber::fmt::format().compact().with_timer(time);
        Self { time, others }
    }
}

impl<S, N> FormatEvent<S, N> for TextFormat
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() == EXCHANGE_TARGET && !is_verbose() {
            self.write_exchange(writer, event)
        } else {
            self.others.format_event(context, writer, event)
        }
    }
}

impl TextFormat {
    /// Writes the short line of an exchange.
    fn write_exchange(&self, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let level = event.metadata().level();
        let time = self.time.short_time(clock::system_time());
        let columns = line_columns(&time, level.as_str(), &ExchangeFields::from_event(event));
        for (index, column) in columns.iter().enumerate() {
            if index > 0 {
                writer.write_char(' ')?;
            }
            match ansi_style(column.style, *level).filter(|_| writer.has_ansi_escapes()) {
                Some(style) => write!(writer, "\x1b[{style}m{}\x1b[0m", column.text)?,
                None => writer.write_str(&column.text)?,
            }
        }
        writeln!(writer)
    }
}

/// Returns the ANSI code of a style. `None` for the terminal's own.
fn ansi_style(style: ColumnStyle, level: Level) -> Option<&'static str> {
    match style {
        ColumnStyle::Plain => None,
        ColumnStyle::Dim => Some("2"),
        ColumnStyle::Level if level <= Level::WARN => Some("33"),
        ColumnStyle::Level => Some("32"),
    }
}

/// Returns `true` if the operator asked for more than `info`, and so for every field.
fn is_verbose() -> bool {
    // The filter in force, which can change while the process runs.
    LevelFilter::current() >= LevelFilter::DEBUG
}

/// The time at the begin of a line, in UTC.
#[derive(Clone, Copy, Debug)]
struct LineTime {
    is_terminal: bool,
}

impl LineTime {
    /// Returns a time to the second.
    fn short_time(self, since_1970: Duration) -> String {
        // The formatter fails after the year 9999.
        let date = humantime::format_rfc3339_seconds(UNIX_EPOCH + since_1970.min(LAST_TIME)).to_string();
        // Somebody is watching a terminal, and knows the date.
        match date.split_once('T').filter(|_| self.is_terminal) {
            Some((_, time)) => time.to_owned(),
            None => date,
        }
    }
}

impl FormatTime for LineTime {
    fn format_time(&self, writer: &mut Writer<'_>) -> fmt::Result {
        if is_verbose() {
            return SystemTime.format_time(writer);
        }
        writer.write_str(&self.short_time(clock::system_time()))
    }
}
