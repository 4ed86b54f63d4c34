//! The JSON format of log lines. The line of an exchange is written field by field, as tracing's own format writes it.
//!
//! There is one such line for every request, and tracing's format serializes each part of it through serde.

use std::{
    fmt::{self, Write as _},
    time::UNIX_EPOCH,
};

use serde_json::Value;
use tracing::{
    Event, Subscriber,
    field::{Field, Visit},
};
use tracing_subscriber::{
    fmt::{
        FmtContext,
        format::{Format, FormatEvent, FormatFields, Json, Writer},
    },
    registry::LookupSpan,
};

use super::{text_format::LAST_TIME, writer::EXCHANGE_TARGET};
use crate::clock;

/// Bytes of a usual line, so that it seldom grows.
const LINE_BYTES: usize = 1024;

/// Formats each log line as one JSON object.
#[derive(Debug)]
pub(super) struct JsonFormat {
    others: Format<Json>,
}

impl JsonFormat {
    /// Creates the format. Fields are top-level keys, which operators filter by.
    pub(super) fn new() -> Self {
        let others = tracing_subscriber::fmt::format().json();
        Self {
            others: others
                .flatten_event(true)
                .with_current_span(false)
                .with_span_list(false),
        }
    }
}

impl<S, N> FormatEvent<S, N> for JsonFormat
where
    S: Subscriber + for<'span> LookupSpan<'span>,
    N: for<'writer> FormatFields<'writer> + 'static,
{
    fn format_event(&self, context: &FmtContext<'_, S, N>, mut writer: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        if event.metadata().target() == EXCHANGE_TARGET {
            writer.write_str(&format_exchange(event)?)
        } else {
            self.others.format_event(context, writer, event)
        }
    }
}

/// Formats the line of an exchange, with its end.
fn format_exchange(event: &Event<'_>) -> Result<String, fmt::Error> {
    let mut line = String::with_capacity(LINE_BYTES);
    // The formatter fails after the year 9999.
    let time = humantime::format_rfc3339_micros(UNIX_EPOCH + clock::system_time().min(LAST_TIME));
    let level = event.metadata().level();
    write!(line, "{{\"timestamp\":\"{time}\",\"level\":\"{level}\"")?;
    event.record(&mut FieldWriter { line: &mut line });
    writeln!(line, ",\"target\":\"{EXCHANGE_TARGET}\"}}")?;
    Ok(line)
}

/// Appends the fields of an event to a JSON object.
struct FieldWriter<'a> {
    line: &'a mut String,
}

impl FieldWriter<'_> {
    fn push_key(&mut self, field: &Field) {
        self.line.push_str(",\"");
        self.line.push_str(field.name());
        self.line.push_str("\":");
    }

    fn push_number(&mut self, field: &Field, number: impl itoa::Integer) {
        self.push_key(field);
        self.line.push_str(itoa::Buffer::new().format(number));
    }
}

impl Visit for FieldWriter<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push_key(field);
        if is_plain(value) {
            self.line.push('"');
            self.line.push_str(value);
            self.line.push('"');
        } else {
            // Writing to a string cannot fail.
            let _ = write!(self.line, "{}", Value::from(value));
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push_number(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push_number(field, value);
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push_key(field);
        // Writing to a string cannot fail.
        let _ = write!(self.line, "{}", Value::from(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push_key(field);
        self.line.push_str(if value { "true" } else { "false" });
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push_key(field);
        self.line.push('"');
        // Writing to a string cannot fail.
        let _ = write!(StringWriter(self.line), "{value:?}");
        self.line.push('"');
    }
}

/// Appends text to the inside of a JSON string.
struct StringWriter<'a>(&'a mut String);

impl fmt::Write for StringWriter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        if is_plain(text) {
            self.0.push_str(text);
        } else {
            let quoted = Value::from(text).to_string();
            // Without its quotes.
            self.0
                .push_str(quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default());
        }
        Ok(())
    }
}

/// Returns `true` if a JSON string contains the text as it is.
fn is_plain(text: &str) -> bool {
    // Without an early exit the loop runs on many bytes at once.
    let is_plain = |byte: &u8| *byte >= b' ' && *byte != b'"' && *byte != b'\\';
    text.as_bytes().iter().fold(true, |all, byte| all & is_plain(byte))
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        sync::{Arc, Mutex},
        time::Duration,
    };

    use tracing_subscriber::{fmt::format::JsonFields, layer::SubscriberExt as _};

    use super::*;
    use crate::telemetry::{events::ExchangeEnded, log::exchange_line::log_exchange};

    /// Collects written lines.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns the lines of a subscriber, without the values of their timestamps.
    fn without_times(lines: &Lines) -> Vec<String> {
        let text = String::from_utf8(lines.0.lock().unwrap().clone()).unwrap();
        let without_time = |line: &str| {
            let parsed: Value = serde_json::from_str(line).unwrap();
            let time = parsed["timestamp"].as_str().unwrap();
            assert_eq!(time.len(), "2026-11-25T16:12:00.000000Z".len(), "{line}");
            line.replacen(time, "-", 1)
        };
        text.lines().map(without_time).collect()
    }

    #[test]
    fn lines_are_those_of_tracings_own_format() {
        let (ours, theirs) = (Lines::default(), Lines::default());
        let layer = tracing_subscriber::fmt::layer().with_ansi(false);
        let (our_writer, their_writer) = (ours.clone(), theirs.clone());
        let own = layer
            .fmt_fields(JsonFields::new())
            .event_format(JsonFormat::new())
            .with_writer(move || our_writer.clone());
        let usual = tracing_subscriber::fmt::layer()
            .json()
            .flatten_event(true)
            .with_current_span(false)
            .with_span_list(false)
            .with_writer(move || their_writer.clone());
        let subscriber = tracing_subscriber::registry().with(own).with(usual);
        let full = ExchangeEnded {
            path: "/v1/messages?key=secret".to_owned(),
            model: Some("odd \"\\\u{7f}\u{1}\n\t é 图 model".to_owned()),
            client: Some(String::new()),
            side: Some("provider"),
            is_history_refused: true,
            duration: Duration::MAX,
            ..ExchangeEnded::default()
        };
        tracing::subscriber::with_default(subscriber, || {
            log_exchange(&full);
            log_exchange(&ExchangeEnded::default());
            tracing::warn!(count = -1_i64, "another line");
        });
        let (ours, theirs) = (without_times(&ours), without_times(&theirs));
        assert_eq!(ours.len(), 3);
        assert_eq!(ours, theirs);
    }
}
