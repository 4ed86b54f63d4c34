//! The records of a session file, and the damage of its lines.

use std::{
    io::{self, BufRead, BufReader, ErrorKind, Read},
    ops::Range,
};

use memchr::memmem::Finder;

use super::{
    damage::{Damage, SessionCode},
    finding::{FixKind, RecordLoss, SessionFinding},
    holes::{SkipHoles, WithoutHoles},
    marks::{identity_of, repeat_loss},
    members::RecordMembers,
    object_scan::{ObjectScan, ScanEnd},
    repeats::{RecordPlace, SeenRecords, Sighting},
    splices::{NextRecord, SearchBudget, find_next_record},
};
use crate::{
    wire::json::{self, REPLACEMENT, find_lone_surrogate},
    work,
};

/// The longest line that is read, in bytes. A longer one is skipped, and reported.
pub const RECORD_BYTES_MAX: usize = 64 * 1024 * 1024;
/// Most findings about the lines of a file. Further ones are counted.
pub const FINDINGS_MAX: usize = 100_000;

/// Bytes that are read at once.
const CHUNK: usize = 256 * 1024;
/// A run of NUL bytes that is not kept in memory: holes are as large as a disk.
const NUL_RUN: usize = 64 * 1024;
/// The longest run of NUL bytes that is overwritten. A hole takes no room on the disk, and spaces do.
const NULS_MENDED_MAX: u64 = 1 << 30;
/// The length up to which the buffer of a line grows by doubling. Then it gets all of its room, so that none is copied.
const DOUBLING_MAX: usize = 1024 * 1024;
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One whole record: a JSON object.
#[derive(Clone, Copy, Debug)]
pub struct SessionRecord<'a> {
    /// The line, counted from 1 by line feeds. Of a record over several lines it is the first one.
    pub line: u64,
    /// Offset of the object in the file.
    pub byte: u64,
    /// The object, without blanks around it. A byte that JSON does not accept is one that it does.
    pub text: &'a [u8],
    /// `true` if the client skips it, because its line is no single JSON object.
    pub is_skipped: bool,
    /// `true` if its line has a byte that is no UTF-8. In `text` such bytes are replaced.
    pub has_bad_bytes: bool,
    /// `true` if a text in it has half of a character.
    pub has_lone_surrogate: bool,
    /// Its members.
    pub(super) members: RecordMembers<'a>,
}

/// The facts about the lines of a file.
#[derive(Clone, Debug, Default)]
pub struct FileLines {
    /// Bytes of the file.
    pub bytes: u64,
    /// Line feeds, and a last line without one.
    pub lines: u64,
    /// Records, without repeated ones.
    pub records: u64,
    /// The damage of lines, in the order of the file.
    pub findings: Vec<SessionFinding>,
    /// Findings that are not listed, because there are more than [`FINDINGS_MAX`].
    pub unlisted: u64,
}

/// Reads the records of a file, one after the other. A record that repeats an earlier one is not given.
///
/// # Errors
///
/// Those of `input`.
pub fn read_records(input: impl Read, mut each: impl FnMut(SessionRecord<'_>)) -> io::Result<FileLines> {
    let mut reader = PieceReader::new(WithoutHoles(input));
    while reader.read_piece(&mut each)? {}
    Ok(reader.into_lines())
}

/// The end of a piece of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PieceEnd {
    /// A line feed, which belongs to the piece.
    LineFeed,
    /// A long run of NUL bytes, which belongs to none.
    NulRun,
    /// The end of the file.
    File,
    /// The buffer is full, or the next byte does not follow the buffer's.
    Buffer,
}

/// The facts about the line that is read.
#[derive(Debug, Default)]
struct LineState {
    /// Distinct records on it.
    records: u64,
    /// Offsets of the first record's start and of the last one's end.
    span: Range<u64>,
    /// `true` if it has anything but one record.
    is_dirty: bool,
    /// `true` if a record begins where the one before it ends.
    is_glued: bool,
    /// `true` if a fragment must stay, since there may be a record in it.
    has_kept_fragment: bool,
    /// The first NUL byte, and the end of the last one.
    nuls: Option<Range<u64>>,
    /// Runs of bytes that are no UTF-8.
    bad_runs: u64,
}

/// A record whose line ended inside of a string.
#[derive(Debug)]
struct OpenRecord {
    scan: ObjectScan,
    start: usize,
    line: u64,
}

/// A file whose records are read, piece by piece.
#[derive(Debug)]
pub(super) struct PieceReader<R> {
    input: BufReader<R>,
    /// Bytes of a hole that is passed, and not yet noted.
    hole: u64,
    file: FileLines,
    /// The present line, after those of the open record.
    text: Vec<u8>,
    /// Offset of `text` in the file.
    base: u64,
    /// The place in `text` at which the present piece begins.
    piece: usize,
    /// The present line.
    line: u64,
    /// Offset at which it begins.
    line_start: u64,
    state: LineState,
    open: Option<OpenRecord>,
    seen: SeenRecords,
    /// Findings of the lines before the present one.
    told: usize,
    /// The lines of the first and of the last record.
    record_lines: Option<(u64, u64)>,
    /// The beginning of an escape with digits.
    escapes: Finder<'static>,
}

type EachRecord<'e> = dyn FnMut(SessionRecord<'_>) + 'e;

impl<R: SkipHoles> PieceReader<R> {
    /// Creates a reader at the first byte of a file.
    pub(super) fn new(input: R) -> Self {
        Self {
            input: BufReader::with_capacity(CHUNK, input),
            hole: 0,
            file: FileLines::default(),
            text: Vec::new(),
            base: 0,
            piece: 0,
            line: 1,
            line_start: 0,
            state: LineState::default(),
            open: None,
            seen: SeenRecords::default(),
            told: 0,
            record_lines: None,
            escapes: Finder::new(b"\\u"),
        }
    }

    /// Returns the facts about the lines that were read.
    pub(super) fn into_lines(mut self) -> FileLines {
        self.place_losses();
        self.file.findings.sort_by_key(|finding| finding.byte);
        self.file
    }

    /// Reads a line, or a piece of one. Returns `false` at the end of the file.
    pub(super) fn read_piece(&mut self, each: &mut EachRecord<'_>) -> io::Result<bool> {
        let end = self.fill_text()?;
        match end {
            PieceEnd::Buffer if self.open.is_some() => self.give_up_open(each),
            PieceEnd::Buffer => self.skip_line()?,
            PieceEnd::LineFeed | PieceEnd::NulRun => self.take_piece(end, each),
            PieceEnd::File => {
                self.take_piece(end, each);
                self.finish_file();
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Reads bytes into the buffer up to the end of a piece.
    fn fill_text(&mut self) -> io::Result<PieceEnd> {
        loop {
            if let Some(end) = self.pass_hole()? {
                return Ok(end);
            }
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let Some(&first) = chunk.first() else {
                return Ok(PieceEnd::File);
            };
            if first == 0 && self.text.len() == self.piece {
                // The lines of an open record have no gap between them.
                if self.open.is_some() {
                    return Ok(PieceEnd::Buffer);
                }
                let nuls = chunk.iter().take_while(|byte| **byte == 0).count();
                work::count_bytes(nuls);
                note_nuls(&mut self.state, self.file.bytes, nuls as u64);
                self.pass(nuls);
                continue;
            }
            let feed = memchr::memchr(b'\n', chunk);
            let taken = feed.map_or(chunk.len(), |feed| feed.saturating_add(1));
            let room = RECORD_BYTES_MAX.saturating_add(usize::from(feed.is_some()));
            if self.text.len().saturating_add(taken) > room {
                return Ok(PieceEnd::Buffer);
            }
            if self.text.is_empty() {
                self.base = self.file.bytes;
            }
            append_bytes(&mut self.text, chunk.get(..taken).unwrap_or_default());
            self.pass(taken);
            if feed.is_some() {
                return Ok(PieceEnd::LineFeed);
            }
            if self.text.last() == Some(&0) && self.cut_nul_run() {
                return Ok(PieceEnd::NulRun);
            }
        }
    }

    /// Passes a hole at the present place as the run of NUL bytes that it is. Returns the end of the piece, if it ends one.
    fn pass_hole(&mut self) -> io::Result<Option<PieceEnd>> {
        if self.hole == 0 && self.input.buffer().is_empty() {
            self.hole = self.input.get_mut().skip_hole()?;
        }
        if self.hole == 0 {
            return Ok(None);
        }
        if self.text.len() == self.piece {
            // The lines of an open record have no gap between them.
            if self.open.is_some() {
                return Ok(Some(PieceEnd::Buffer));
            }
            self.note_hole(self.file.bytes);
            return Ok(None);
        }
        let piece = self.text.get(self.piece..).unwrap_or_default();
        let nuls = piece.iter().rev().take_while(|byte| **byte == 0).count();
        work::count_bytes(nuls);
        if (nuls as u64).saturating_add(self.hole) < NUL_RUN as u64 {
            // A short one stays in the line.
            if self.hole > RECORD_BYTES_MAX.saturating_sub(self.text.len()) as u64 {
                return Ok(Some(PieceEnd::Buffer));
            }
            let zeros = usize::try_from(std::mem::take(&mut self.hole)).unwrap_or_default();
            self.text.resize(self.text.len().saturating_add(zeros), 0);
            self.file.bytes = self.file.bytes.saturating_add(zeros as u64);
            return Ok(None);
        }
        self.text.truncate(self.text.len().saturating_sub(nuls));
        self.note_hole(self.file.bytes.saturating_sub(nuls as u64));
        Ok(Some(PieceEnd::NulRun))
    }

    /// Notes the NUL bytes from `start` to the end of the hole.
    fn note_hole(&mut self, start: u64) {
        self.file.bytes = self.file.bytes.saturating_add(self.hole);
        self.hole = 0;
        note_nuls(&mut self.state, start, self.file.bytes.saturating_sub(start));
    }

    fn pass(&mut self, bytes: usize) {
        self.input.consume(bytes);
        self.file.bytes = self.file.bytes.saturating_add(bytes as u64);
    }

    /// Takes a long run of NUL bytes off the end of the buffer. Returns `false` if it is short.
    fn cut_nul_run(&mut self) -> bool {
        let piece = self.text.get(self.piece..).unwrap_or_default();
        let nuls = piece.iter().rev().take_while(|byte| **byte == 0).count();
        work::count_bytes(nuls);
        if nuls < NUL_RUN {
            return false;
        }
        note_nuls(
            &mut self.state,
            self.file.bytes.saturating_sub(nuls as u64),
            nuls as u64,
        );
        self.text.truncate(self.text.len().saturating_sub(nuls));
        true
    }

    /// Passes the rest of a line that is too long.
    fn skip_line(&mut self) -> io::Result<()> {
        let start = self.base;
        self.text.clear();
        self.piece = 0;
        let mut is_done = false;
        while !is_done {
            if self.input.buffer().is_empty() {
                let hole = std::mem::take(&mut self.hole).saturating_add(self.input.get_mut().skip_hole()?);
                self.file.bytes = self.file.bytes.saturating_add(hole);
            }
            let chunk = match self.input.fill_buf() {
                Ok(chunk) => chunk,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => return Err(error),
            };
            let feed = memchr::memchr(b'\n', chunk);
            let taken = feed.unwrap_or(chunk.len());
            is_done = feed.is_some() || chunk.is_empty();
            self.pass(taken);
        }
        let span = start..self.file.bytes;
        self.add_finding(Damage::LongRecord, self.line, span, FixKind::Told);
        self.state.is_dirty = true;
        Ok(())
    }

    /// Reads the piece in the buffer.
    fn take_piece(&mut self, end: PieceEnd, each: &mut EachRecord<'_>) {
        let mut text = std::mem::take(&mut self.text);
        let (piece, base) = (self.piece, self.base);
        if let Some(open) = self.open.take() {
            self.go_on_with(open, &mut text, end, each);
        } else if let Some(rest) = text.get_mut(piece..) {
            self.open = self.read_parts(rest, base, end, true, each);
        }
        match end {
            PieceEnd::LineFeed => {
                self.finish_line();
                self.line = self.line.saturating_add(1);
                self.line_start = self.file.bytes;
                self.file.lines = self.file.lines.saturating_add(1);
            }
            PieceEnd::File => self.finish_line(),
            PieceEnd::NulRun | PieceEnd::Buffer => {}
        }
        if self.open.is_none() {
            text.clear();
        }
        self.piece = text.len();
        self.text = text;
    }

    /// Goes on with a record whose line ended inside of a string. If the text does not go on, its lines are read again, each
    /// for itself.
    ///
    /// No byte is read more than three times: a line that goes on with a string begins inside of it, and so would not end
    /// inside of one if a record began with it.
    fn go_on_with(&mut self, mut open: OpenRecord, text: &mut Vec<u8>, end: PieceEnd, each: &mut EachRecord<'_>) {
        let (base, piece) = (self.base, self.piece);
        if let Some(present) = text.get_mut(piece..) {
            self.clear_bytes(present, base.saturating_add(piece as u64));
        }
        match open.scan.run(text) {
            ScanEnd::Whole(at) if self.join_lines(text.get_mut(open.start..at), &open, each) => {
                if let Some(rest) = text.get_mut(at..) {
                    self.read_parts(rest, base.saturating_add(at as u64), end, false, each);
                }
            }
            ScanEnd::Open { in_string: true } if end == PieceEnd::LineFeed => self.open = Some(open),
            _ => {
                self.read_lines_again(open.line, text, each);
                let base = self.base;
                self.open = self.read_parts(text, base, end, true, each);
            }
        }
    }

    /// Reads the record that was found to stand on several lines. Returns `false` if it is none.
    fn join_lines(&mut self, object: Option<&mut [u8]>, open: &OpenRecord, each: &mut EachRecord<'_>) -> bool {
        let Some(object) = object else { return false };
        let byte = self.base.saturating_add(open.start as u64);
        if !blank_controls(object) {
            return false;
        }
        let span = byte..byte.saturating_add(object.len() as u64);
        self.state.is_dirty = true;
        self.add_finding(Damage::RawNewline, open.line, span, FixKind::InPlace);
        self.give_record(object, open.line, byte, true, each);
        true
    }

    /// Reads the lines before the present one again, each for itself, and takes them off the buffer.
    fn read_lines_again(&mut self, first: u64, text: &mut Vec<u8>, each: &mut EachRecord<'_>) {
        let (present, state) = (self.line, std::mem::take(&mut self.state));
        self.line = first;
        let mut at = 0_usize;
        while self.line < present {
            let rest = text.get(at..self.piece).unwrap_or_default();
            let len = memchr::memchr(b'\n', rest).map_or(rest.len(), |feed| feed.saturating_add(1));
            let byte = self.base.saturating_add(at as u64);
            if let Some(line) = text.get_mut(at..at.saturating_add(len)) {
                self.read_parts(line, byte, PieceEnd::LineFeed, false, each);
            }
            self.finish_line();
            self.line = self.line.saturating_add(1);
            at = at.saturating_add(len);
        }
        self.state = state;
        text.drain(..self.piece.min(text.len()));
        self.base = self.base.saturating_add(self.piece as u64);
        self.piece = 0;
    }

    /// Gives an open record up, since its lines no longer fit into the buffer, or do not follow one another.
    fn give_up_open(&mut self, each: &mut EachRecord<'_>) {
        if let Some(open) = self.open.take() {
            // What was read of the present line stays, and is read when its end is known.
            let mut text = std::mem::take(&mut self.text);
            self.read_lines_again(open.line, &mut text, each);
            self.text = text;
        }
    }

    /// Reads the records and fragments of a line, or of a piece of one. Returns the record that its line feed interrupts.
    fn read_parts(
        &mut self,
        text: &mut [u8],
        base: u64,
        end: PieceEnd,
        may_open: bool,
        each: &mut EachRecord<'_>,
    ) -> Option<OpenRecord> {
        if base == 0 && text.starts_with(BYTE_ORDER_MARK) {
            self.add_finding(Damage::ByteOrderMark, self.line, 0..3, FixKind::InPlace);
            text.iter_mut()
                .take(BYTE_ORDER_MARK.len())
                .for_each(|byte| *byte = b' ');
        }
        let whole = trim_blanks(text);
        let object = text.get(whole.clone()).unwrap_or_default();
        if object.is_empty() {
            return None;
        }
        let is_alone = !self.state.is_dirty && self.state.nuls.is_none() && self.state.records == 0;
        if is_alone && json::validate(object).is_ok() {
            let byte = base.saturating_add(whole.start as u64);
            if object.first() == Some(&b'{') {
                self.give_record(object, self.line, byte, false, each);
            } else {
                // A value of another type is nothing that a client writes, and nothing that it loses.
                let span = byte..byte.saturating_add(object.len() as u64);
                self.add_finding(Damage::TornRecord, self.line, span, FixKind::Told);
                self.state.is_dirty = true;
            }
            return None;
        }
        self.clear_bytes(text, base);
        let may_open = may_open && end == PieceEnd::LineFeed && self.state.nuls.is_none();
        self.read_damaged(text, base, may_open, each)
    }

    /// Reads the parts of a line that is no single record.
    fn read_damaged(
        &mut self,
        text: &mut [u8],
        base: u64,
        may_open: bool,
        each: &mut EachRecord<'_>,
    ) -> Option<OpenRecord> {
        // The blanks at the end are passed once, and not for each part.
        let whole = trim_blanks(text).end;
        let text = text.get_mut(..whole)?;
        let mut budget = SearchBudget::of_line(whole);
        let mut at = 0_usize;
        loop {
            let start = at.saturating_add(trim_blanks(text.get(at..)?).start);
            let first = *text.get(start)?;
            let (mut scan, limit) = (ObjectScan::new(start), budget.limit(start, whole));
            let end = if first == b'{' {
                scan.run(text.get(..limit)?)
            } else {
                ScanEnd::Broken(start)
            };
            if let ScanEnd::Whole(end) = end
                && self.take_object(text, start..end, base, scan.controls, each)
            {
                at = end;
                continue;
            }
            budget.spend(scan.at.saturating_sub(start));
            if may_open && end == (ScanEnd::Open { in_string: true }) && self.state.records == 0 && !self.state.is_dirty
            {
                let line = self.line;
                return Some(OpenRecord { scan, start, line });
            }
            let is_cut = limit < whole && matches!(end, ScanEnd::Open { .. });
            let next = match find_next_record(text, start, end, &mut budget) {
                NextRecord::Nowhere if is_cut => NextRecord::Unknown,
                next => next,
            };
            let stop = match next {
                NextRecord::At(next) => next,
                NextRecord::Nowhere | NextRecord::Unknown => whole,
            };
            // In a fragment that could not be searched there may be a record, which must not be lost.
            let is_kept = next == NextRecord::Unknown;
            let fix = if is_kept { FixKind::Told } else { FixKind::InPlace };
            let span = base.saturating_add(start as u64)..base.saturating_add(stop as u64);
            self.add_finding(Damage::TornRecord, self.line, span, fix);
            self.state.is_dirty = true;
            self.state.has_kept_fragment |= is_kept;
            at = stop;
        }
    }

    /// Reads a whole object in a line that is no single record. Returns `false` if it is no JSON.
    fn take_object(
        &mut self,
        text: &mut [u8],
        place: Range<usize>,
        base: u64,
        controls: usize,
        each: &mut EachRecord<'_>,
    ) -> bool {
        let is_last = trim_blanks(text.get(place.end..).unwrap_or_default()).is_empty();
        let byte = base.saturating_add(place.start as u64);
        let Some(object) = text.get_mut(place) else {
            return false;
        };
        if controls > 0 && !blank_controls(object) || controls == 0 && json::validate(object).is_err() {
            return false;
        }
        if controls > 0 {
            let span = byte..byte.saturating_add(object.len() as u64);
            self.add_finding(Damage::RawNewline, self.line, span, FixKind::InPlace);
            self.state.is_dirty = true;
        }
        let is_alone = is_last && !self.state.is_dirty && self.state.nuls.is_none() && self.state.records == 0;
        self.state.is_dirty |= !is_last;
        self.give_record(object, self.line, byte, !is_alone, each);
        true
    }

    /// Gives a record to the caller, unless it repeats an earlier one.
    fn give_record(&mut self, text: &[u8], line: u64, byte: u64, is_skipped: bool, each: &mut EachRecord<'_>) {
        let len = text.len() as u64;
        let end = byte.saturating_add(len);
        let members = RecordMembers::read(text);
        let place = RecordPlace { line, byte, len };
        let sighting = identity_of(&members).map_or(Sighting::New, |identity| {
            self.seen.note(text, members.json.bytes(identity), place, is_skipped)
        });
        match sighting {
            Sighting::New => {}
            Sighting::Repeats => {
                let listed = self.file.findings.len();
                self.add_finding(Damage::RepeatedRecord, line, byte..end, FixKind::InPlace);
                if let Some(finding) = self.file.findings.get_mut(listed).filter(|_| !is_skipped) {
                    finding.loss = repeat_loss(&members);
                }
                return;
            }
            Sighting::Replaces(earlier) => {
                let span = earlier.byte..earlier.byte.saturating_add(earlier.len);
                self.add_finding(Damage::RepeatedRecord, earlier.line, span, FixKind::InPlace);
            }
        }
        let surrogates = self.lone_surrogates(text);
        if let Some(span) = &surrogates {
            let span = byte.saturating_add(span.start as u64)..byte.saturating_add(span.end as u64);
            self.add_finding(Damage::LoneSurrogate, line, span, FixKind::InPlace);
        }
        if self.state.records == 0 {
            self.state.span = byte..end;
        }
        self.state.is_glued |= self.state.records > 0 && self.state.span.end == byte;
        self.state.records = self.state.records.saturating_add(1);
        self.state.span.end = end;
        self.file.records = self.file.records.saturating_add(1);
        let first = self.record_lines.map_or(line, |(first, _)| first);
        self.record_lines = Some((first, self.line));
        each(SessionRecord {
            line,
            byte,
            text,
            is_skipped,
            has_bad_bytes: self.state.bad_runs > 0,
            has_lone_surrogate: surrogates.is_some(),
            members,
        });
    }

    /// Returns the span from the first lone surrogate to the end of the last one.
    fn lone_surrogates(&self, text: &[u8]) -> Option<Range<usize>> {
        // Escapes with digits are rare, and those of surrogates more so.
        let mut escapes = self.escapes.find_iter(text);
        let is_surrogate = |at: usize| matches!(text.get(at.saturating_add(2)), Some(b'd' | b'D'));
        work::count_bytes(text.len());
        if !escapes.any(is_surrogate) {
            return None;
        }
        let first = find_lone_surrogate(text, 0)?;
        let mut end = first.saturating_add(REPLACEMENT.len());
        while let Some(next) = find_lone_surrogate(text, end) {
            end = next.saturating_add(REPLACEMENT.len());
        }
        Some(first..end)
    }

    /// Replaces NUL bytes by spaces, and bytes that are no UTF-8 by `?`, and notes them.
    fn clear_bytes(&mut self, text: &mut [u8], base: u64) {
        work::count_bytes(text.len());
        if let (Some(first), Some(last)) = (memchr::memchr(0, text), memchr::memrchr(0, text)) {
            let nuls = last.saturating_add(1).saturating_sub(first);
            note_nuls(&mut self.state, base.saturating_add(first as u64), nuls as u64);
            text.iter_mut().filter(|byte| **byte == 0).for_each(|byte| *byte = b' ');
        }
        let mut bad: Option<Range<usize>> = None;
        let mut at = 0_usize;
        while let Err(error) = std::str::from_utf8(text.get(at..).unwrap_or_default()) {
            let start = at.saturating_add(error.valid_up_to());
            let end = error.error_len().map_or(text.len(), |len| start.saturating_add(len));
            text.iter_mut().take(end).skip(start).for_each(|byte| *byte = b'?');
            bad = Some(bad.map_or(start, |bad| bad.start)..end);
            at = end;
        }
        if let Some(bad) = bad {
            self.state.bad_runs = self.state.bad_runs.saturating_add(1);
            let span = base.saturating_add(bad.start as u64)..base.saturating_add(bad.end as u64);
            self.add_finding(Damage::InvalidUtf8, self.line, span, FixKind::InPlace);
        }
    }

    /// Adds the findings about all of a line.
    fn finish_line(&mut self) {
        let state = std::mem::take(&mut self.state);
        if let Some(nuls) = state.nuls {
            let is_mended = nuls.end.saturating_sub(nuls.start) <= NULS_MENDED_MAX;
            let fix = if is_mended { FixKind::InPlace } else { FixKind::Told };
            self.add_finding(Damage::NulBytes, self.line, nuls, fix);
        }
        if state.records > 1 {
            let is_long = state.span.end.saturating_sub(state.span.start) > RECORD_BYTES_MAX as u64;
            let fix = match () {
                () if state.has_kept_fragment || is_long => FixKind::Told,
                // A line feed needs a byte that no record needs.
                () if state.is_glued => FixKind::Append,
                () => FixKind::InPlace,
            };
            self.add_finding(Damage::JoinedRecords, self.line, state.span, fix);
        }
        let findings = self.file.findings.get_mut(self.told..).unwrap_or_default();
        for finding in findings.iter_mut().filter(|_| state.records == 0) {
            work::count(1);
            // A value of another type is no fragment: some versions end their reading there.
            let is_harmless = match finding.code {
                SessionCode::Damage(Damage::NulBytes | Damage::InvalidUtf8) => true,
                SessionCode::Damage(Damage::TornRecord) => finding.fix == FixKind::InPlace,
                _ => false,
            };
            if is_harmless {
                finding.loss = RecordLoss::Nothing;
            }
        }
        self.told = self.file.findings.len();
    }

    /// Tells which findings are about the first record, and which fragments have a record behind them.
    fn place_losses(&mut self) {
        let (first, last) = self.record_lines.unwrap_or((u64::MAX, 0));
        for finding in &mut self.file.findings {
            work::count(1);
            if finding.line <= first {
                finding.loss = RecordLoss::First;
            } else if finding.code == SessionCode::Damage(Damage::TornRecord) && finding.line < last {
                // The client went on without the record that was cut off.
                finding.loss = RecordLoss::Any;
            }
        }
    }

    fn finish_file(&mut self) {
        // The last line may have no line feed.
        if self.file.bytes > self.line_start {
            self.file.lines = self.file.lines.saturating_add(1);
        }
        if self.file.records == 0 && self.file.findings.is_empty() {
            self.add_finding(Damage::EmptyFile, 1, 0..0, FixKind::Told);
        }
    }

    fn add_finding(&mut self, damage: Damage, line: u64, span: Range<u64>, fix: FixKind) {
        if self.file.findings.len() >= FINDINGS_MAX {
            self.file.unlisted = self.file.unlisted.saturating_add(1);
            return;
        }
        let (code, len) = (SessionCode::Damage(damage), span.end.saturating_sub(span.start));
        self.file.findings.push(SessionFinding {
            fix,
            ..SessionFinding::told(code, line, span.start, len)
        });
    }
}

/// Notes a run of NUL bytes on a line.
fn note_nuls(state: &mut LineState, start: u64, len: u64) {
    let end = start.saturating_add(len);
    state.nuls = Some(state.nuls.take().map_or(start..end, |nuls| nuls.start..end));
}

/// Appends to a buffer that never holds more than the longest line and a line feed.
fn append_bytes(text: &mut Vec<u8>, bytes: &[u8]) {
    let wanted = text.len().saturating_add(bytes.len());
    if wanted > text.capacity() && wanted > DOUBLING_MAX {
        let room = RECORD_BYTES_MAX.saturating_add(1).max(wanted);
        text.reserve_exact(room.saturating_sub(text.len()));
    }
    text.extend_from_slice(bytes);
}

/// Returns the range without the blanks of JSON around it.
fn trim_blanks(text: &[u8]) -> Range<usize> {
    let is_visible = |byte: &u8| {
        work::count(1);
        !matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
    };
    match (text.iter().position(is_visible), text.iter().rposition(is_visible)) {
        (Some(first), Some(last)) => first..last.saturating_add(1),
        _ => 0..0,
    }
}

/// Replaces control characters by spaces. Returns `true` if the text is JSON then.
fn blank_controls(text: &mut [u8]) -> bool {
    work::count_bytes(text.len());
    text.iter_mut()
        .filter(|byte| **byte < b' ')
        .for_each(|byte| *byte = b' ');
    json::validate(text).is_ok()
}
