//! A session among the files of another command: read, weighed and told as `antiphon doctor FILE` does.

use std::{
    io::{self, Write},
    path::{Path, PathBuf},
};

use serde_json::Value;

use super::{
    codex_list::CodexLists,
    database::is_database,
    live::{LiveSigns, LiveState, LiveTarget},
    reading::{SessionReading, UnreadFile, read_session, read_session_bytes},
    selection::quoted_path,
    session_doctor::CoreDoctor,
    session_documents::session_document,
    session_text::{ToldSession, write_named_findings},
    weights::count_weights,
};
use crate::{cli::style::Painter, clock, printable::printable_text, sessions::SessionClient};

/// A session that was read.
#[derive(Debug)]
pub(in crate::cli) struct GivenSession {
    path: PathBuf,
    reading: SessionReading,
    /// `None` for bytes that came through a pipe: no file of them is known.
    live: Option<LiveState>,
}

/// A file that may be a session.
#[derive(Debug)]
pub(in crate::cli) enum GivenFile {
    /// It is one.
    Session(Box<GivenSession>),
    /// It is one of which nothing is known, and why.
    Unread(String),
    /// No known client wrote it, or it cannot be read at all.
    Other,
}

impl GivenFile {
    /// Reads a file, which must be a regular one.
    pub(in crate::cli) fn read(path: &Path) -> Self {
        if is_database(path) {
            let told = "not read: it is a database, which antiphon doctor reads";
            return Self::Unread(told.to_owned());
        }
        Self::of_reading(path, read_session(&CoreDoctor, path), |reading| {
            let target = LiveTarget::of_file(reading.report.client, path, reading.report.session.as_deref());
            let live = LiveSigns::gather().state_of(&target);
            let ahead = CodexLists::default().compare(path, &reading.report);
            reading
                .report
                .findings
                .extend(ahead.filter(|_| live == LiveState::Idle));
            Some(live)
        })
    }

    /// Reads bytes that came through a pipe of this name.
    pub(in crate::cli) fn of_bytes(name: &Path, bytes: &[u8]) -> Self {
        Self::of_reading(name, read_session_bytes(&CoreDoctor, bytes), |_| None)
    }

    fn of_reading(
        path: &Path,
        reading: Result<SessionReading, UnreadFile>,
        find_live: impl FnOnce(&mut SessionReading) -> Option<LiveState>,
    ) -> Self {
        match reading {
            Ok(mut reading) => Self::Session(Box::new(GivenSession {
                path: path.to_owned(),
                live: find_live(&mut reading),
                reading,
            })),
            Err(fault @ (UnreadFile::NoContent | UnreadFile::SeveralClients)) => Self::Unread(fault.to_string()),
            // Another reader may know it, and tells a fault of the system as well.
            Err(UnreadFile::Foreign(_) | UnreadFile::Fault(_)) => Self::Other,
        }
    }
}

impl GivenSession {
    /// Returns the client that wrote it.
    pub(in crate::cli) const fn client(&self) -> SessionClient {
        self.reading.report.client
    }

    /// Returns `true` if something is above a note.
    pub(in crate::cli) fn has_findings(&self) -> bool {
        count_weights(&self.reading.report).has_findings(false)
    }

    /// Returns the file as a shell reads it. `None` for bytes that came through a pipe.
    pub(in crate::cli) fn command_name(&self) -> Option<String> {
        self.live.as_ref().map(|_| quoted_path(&self.path))
    }

    /// Writes it with its findings, for people.
    pub(in crate::cli) fn write_text(&self, out: &mut impl Write, painter: Painter) -> io::Result<()> {
        let told = ToldSession {
            path: &self.path,
            command_name: self.command_name(),
            reading: &self.reading,
            live: self.live.as_ref(),
        };
        told.write(out, clock::system_time(), painter)
    }

    /// Writes its findings alone, each on a line with the name of the file.
    pub(in crate::cli) fn write_findings(&self, out: &mut impl Write, painter: Painter) -> io::Result<()> {
        let name = printable_text(&self.path.display().to_string());
        write_named_findings(out, &self.reading.report, [&name, &format!("{name}: ")], painter)
    }

    /// Returns the entry of the doctor's document.
    pub(in crate::cli) fn document(&self) -> Value {
        session_document(&self.path, &self.reading, self.live.as_ref())
    }
}
