//! Format of what commands print: text for people, or JSON for programs.

use std::io::{self, StdoutLock, Write};

use clap::ValueEnum;
use serde_json::{Map, Value, json};

/// Version of all JSON documents. It rises when a key changes its meaning or goes away.
pub(super) const DOCUMENT_VERSION: u64 = 1;

/// Format of the output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(super) enum OutputFormat {
    /// Text for people
    #[default]
    Text,
    /// JSON for programs, with the key `version`
    Json,
}

/// The flag of commands whose output has a format.
#[derive(Clone, Copy, Debug, clap::Args)]
pub(super) struct OutputFlag {
    /// Format of the output
    #[arg(long, value_name = "FORM", default_value = "text")]
    output: OutputFormat,
    /// The same as `--output json`, as other programs spell it
    #[arg(long, hide = true, conflicts_with = "output")]
    json: bool,
}

impl OutputFlag {
    /// Returns the format.
    pub(super) const fn format(self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }

    /// Returns `true` for JSON.
    pub(super) const fn is_json(self) -> bool {
        matches!(self.format(), OutputFormat::Json)
    }
}

/// Standard output of a command whose exit code tells a verdict.
///
/// A reader of a pipe, such as `head`, may stop early. What it does not read is dropped, so that the command goes on and
/// reaches its verdict. Standard output is locked for each write alone, so that a command may wait between two.
#[derive(Debug, Default)]
pub(super) struct ReportOutput {
    is_closed: bool,
}

impl ReportOutput {
    /// Runs `write`. Returns `when_closed` once the reader has closed the pipe.
    fn attempt<T>(
        &mut self,
        when_closed: T,
        write: impl FnOnce(&mut StdoutLock<'static>) -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_closed {
            return Ok(when_closed);
        }
        match write(&mut io::stdout().lock()) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                self.is_closed = true;
                Ok(when_closed)
            }
            written => written,
        }
    }
}

impl Write for ReportOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.attempt(bytes.len(), |out| out.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.attempt((), Write::flush)
    }
}

/// Writes a line for people to standard error. A closed one changes neither the data nor the exit code.
pub(super) fn write_note(line: &str) {
    drop(writeln!(io::stderr().lock(), "{line}"));
}

/// Writes a JSON document, with its version as the first key.
pub(super) fn write_document(out: &mut impl Write, members: Value) -> io::Result<()> {
    let mut document = Map::from_iter([("version".to_owned(), json!(DOCUMENT_VERSION))]);
    if let Value::Object(members) = members {
        document.extend(members);
    }
    writeln!(out, "{:#}", Value::Object(document))
}
