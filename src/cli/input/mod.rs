//! Input of `check` and `repair`: request bodies from files or standard input with their wire format, and sessions, which
//! the doctor reads.

mod bodies;
mod faults;
mod message_stream;
mod origin;
mod text_lines;
mod unread;

use std::{
    fs::File,
    io::{self, IsTerminal as _, Read, Write as _},
    path::Path,
};

use bytes::Bytes;

use self::{
    origin::{FoundBody, LineSource},
    text_lines::{LineFault, SplitText, TextLine},
    unread::{UnreadReason, find_unread},
};
use super::doctor::{GivenFile, GivenSession};
use crate::{
    printable::printable_text,
    sessions::SessionClient,
    splice::Span,
    wire::{
        Unreadable, Wire, detect_wire,
        json::{self, Json},
        plainly_other_format,
    },
};

pub(super) use self::{
    faults::describe_fault,
    origin::{BodyOrigin, BodySource},
};

/// Largest file that is read as bodies, in bytes.
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
    /// A session, where only bodies will do.
    #[error(
        "{}: a session of {}, and no request body: antiphon doctor {}",
        printable_text(name),
        client.name(),
        if client.is_mended() {
            format!("--fix {command_name} mends it in place")
        } else {
            format!("{command_name} reads it")
        }
    )]
    IsSession {
        /// Name of the file.
        name: String,
        /// The client that wrote it.
        client: SessionClient,
        /// Name of the file for another command.
        command_name: String,
    },
    /// A session of which nothing is known.
    #[error("{}: {reason}; check a request body of the agent instead", printable_text(name))]
    UnreadSession {
        /// Name of the file.
        name: String,
        /// Reason of the failure.
        reason: String,
    },
    /// The bodies were put together, so that a repaired one has no place in the file.
    #[error("{}: {kind} can be checked, and not repaired: {remedy}", printable_text(name))]
    NoPlace {
        /// Name of the file.
        name: String,
        /// The kind of the file.
        kind: &'static str,
        /// The remedy.
        remedy: &'static str,
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
        /// Format, or the kind of the file.
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

/// A file that was read.
#[derive(Debug)]
pub(super) enum InputContent {
    /// It has request bodies, or messages.
    Bodies(InputFile),
    /// It is a session.
    Session(Box<GivenSession>),
}

impl InputContent {
    /// Returns the bodies. Fails for a session.
    pub(super) fn into_bodies(self, path: &Path) -> Result<InputFile, InputError> {
        match self {
            Self::Bodies(file) => Ok(file),
            Self::Session(session) => Err(InputError::IsSession {
                name: path.display().to_string(),
                client: session.client(),
                command_name: session.command_name().unwrap_or_else(|| "FILE".to_owned()),
            }),
        }
    }
}

/// A file with its bodies.
#[derive(Debug)]
pub(super) struct InputFile {
    /// The whole text.
    pub(super) text: Bytes,
    /// The bodies, in the order of the file.
    pub(super) bodies: Vec<BodyInput>,
}

/// One body to check or to repair.
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
    source: Option<BodySource>,
}

impl BodyInput {
    /// Returns the line of the body in a file with a body on each, counted from 1.
    pub(super) const fn line(&self) -> Option<usize> {
        match self.origin {
            BodyOrigin::Line(line) => Some(line),
            BodyOrigin::WholeFile | BodyOrigin::Lines { .. } => None,
        }
    }

    /// Returns the name of the file, with the line if there is one, for people.
    pub(super) fn title(&self) -> String {
        let name = printable_text(&self.name);
        self.line()
            .map_or_else(|| name.clone(), |line| format!("{name}: line {line}"))
    }

    /// Returns the part of the file in which the body stands, and which a repaired one may replace.
    pub(super) fn place(&self) -> Result<BodySource, InputError> {
        self.source.ok_or_else(|| {
            let (kind, remedy) = if self.origin.is_of_agent() {
                (
                    LineSource::MessageStream.label(),
                    "repair a request body of the agent instead",
                )
            } else {
                (
                    LineSource::Messages.label(),
                    "put the messages into one list before, such as with jq --slurp .",
                )
            };
            let name = self.name.clone();
            InputError::NoPlace { name, kind, remedy }
        })
    }

    /// Refuses a body of which nothing was read. A report would call it healthy.
    fn refuse_unread(self) -> Result<Self, InputError> {
        let unread = find_unread(&self.body, self.wire);
        let (kind, unread) = match &self.origin {
            BodyOrigin::Lines { source, lines } if self.origin.is_of_agent() => {
                let is_unread = lines.is_empty() || unread.is_some();
                (
                    source.label().to_owned(),
                    is_unread.then_some(UnreadReason::EmptyStream),
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

/// Reads a file: a session as the doctor does, else its bodies. `-` is standard input.
pub(super) fn read_input(path: &Path, wire: Option<Wire>) -> Result<InputContent, InputError> {
    let name = path.display().to_string();
    // A large session is never held in memory. A pipe gives its bytes once, and they may be those of a body.
    let is_regular = name != "-" && path.metadata().is_ok_and(|facts| facts.is_file());
    let of_path = is_regular.then(|| GivenFile::read(path));
    if let Some(session) = of_path.and_then(|given| known_session(&name, given)) {
        return session.map(InputContent::Session);
    }
    let text = read_file(path, &name)?;
    let of_pipe = (!is_regular).then(|| GivenFile::of_bytes(path, &text));
    match of_pipe.and_then(|given| known_session(&name, given)) {
        Some(session) => session.map(InputContent::Session),
        None => read_bodies(&name, text, wire).map(InputContent::Bodies),
    }
}

/// Returns a session of a known client, or the reason why nothing is known about it. `None` for any other file.
fn known_session(name: &str, given: GivenFile) -> Option<Result<Box<GivenSession>, InputError>> {
    match given {
        GivenFile::Session(session) => Some(Ok(session)),
        GivenFile::Unread(reason) => Some(Err(InputError::UnreadSession {
            name: name.to_owned(),
            reason,
        })),
        GivenFile::Other => None,
    }
}

/// Reads all bodies of a text: one, one on each line, or messages on lines.
fn read_bodies(name: &str, text: Bytes, wire: Option<Wire>) -> Result<InputFile, InputError> {
    let found = if json::validate(&text).is_ok() {
        read_value(name, &text, wire)
    } else {
        whole_lines(name, &text).and_then(|lines| read_lines(name, &text, &lines, wire))
    };
    let bodies = found?
        .into_iter()
        .map(|found| finish_body(name.to_owned(), found, wire));
    let bodies = bodies.collect::<Result<_, _>>()?;
    Ok(InputFile { text, bodies })
}

/// Reads the bodies of a text that is one JSON value.
fn read_value(name: &str, text: &Bytes, wire: Option<Wire>) -> Result<Vec<FoundBody>, InputError> {
    let whole = || {
        Ok(vec![FoundBody {
            body: text.clone(),
            origin: BodyOrigin::WholeFile,
            source: Some(BodySource::of_body(Span::new(0, text.len()))),
        }])
    };
    let json = Json::new(text);
    let Ok(root) = json.root_span() else { return whole() };
    if let Some(wrapped) = bodies::wrap_list(json, root, wire) {
        let wrapped = wrapped.map_err(|fault| InputError::NotUnderstood {
            name: name.to_owned(),
            fault,
        })?;
        return Ok(vec![wrapped]);
    }
    if bodies::is_body(json, root) {
        return whole();
    }
    // JSONL of a single line is one value too.
    let line = TextLine {
        number: 1,
        start: 0,
        json,
        root,
    };
    // The detection knows the reason better. With `--wire` such a value would pass as a healthy body, unless it is plainly
    // one of another format.
    let is_refused = wire.is_none_or(|wire| plainly_other_format(text, wire).is_some());
    read_lines(name, text, &[line], wire).or_else(|fault| if is_refused { whole() } else { Err(fault) })
}

/// Splits a text into lines. Only the stream of an agent may end in the middle of one, which is then left out.
fn whole_lines<'a>(name: &str, text: &'a [u8]) -> Result<Vec<TextLine<'a>>, InputError> {
    let name = || name.to_owned();
    match text_lines::split_lines(text) {
        // The lost line of a batch is a body of which nothing is known.
        Ok(SplitText {
            lines,
            cut: Some(fault),
        }) if !message_stream::is_stream(&lines) => Err(InputError::NotJson { name: name(), fault }),
        Ok(SplitText { lines, .. }) => Ok(lines),
        Err(LineFault::NotJson(fault)) => Err(InputError::NotJson { name: name(), fault }),
        Err(LineFault::NotObject(number)) => Err(InputError::NotUnderstood {
            name: name(),
            fault: format!("line {number}: it is JSON, but not an object"),
        }),
    }
}

/// Reads the bodies of a text with one JSON value on each line.
fn read_lines(
    name: &str,
    text: &Bytes,
    lines: &[TextLine<'_>],
    wire: Option<Wire>,
) -> Result<Vec<FoundBody>, InputError> {
    if let Some(found) = message_stream::read_stream(lines) {
        return found.map(|found| vec![found]).map_err(|other| InputError::NotRead {
            name: name.to_owned(),
            kind: LineSource::MessageStream.label().to_owned(),
            reason: UnreadReason::OtherLine(other),
        });
    }
    bodies::read_bodies(text, lines, wire).map_err(|fault| InputError::NotUnderstood {
        name: name.to_owned(),
        fault,
    })
}

/// Finds the format of a body, and refuses one that cannot be right.
fn finish_body(name: String, found: FoundBody, wire: Option<Wire>) -> Result<BodyInput, InputError> {
    let FoundBody { body, origin, source } = found;
    if json::validate(&body).is_err() {
        let fault = describe_fault(&body);
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
                source,
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
