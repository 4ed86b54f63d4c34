//! Input of `check` and `repair`: request bodies from files or standard input, and their wire format.

mod bodies;
mod chain_fault;
mod faults;
mod origin;
mod text_lines;
mod transcripts;
mod unread;

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read, Write as _},
    path::Path,
};

use bytes::Bytes;

use self::{
    text_lines::TextLine,
    unread::{UnreadReason, find_unread},
};
use crate::{
    printable::printable_text,
    wire::{
        Unreadable, Wire, detect_wire,
        json::{self, Json},
        plainly_other_format,
    },
};

pub(super) use self::{chain_fault::ChainFault, origin::BodyOrigin};

/// Largest file that is read, in bytes. Transcripts of long sessions have some 100 MB.
const FILE_BYTES_MAX: u64 = 1024 * 1024 * 1024;

/// Error for an input that cannot be checked. Exit code 2.
///
/// Causes are part of the messages, so they are not sources: the report would repeat them.
#[derive(Debug, thiserror::Error)]
pub(super) enum InputError {
    /// The file cannot be read.
    #[error("{}: {cause}", printable_text(name))]
    Io {
        /// Name of the file.
        name: String,
        /// Error of the system.
        cause: io::Error,
    },
    /// The text is not JSON.
    #[error("{}: not JSON: {fault}", printable_text(name))]
    NotJson {
        /// Name of the file.
        name: String,
        /// Place and likely cause.
        fault: String,
    },
    /// A value is JSON, but neither a body nor a message.
    #[error("{}: {fault}", printable_text(name))]
    NotUnderstood {
        /// Name of the file.
        name: String,
        /// Place and reason.
        fault: String,
    },
    /// The wire format could not be detected.
    #[error("{}: {cause} (name the format with --wire NAME)", printable_text(name))]
    Undetected {
        /// Name of the file.
        name: String,
        /// Reason of the failure.
        cause: crate::wire::Undetected,
    },
    /// The body has members that the named format never has.
    #[error(
        "{}: this is a {found} body, and --wire names {wire} (without --wire, the format is detected)",
        printable_text(name)
    )]
    OtherFormat {
        /// Name of the file.
        name: String,
        /// Format that `--wire` names.
        wire: Wire,
        /// Format of the body.
        found: &'static str,
    },
    /// Messages were found, and nothing of them was read.
    #[error(
        "{}: not read as {kind}: {reason}, so nothing is known about its calls; {}",
        printable_text(name),
        reason.remedy()
    )]
    NotRead {
        /// Name of the file.
        name: String,
        /// Format, or the kind of the transcript.
        kind: String,
        /// Reason of the failure.
        reason: UnreadReason,
    },
    /// A request of a batch does not follow its format. The proxy would forward it unchanged.
    #[error(
        "{}: an entry is unreadable as {wire}: {cause}; the proxy would forward it unchanged",
        printable_text(name)
    )]
    UnreadableEntry {
        /// Name of the file.
        name: String,
        /// Format that was tried.
        wire: Wire,
        /// Reason of the failure.
        cause: Unreadable,
    },
    /// The body does not follow its format. The proxy would forward it unchanged.
    #[error(
        "{}: unreadable as {wire}: {cause}; the proxy would forward it unchanged",
        printable_text(name)
    )]
    Unreadable {
        /// Name of the file.
        name: String,
        /// Format that was tried.
        wire: Wire,
        /// Reason of the failure.
        cause: Unreadable,
    },
}

/// One body to check.
#[derive(Debug)]
pub(super) struct BodyInput {
    /// Name of the file, or `-`.
    pub(super) name: String,
    /// Bytes of the body.
    pub(super) body: Bytes,
    /// Wire format of the body.
    pub(super) wire: Wire,
    /// Origin of the body in the file.
    pub(super) origin: BodyOrigin,
}

impl BodyInput {
    /// Refuses a body of which nothing was read. A report would call it healthy.
    fn refuse_unread(self) -> Result<Self, InputError> {
        let unread = find_unread(&self.body, self.wire);
        let (kind, unread) = match &self.origin {
            BodyOrigin::Transcript { source, lines, .. } if source.is_agent() => {
                let is_unread = lines.is_empty() || unread.is_some();
                (
                    source.label().to_owned(),
                    is_unread.then_some(UnreadReason::EmptyTranscript),
                )
            }
            _ => (self.wire.to_string(), unread),
        };
        match unread {
            None => Ok(self),
            Some(reason) => Err(InputError::NotRead {
                name: self.name,
                kind,
                reason,
            }),
        }
    }
}

/// Reads one body; `-` is standard input.
pub(super) fn read_input(path: &Path, wire: Option<Wire>) -> Result<BodyInput, InputError> {
    let name = path.display().to_string();
    let body = read_file(path, &name)?;
    finish_body(name, body, wire, BodyOrigin::WholeFile)
}

/// Reads all bodies of a file: one, one on each line, or the conversation of an agent's transcript.
pub(super) fn read_bodies(path: &Path, wire: Option<Wire>) -> Result<Vec<BodyInput>, InputError> {
    let name = path.display().to_string();
    let bytes = read_file(path, &name)?;
    let found = if json::validate(&bytes).is_ok() {
        read_value(&name, &bytes, wire)
    } else {
        match text_lines::split_lines(&bytes) {
            Ok(lines) => read_lines(&name, &lines, wire),
            Err(fault) => Err(InputError::NotJson {
                name: name.clone(),
                fault,
            }),
        }
    };
    found?
        .into_iter()
        .map(|(body, origin)| finish_body(name.clone(), body, wire, origin))
        .collect()
}

/// Reads the bodies of a text that is one JSON value.
fn read_value(name: &str, bytes: &Bytes, wire: Option<Wire>) -> Result<Vec<(Bytes, BodyOrigin)>, InputError> {
    let whole = || Ok(vec![(bytes.clone(), BodyOrigin::WholeFile)]);
    let json = Json::new(bytes);
    let Ok(root) = json.root_span() else { return whole() };
    if let Some(wrapped) = bodies::wrap_list(json, root, wire) {
        let wrapped = wrapped.map_err(|fault| InputError::NotUnderstood {
            name: name.to_owned(),
            fault,
        })?;
        return Ok(vec![(wrapped, BodyOrigin::WholeFile)]);
    }
    if bodies::is_body(json, root) {
        return whole();
    }
    // JSONL of a single line is one value too.
    let line = TextLine { number: 1, json, root };
    let lines = read_lines(name, &[line], wire);
    // Without `--wire` the detection knows the reason better. With it, such a value would pass as a healthy body.
    lines.or_else(|fault| if wire.is_none() { whole() } else { Err(fault) })
}

/// Reads the bodies of a text with one JSON value on each line.
fn read_lines(name: &str, lines: &[TextLine<'_>], wire: Option<Wire>) -> Result<Vec<(Bytes, BodyOrigin)>, InputError> {
    if let Some(found) = transcripts::read_transcript(lines) {
        return Ok(vec![found]);
    }
    bodies::read_bodies(lines, wire).map_err(|fault| InputError::NotUnderstood {
        name: name.to_owned(),
        fault,
    })
}

/// Finds the format of a body, and refuses one that cannot be right.
fn finish_body(name: String, body: Bytes, wire: Option<Wire>, origin: BodyOrigin) -> Result<BodyInput, InputError> {
    if json::validate(&body).is_err() {
        let fault = faults::describe_fault(&body);
        return Err(InputError::NotJson { name, fault });
    }
    // A format that cannot be right is refused: its reader would find nothing, and call the body healthy.
    if let Some(wire) = wire
        && let Some(found) = plainly_other_format(&body, wire)
    {
        return Err(InputError::OtherFormat { name, wire, found });
    }
    // Otherwise `--wire` overrides the detection, since a broken body may look like another format.
    let known = wire.or_else(|| origin.known_wire());
    match known.map_or_else(|| detect_wire(&body), Ok) {
        Ok(wire) => {
            let input = BodyInput {
                name,
                body,
                wire,
                origin,
            };
            input.refuse_unread()
        }
        Err(cause) => Err(InputError::Undetected { name, cause }),
    }
}

/// Reads a file of limited size; `-` is standard input.
fn read_file(path: &Path, name: &str) -> Result<Bytes, InputError> {
    let read = if name == "-" {
        if io::stdin().is_terminal() {
            let end = if cfg!(windows) { "Ctrl-Z and Enter" } else { "Ctrl-D" };
            // A closed stderr is no reason to stop.
            drop(writeln!(
                io::stderr().lock(),
                "antiphon: reading standard input; end with {end}"
            ));
        }
        read_limited(io::stdin().lock())
    } else {
        File::open(path).and_then(read_limited)
    };
    read.map_err(|cause| InputError::Io {
        name: name.to_owned(),
        cause,
    })
}

fn read_limited(from: impl Read) -> io::Result<Bytes> {
    let mut bytes = Vec::new();
    let read = from.take(FILE_BYTES_MAX.saturating_add(1)).read_to_end(&mut bytes)?;
    if u64::try_from(read).is_ok_and(|read| read > FILE_BYTES_MAX) {
        return Err(io::Error::other("larger than 1 GiB, which is the limit"));
    }
    Ok(bytes.into())
}
