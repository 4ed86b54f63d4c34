//! The edits for one finding in a rollout.

use std::io::{self, BufRead as _, BufReader, Read as _, SeekFrom};

use super::{
    record::{RolloutKind, RolloutRecord},
    rewrite::{mend_call, number_record, quote_output, write_output},
};
use crate::{
    conversation::FindingKind,
    sessions::{
        damage::{Damage, SessionCode},
        edits::SessionEdit,
        finding::{FixKind, SessionFinding},
        log::SessionFile,
        records::RECORD_BYTES_MAX,
    },
    work,
};

/// Plans the edits for one finding, in the file as the edits before have left it.
pub(in crate::sessions) fn plan_edits(
    finding: &SessionFinding,
    file: &mut dyn SessionFile,
) -> io::Result<Vec<SessionEdit>> {
    if finding.fix == FixKind::Told {
        return Ok(Vec::new());
    }
    match finding.code {
        SessionCode::Damage(Damage::OrdinalMissing) => number_records(finding, file),
        SessionCode::Pairing(FindingKind::Unanswered) => answer_call(finding, file),
        SessionCode::Pairing(FindingKind::Orphan | FindingKind::Duplicate | FindingKind::NoId) => {
            rewrite_record(finding, file, quote_output)
        }
        SessionCode::Pairing(FindingKind::MalformedCall) => rewrite_record(finding, file, mend_call),
        _ => Ok(Vec::new()),
    }
}

/// Appends copies of the last records with their numbers, and blanks the records.
fn number_records(finding: &SessionFinding, file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    let last = find_last(file, finding.byte)?;
    let Some(mut ordinal) = last.and_then(|last| last.ordinal) else {
        return Ok(Vec::new());
    };
    let text = read_span(file, finding.byte, finding.len)?;
    let (mut edits, mut at) = (Vec::new(), finding.byte);
    for line in text.split_inclusive(|byte| *byte == b'\n') {
        work::count_bytes(line.len());
        let blanks = line.len().saturating_sub(line.trim_ascii_start().len());
        let record = line.trim_ascii();
        // What the client skips stays as it is, and so does what stands among the records by itself.
        if RolloutRecord::read_line(record).is_some_and(|record| record.ordinal.is_none()) {
            let next = ordinal.checked_add(1);
            let Some((next, copy)) = next.and_then(|next| Some((next, number_record(record, next)?))) else {
                return Ok(Vec::new());
            };
            ordinal = next;
            edits.push(SessionEdit::Append { record: copy });
            edits.push(SessionEdit::Blank {
                at: at.saturating_add(to_u64(blanks)),
                len: to_u64(record.len()),
            });
        }
        at = at.saturating_add(to_u64(line.len()));
    }
    Ok(edits)
}

/// Appends an output for an open call.
fn answer_call(finding: &SessionFinding, file: &mut dyn SessionFile) -> io::Result<Vec<SessionEdit>> {
    let end = file.seek(SeekFrom::End(0))?;
    let Some(last) = find_last(file, end)? else {
        return Ok(Vec::new());
    };
    let ordinal = match last.ordinal {
        Some(ordinal) => Some(ordinal.saturating_add(1)),
        // The last record gets its number first. A record without one would kill the session.
        None if is_numbered(file)? => return Ok(Vec::new()),
        None => None,
    };
    let call = read_span(file, finding.byte, finding.len)?;
    let record = write_output(&call, &last.timestamp, ordinal);
    Ok(record
        .map(|record| SessionEdit::Append { record })
        .into_iter()
        .collect())
}

/// Overwrites a record by another one of its length.
fn rewrite_record(
    finding: &SessionFinding,
    file: &mut dyn SessionFile,
    rewrite: fn(&[u8]) -> Option<Vec<u8>>,
) -> io::Result<Vec<SessionEdit>> {
    let old = read_span(file, finding.byte, finding.len)?;
    let Some(mut new) = rewrite(&old) else {
        return Ok(Vec::new());
    };
    // Bytes that stay are not written.
    let same = |old: &u8, new: &u8| old == new;
    let head = old.iter().zip(&new).take_while(|(old, new)| same(old, new)).count();
    let pairs = old.iter().rev().zip(new.iter().rev());
    let tail = pairs.take_while(|(old, new)| same(old, new)).count();
    work::count_bytes(old.len());
    new.truncate(new.len().saturating_sub(tail).max(head));
    let new = new.split_off(head.min(new.len()));
    let at = finding.byte.saturating_add(to_u64(head));
    Ok(if new.is_empty() {
        Vec::new()
    } else {
        vec![SessionEdit::Overwrite { at, new }]
    })
}

/// The facts about the last record that the next one goes on from.
struct LastRecord {
    /// The time, as its JSON string.
    timestamp: Vec<u8>,
    ordinal: Option<u64>,
}

/// Bytes at the end that are read first for the last record.
const TAIL_BYTES: u64 = 64 * 1024;

/// Finds the last record before `end` that the client reads.
fn find_last(file: &mut dyn SessionFile, end: u64) -> io::Result<Option<LastRecord>> {
    let mut window = TAIL_BYTES;
    loop {
        let start = end.saturating_sub(window);
        let text = read_span(file, start, end.saturating_sub(start))?;
        let mut lines = text.split(|byte| *byte == b'\n');
        // The first line begins before the window.
        if start > 0 {
            lines.next();
        }
        work::count_bytes(text.len());
        for line in lines.rev() {
            if let Some(record) = RolloutRecord::read_line(line) {
                return Ok(Some(LastRecord {
                    timestamp: record.json.bytes(record.timestamp).to_vec(),
                    ordinal: record.ordinal,
                }));
            }
        }
        if start == 0 || window > to_u64(RECORD_BYTES_MAX) {
            return Ok(None);
        }
        window = window.saturating_mul(4);
    }
}

/// Returns `true` if the records of the file have numbers.
fn is_numbered(file: &mut dyn SessionFile) -> io::Result<bool> {
    file.seek(SeekFrom::Start(0))?;
    let mut input = BufReader::new(file).take(to_u64(RECORD_BYTES_MAX));
    let mut line = Vec::new();
    while line.trim_ascii().is_empty() {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            return Ok(false);
        }
    }
    let record = RolloutRecord::read_line(&line).filter(|record| record.kind == RolloutKind::SessionMeta);
    Ok(record.is_some_and(|record| record.payload_text("history_mode") == "paginated"))
}

/// Reads `len` bytes at an offset, or as many as there are.
fn read_span(file: &mut dyn SessionFile, at: u64, len: u64) -> io::Result<Vec<u8>> {
    file.seek(SeekFrom::Start(at))?;
    let mut text = Vec::new();
    file.take(len).read_to_end(&mut text)?;
    Ok(text)
}

fn to_u64(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
