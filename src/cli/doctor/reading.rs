//! A session file as it is read: opened without waiting, unpacked if Codex has packed it, and scanned in one pass.

use std::{
    fs::File,
    io::{self, Read, Seek as _},
    path::Path,
    time::Duration,
};

use super::{
    file_facts::{describe_fault, time_since_1970},
    file_input::FileInput,
    places::{COMPRESSED_ENDING, client_by_place},
    progress::ProgressReader,
    session_doctor::SessionDoctor,
};
use crate::{
    server::regular_file::open_regular,
    sessions::{FixKind, NotRead, SessionReport, SkipHoles},
};

/// Attempts to read a file that grows meanwhile.
const ATTEMPTS: usize = 3;
/// Bytes by which other programs' files are told.
const HEAD_BYTES: usize = 4096;
/// The largest window of compressed files, as a power of two.
const WINDOW_LOG_MAX: u32 = 27;

/// Bytes of a compressed file that are read for each byte of it. Sessions take a tenth when they are packed.
const UNPACKED_TIMES_MAX: u64 = 2000;
const UNKNOWN_CLIENT: &str =
    "not read: no known client wrote this file; known are Claude Code, Codex, Copilot CLI and Qwen Code";

/// A session file that was read.
#[derive(Clone, Debug)]
pub(super) struct SessionReading {
    pub(super) report: SessionReport,
    /// The last write, since 1970. `None` if no file of it is known.
    pub(super) modified: Option<Duration>,
    /// `true` if the file is compressed: it is read, and never mended.
    pub(super) is_compressed: bool,
}

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(super) enum UnreadFile {
    /// It cannot be opened or read.
    #[error("{0}")]
    Fault(String),
    /// No known client wrote it.
    #[error("{0}")]
    Foreign(&'static str),
    /// Several programs wrote it.
    #[error("not read: it has records of more than one program; keep those of each in a file of its own")]
    SeveralClients,
    /// A known client wrote it, and there is no message in it.
    #[error("not read: its records have no content that this version can read")]
    NoContent,
}

/// Reads a session file.
pub(super) fn read_session(doctor: &dyn SessionDoctor, path: &Path) -> Result<SessionReading, UnreadFile> {
    let file = open_session(path)?;
    let is_compressed = path.to_string_lossy().ends_with(COMPRESSED_ENDING);
    let mut attempt = 1;
    loop {
        let (reading, has_grown) = read_once(doctor, path, &file, is_compressed)?;
        // A record that the client was about to write would look torn.
        if !has_grown || attempt == ATTEMPTS {
            return Ok(reading);
        }
        attempt += 1;
    }
}

/// Reads a session whose bytes came through a pipe.
pub(super) fn read_session_bytes(doctor: &dyn SessionDoctor, bytes: &[u8]) -> Result<SessionReading, UnreadFile> {
    let scanned = doctor.scan_file(None, &mut { bytes });
    let scanned = scanned.map_err(|error| UnreadFile::Fault(describe_fault(&error)))?;
    let report = scanned.map_err(|reason| match reason {
        NotRead::NoContent => UnreadFile::NoContent,
        NotRead::SeveralClients => UnreadFile::SeveralClients,
        NotRead::UnknownClient => UnreadFile::Foreign(describe_head(bytes.get(..HEAD_BYTES).unwrap_or(bytes))),
    })?;
    Ok(SessionReading {
        report,
        modified: None,
        is_compressed: false,
    })
}

/// Opens a file for reading, without waiting for the other end of a pipe.
fn open_session(path: &Path) -> Result<File, UnreadFile> {
    open_regular(path).map_err(|error| {
        UnreadFile::Fault(match error.kind() {
            io::ErrorKind::InvalidInput => "it is no regular file, and was left alone".to_owned(),
            _ => describe_fault(&error),
        })
    })
}

/// Reads a file up to its present end. The second value is `true` if it was longer after that.
fn read_once(
    doctor: &dyn SessionDoctor,
    path: &Path,
    mut file: &File,
    is_compressed: bool,
) -> Result<(SessionReading, bool), UnreadFile> {
    let failed = |error: io::Error| UnreadFile::Fault(describe_fault(&error));
    file.rewind().map_err(failed)?;
    let before = file.metadata().map_err(failed)?;
    let place = client_by_place(path);
    let mut input = ProgressReader::new(FileInput::new(file, &before), before.len(), "reading");
    let scanned = if is_compressed {
        let mut decoder = zstd::stream::read::Decoder::new(input).map_err(failed)?;
        decoder.window_log_max(WINDOW_LOG_MAX).map_err(failed)?;
        let unpacked_max = before.len().saturating_mul(UNPACKED_TIMES_MAX);
        let mut unpacked = decoder.take(unpacked_max);
        let scanned = doctor.scan_file(place, &mut unpacked);
        if unpacked_max > 0 && unpacked.limit() == 0 {
            let told = format!("not read: it unpacks to more than {UNPACKED_TIMES_MAX} times its size");
            return Err(UnreadFile::Fault(told));
        }
        scanned
    } else {
        doctor.scan_sparse(place, &mut input)
    };
    let mut report = scanned.map_err(failed)?.map_err(|reason| match reason {
        // The packed bytes tell nothing.
        NotRead::UnknownClient if is_compressed => UnreadFile::Foreign(UNKNOWN_CLIENT),
        reason => describe_unread(file, reason),
    })?;
    if is_compressed {
        report
            .findings
            .iter_mut()
            .for_each(|finding| finding.fix = FixKind::Told);
    }
    let after = file.metadata().map_err(failed)?;
    let reading = SessionReading {
        report,
        modified: Some(time_since_1970(&before)),
        is_compressed,
    };
    Ok((reading, after.len() != before.len()))
}

/// Says why a file was not read.
fn describe_unread(mut file: &File, reason: NotRead) -> UnreadFile {
    match reason {
        NotRead::NoContent => return UnreadFile::NoContent,
        NotRead::SeveralClients => return UnreadFile::SeveralClients,
        NotRead::UnknownClient => {}
    }
    let mut head = Vec::new();
    let read = file.rewind().and_then(|()| {
        let mut input = FileInput::new(file, &file.metadata()?);
        input.by_ref().take(HEAD_BYTES as u64).read_to_end(&mut head)?;
        Ok(head.iter().all(|byte| is_blank(*byte)) && is_all_blank(input)?)
    });
    match read {
        Ok(true) => UnreadFile::Foreign("not read: it is empty, and its place tells no client"),
        Ok(false) => UnreadFile::Foreign(describe_head(&head)),
        Err(error) => UnreadFile::Fault(describe_fault(&error)),
    }
}

const fn is_blank(byte: u8) -> bool {
    byte == 0 || byte.is_ascii_whitespace()
}

/// Returns `true` if the rest of a file has no record.
fn is_all_blank(mut file: impl SkipHoles) -> io::Result<bool> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        file.skip_hole()?;
        let read = file.read(&mut buffer)?;
        let Some(bytes) = buffer.get(..read).filter(|bytes| !bytes.is_empty()) else {
            return Ok(true);
        };
        if !bytes.iter().all(|byte| is_blank(*byte)) {
            return Ok(false);
        }
    }
}

/// Says which kind of file begins like this, as far as that helps.
fn describe_head(head: &[u8]) -> &'static str {
    let text_controls = b"\t\n\r\x0c\0";
    if head.starts_with(b"\x1f\x8b") {
        "not read: it is compressed by gzip; unpack it with gunzip, and name the unpacked file"
    } else if head.starts_with(b"\x28\xb5\x2f\xfd") {
        "not read: it is compressed by zstd; unpack it with unzstd, and name the unpacked file"
    } else if head.starts_with(b"SQLite format 3\0") {
        "not read: it is a database, not a session file"
    } else if head.iter().any(|byte| *byte < b' ' && !text_controls.contains(byte)) {
        "not read: it is a binary file"
    } else {
        UNKNOWN_CLIENT
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::{session_doctor::CoreDoctor, weights::count_weights};

    #[test]
    fn foreign_files_are_told_by_their_first_bytes() {
        for (head, word) in [
            (&b"\x1f\x8b\x08\0"[..], "gzip"),
            (b"\x28\xb5\x2f\xfd\x24", "zstd"),
            (b"SQLite format 3\0\x10\0", "database"),
            (b"\x7fELF\x02\x01\x01", "binary"),
            (b"{\"a\":1}\r\n", "no known client"),
            (b"text\n", "no known client"),
        ] {
            assert!(describe_head(head).contains(word), "{head:?}: {}", describe_head(head));
        }
    }

    #[test]
    fn an_empty_file_is_an_error_where_its_place_tells_the_client() {
        let folder = tempfile::tempdir().unwrap();
        let project = folder.path().join("projects/-w");
        std::fs::create_dir_all(&project).unwrap();
        let path = project.join("8a52aaaa-bbbb-4ccc-8ddd-eeeeeeeeeeee.jsonl");
        let elsewhere = folder.path().join("x.jsonl");
        for bytes in [&b""[..], b"\n \r\n", &vec![0; 70_000]] {
            std::fs::write(&path, bytes).unwrap();
            std::fs::write(&elsewhere, bytes).unwrap();
            let report = read_session(&CoreDoctor, &path).unwrap().report;
            assert!(count_weights(&report).errors > 0, "{} bytes: {report:?}", bytes.len());
            let told = read_session(&CoreDoctor, &elsewhere).unwrap_err().to_string();
            assert!(told.contains("empty"), "{told}");
        }
    }
}
