//! The records of a session file, and the damage of its lines.

use std::io::{self, BufRead, BufReader, Read};

use super::finding::SessionFinding;
use crate::wire::json::{self, is_object};

/// The longest line that is read, in bytes. A longer one is skipped, and reported.
pub const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;

/// One whole record: a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The line, counted from 1 by line feeds.
    pub line: u64,
    /// Offset of the object in the file.
    pub byte: u64,
    /// The object, without blanks around it.
    pub text: &'a [u8],
    /// `true` if the client skips it, because its line is no single JSON object.
    pub is_skipped: bool,
}

/// The facts about the lines of a file.
#[derive(Clone, Debug, Default)]
pub struct FileLines {
    /// Bytes of the file.
    pub bytes: u64,
    /// Line feeds, and a last line without one.
    pub lines: u64,
    /// `true` if the last line has no line feed.
    pub lacks_line_end: bool,
    /// The damage of lines, in the order of the file.
    pub findings: Vec<SessionFinding>,
}

/// Reads the records of a file, one after the other.
///
/// # Errors
///
/// Those of `input`.
pub fn read_records(input: impl Read, mut each: impl FnMut(Record<'_>)) -> io::Result<FileLines> {
    let mut input = BufReader::new(input);
    let (mut file, mut line) = (FileLines::default(), Vec::new());
    loop {
        line.clear();
        let read = input.read_until(b'\n', &mut line)?;
        if read == 0 {
            return Ok(file);
        }
        file.lines += 1;
        let text = line.trim_ascii();
        if is_object(text) && json::validate(text).is_ok() {
            let blanks = line.len() - line.trim_ascii_start().len();
            each(Record {
                line: file.lines,
                byte: file.bytes + u64::try_from(blanks).unwrap_or(u64::MAX),
                text,
                is_skipped: false,
            });
        }
        file.bytes += u64::try_from(read).unwrap_or(u64::MAX);
        file.lacks_line_end = !line.ends_with(b"\n");
    }
}
