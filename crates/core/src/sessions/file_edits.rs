//! The edits for damage of lines, each as long as what it replaces.

use std::{
    io::{self, Read as _, SeekFrom},
    ops::Range,
};

use super::{
    damage::{Damage, SessionCode},
    edits::SessionEdit,
    finding::SessionFinding,
    log::SessionFile,
    object_scan::{ObjectScan, ScanEnd},
    records::RECORD_BYTES_MAX,
};
use crate::{
    wire::json::{REPLACEMENT, find_lone_surrogate},
    work,
};

/// Bytes that are read at once of a run of NUL bytes.
const CHUNK: usize = 64 * 1024;

/// Plans the edits for one finding about lines. Reads the bytes that are concerned once more.
///
/// # Errors
///
/// Those of `file`.
pub(super) fn plan_edits(finding: &SessionFinding, file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    let SessionCode::Damage(damage) = finding.code else {
        return Ok(Vec::new());
    };
    let (at, len) = (finding.byte, finding.len);
    match damage {
        Damage::ByteOrderMark | Damage::TornRecord | Damage::RepeatedRecord => Ok(vec![SessionEdit::Blank { at, len }]),
        Damage::NulBytes => blank_nuls(at, len, file),
        Damage::InvalidUtf8 => Ok(replace_invalid(at, &read_span(at, len, file)?)),
        Damage::LoneSurrogate => Ok(replace_surrogates(at, &read_span(at, len, file)?)),
        Damage::RawNewline => {
            let text = read_span(at, len, file)?;
            let is_control = |byte: &u8| *byte < b' ';
            Ok(runs(&text, is_control).map(|run| blank(at, &run)).collect())
        }
        Damage::JoinedRecords => Ok(separate_records(at, &read_span(at, len, file)?)),
        _ => Ok(Vec::new()),
    }
}

/// Reads bytes that are a part of one line, or of the lines of one record.
fn read_span(at: u64, len: u64, file: &mut dyn SessionFile) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).unwrap_or(usize::MAX).min(RECORD_BYTES_MAX);
    file.seek(SeekFrom::Start(at))?;
    let mut text = vec![0; len];
    file.read_exact(&mut text)?;
    Ok(text)
}

/// Blanks the NUL bytes of a span, which may be a hole of any size.
fn blank_nuls(at: u64, len: u64, file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    file.seek(SeekFrom::Start(at))?;
    let mut rest = file.take(len);
    let (mut edits, mut chunk, mut at) = (Vec::new(), vec![0; CHUNK], at);
    loop {
        let read = rest.read(&mut chunk)?;
        if read == 0 {
            return Ok(edits);
        }
        let bytes = chunk.get(..read).unwrap_or_default();
        for run in runs(bytes, |byte| *byte == 0) {
            match edits.last_mut() {
                Some(SessionEdit::Blank { at: first, len }) if first.saturating_add(*len) == place(at, run.start) => {
                    *len = len.saturating_add(run.len() as u64);
                }
                _ => edits.push(blank(at, &run)),
            }
        }
        at = place(at, read);
    }
}

/// Returns the runs of bytes that are so.
fn runs(text: &[u8], is_so: impl Fn(&u8) -> bool) -> impl Iterator<Item = Range<usize>> {
    let mut at = 0_usize;
    std::iter::from_fn(move || {
        let rest = text.get(at..)?;
        let start = at.saturating_add(rest.iter().position(&is_so)?);
        let rest = text.get(start..)?;
        let end = start.saturating_add(rest.iter().position(|byte| !is_so(byte)).unwrap_or(rest.len()));
        work::count(end.saturating_sub(at));
        at = end;
        Some(start..end)
    })
}

fn replace_invalid(at: u64, text: &[u8]) -> Vec<SessionEdit> {
    work::count_bytes(text.len());
    let (mut edits, mut passed) = (Vec::new(), 0_usize);
    for chunk in text.utf8_chunks() {
        let start = passed.saturating_add(chunk.valid().len());
        passed = start.saturating_add(chunk.invalid().len());
        if start < passed {
            edits.push(SessionEdit::Overwrite {
                at: place(at, start),
                new: vec![b'?'; chunk.invalid().len()],
            });
        }
    }
    edits
}

fn replace_surrogates(at: u64, text: &[u8]) -> Vec<SessionEdit> {
    let (mut edits, mut from) = (Vec::new(), 0);
    while let Some(found) = find_lone_surrogate(text, from) {
        edits.push(SessionEdit::Overwrite {
            at: place(at, found),
            new: REPLACEMENT.as_bytes().to_vec(),
        });
        from = found.saturating_add(REPLACEMENT.len());
    }
    edits
}

/// Gives each record a line of its own: where a byte between two is free it becomes a line feed, else a copy of the second
/// one is appended, and the second one is blanked.
///
/// The text has nothing but records and blanks, since the edits of fragments come before.
fn separate_records(at: u64, text: &[u8]) -> Vec<SessionEdit> {
    let (mut edits, mut from, mut end): (Vec<_>, usize, Option<usize>) = (Vec::new(), 0, None);
    while let Some(blanks) = text.get(from..).and_then(|rest| {
        rest.iter()
            .position(|byte| !matches!(byte, b' ' | b'\t' | b'\r' | b'\n'))
    }) {
        work::count(blanks.saturating_add(1));
        let start = from.saturating_add(blanks);
        let ScanEnd::Whole(stop) = ObjectScan::new(start).run(text) else {
            return Vec::new();
        };
        match end {
            Some(end) if end < start => edits.push(SessionEdit::Overwrite {
                at: place(at, end),
                new: vec![b'\n'],
            }),
            Some(_) => {
                let record = text.get(start..stop).unwrap_or_default().to_vec();
                edits.push(SessionEdit::Append { record });
                edits.push(blank(at, &(start..stop)));
            }
            None => {}
        }
        // A record that is blanked leaves room before the next one.
        if end != Some(start) {
            end = Some(stop);
        }
        from = stop;
    }
    edits
}

fn blank(at: u64, run: &Range<usize>) -> SessionEdit {
    SessionEdit::Blank {
        at: place(at, run.start),
        len: run.len() as u64,
    }
}

const fn place(at: u64, by: usize) -> u64 {
    at.saturating_add(by as u64)
}
