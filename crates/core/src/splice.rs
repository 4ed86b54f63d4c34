//! Edits over the original bytes of a body, and the segments that result.
//!
//! Never parses. Long unedited spans are slices of the very same [`Bytes`]. Short ones are copied together.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use std::{fmt, ops::Range};

use bytes::Bytes;

use crate::work;

/// A range of bytes of a body, end exclusive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Span {
    /// Offset of the first byte.
    pub start: usize,
    /// Offset after the last byte. Invariant: `start <= end`.
    pub end: usize,
}

impl Span {
    /// Returns the span from `start` to `end`. An end before the start gives the empty span at `start`.
    pub const fn new(start: usize, end: usize) -> Self {
        Self {
            start,
            end: if end < start { start } else { end },
        }
    }

    /// Returns the empty span at `offset`, for insertions.
    pub const fn at(offset: usize) -> Self {
        Self {
            start: offset,
            end: offset,
        }
    }

    /// Returns the span moved by `by` bytes.
    #[must_use]
    pub const fn shifted(self, by: usize) -> Self {
        Self {
            start: self.start.saturating_add(by),
            end: self.end.saturating_add(by),
        }
    }

    /// Returns the length in bytes.
    pub const fn len(self) -> usize {
        self.end.saturating_sub(self.start)
    }

    /// Returns `true` if the span is empty.
    pub const fn is_empty(self) -> bool {
        self.end <= self.start
    }

    /// Returns the span as a range.
    pub const fn range(self) -> Range<usize> {
        self.start..self.end
    }

    /// Returns the bytes of the span in `body`. Empty if the span does not lie inside.
    pub fn of(self, body: &[u8]) -> &[u8] {
        body.get(self.range()).unwrap_or_default()
    }
}

/// One piece of a replacement: bytes of the original, or new bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A slice of the original body.
    Original(Span),
    /// Constant new bytes.
    Constant(&'static str),
    /// New bytes made for this body (an id, an escaped text).
    Made(String),
}

impl Piece {
    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Original(span) => span.len(),
            Self::Constant(text) => text.len(),
            Self::Made(text) => text.len(),
        }
    }

    /// Returns `true` if the piece is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The replacement of one span.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Edit {
    /// The replaced bytes. Empty for an insertion.
    pub span: Span,
    /// The new bytes. Empty for a removal.
    pub pieces: Vec<Piece>,
}

impl Edit {
    /// Returns the same edit for a body in which this one's body begins at `by`.
    #[must_use]
    pub fn shifted(self, by: usize) -> Self {
        work::count(self.pieces.len().saturating_add(1));
        let pieces = self.pieces.into_iter().map(|piece| match piece {
            Piece::Original(span) => Piece::Original(span.shifted(by)),
            ours => ours,
        });
        Self {
            span: self.span.shifted(by),
            pieces: pieces.collect(),
        }
    }
}

/// Two edits of the same byte, or an edit outside the body: a bug of the planner, never the input's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("edits overlap or leave the body at byte {at}")]
pub struct Overlap {
    /// Offset at which the second edit begins.
    pub at: usize,
}

/// Edits of one body.
///
/// Invariant: sorted by start, disjoint, inside the original. Only [`EditList::new`] creates one. Insertions at one
/// offset keep
/// their given order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EditList {
    edits: Vec<Edit>,
}

impl EditList {
    /// Sorts `edits` and checks the invariant against a body of `length` bytes.
    pub fn new(mut edits: Vec<Edit>, length: usize) -> Result<Self, Overlap> {
        edits.sort_by_key(|edit| edit.span);
        let mut end = 0;
        for edit in &edits {
            if edit.span.start < end || edit.span.end > length || edit.span.end < edit.span.start {
                return Err(Overlap { at: edit.span.start });
            }
            work::count(edit.pieces.len().saturating_add(1));
            let inside = |piece: &Piece| !matches!(piece, Piece::Original(span) if span.end > length);
            if !edit.pieces.iter().all(inside) {
                return Err(Overlap { at: edit.span.start });
            }
            end = edit.span.end;
        }
        Ok(Self { edits })
    }

    /// Returns `true` if there are no edits.
    pub fn is_empty(&self) -> bool {
        self.edits.is_empty()
    }

    /// Returns the edits in order.
    pub fn as_slice(&self) -> &[Edit] {
        &self.edits
    }

    /// Returns the edits in order.
    pub fn into_edits(self) -> Vec<Edit> {
        self.edits
    }

    /// Returns the edited body: slices of `original`, inserted pieces, and copies of short ones. Without edits it is the
    /// same handle.
    pub fn apply(&self, original: &Bytes) -> Segments {
        if self.edits.is_empty() {
            return Segments::whole(original.clone());
        }
        let mut writer = SegmentWriter::new(original);
        let mut from = 0;
        for edit in &self.edits {
            work::count(edit.pieces.len().saturating_add(1));
            writer.push_original(Span::new(from, edit.span.start));
            for piece in &edit.pieces {
                match piece {
                    Piece::Original(span) => writer.push_original(*span),
                    Piece::Constant(text) => {
                        writer.push_inserted(text.as_bytes(), || Bytes::from_static(text.as_bytes()));
                    }
                    Piece::Made(text) => {
                        writer.push_inserted(text.as_bytes(), || Bytes::copy_from_slice(text.as_bytes()));
                    }
                }
            }
            from = edit.span.end;
        }
        writer.push_original(Span::new(from, original.len()));
        writer.finish()
    }
}

/// The longest slice of the original that is copied next to its neighbours. A short part of its own costs more to send.
const COPIED_SLICE_MAX: usize = 512;
/// The most bytes of the original that are copied. The rest shares its memory.
const COPIED_BYTES_MAX: usize = 64 * 1024;

/// A writer of segments that gathers short neighbours into one part.
struct SegmentWriter<'o> {
    original: &'o Bytes,
    segments: Segments,
    /// Bytes of the part that is being built.
    gathered: Vec<u8>,
    /// The bytes of the original that were copied.
    copied: usize,
}

impl<'o> SegmentWriter<'o> {
    fn new(original: &'o Bytes) -> Self {
        Self {
            original,
            segments: Segments::default(),
            gathered: Vec::with_capacity(original.len().min(COPIED_SLICE_MAX)),
            copied: 0,
        }
    }

    /// Adds a slice of the original. A span outside it adds nothing.
    fn push_original(&mut self, span: Span) {
        let copied = self.copied.saturating_add(span.len());
        if span.len() <= COPIED_SLICE_MAX && copied <= COPIED_BYTES_MAX {
            self.copied = copied;
            self.push_copy(self.original.get(span.range()).unwrap_or_default());
        } else {
            self.end_part();
            self.segments.push_part(slice_span(self.original, span));
        }
    }

    /// Adds an inserted piece. A long one is a part of its own, which is not copied twice.
    fn push_inserted(&mut self, bytes: &[u8], as_part: impl FnOnce() -> Bytes) {
        if bytes.len() <= COPIED_SLICE_MAX {
            self.push_copy(bytes);
        } else {
            work::count_bytes(bytes.len());
            self.end_part();
            self.segments.push_part(as_part());
        }
    }

    /// Adds a copy of `bytes`.
    fn push_copy(&mut self, bytes: &[u8]) {
        work::count_bytes(bytes.len());
        self.gathered.extend_from_slice(bytes);
    }

    fn end_part(&mut self) {
        self.segments.push_part(Bytes::from(std::mem::take(&mut self.gathered)));
    }

    fn finish(mut self) -> Segments {
        self.end_part();
        self.segments
    }
}

/// Returns a slice that shares the original's memory. Empty if the span leaves the body.
fn slice_span(original: &Bytes, span: Span) -> Bytes {
    if span.end <= original.len() && span.start < span.end {
        original.slice(span.range())
    } else {
        Bytes::new()
    }
}

/// A body as a list of byte slices, ready to be sent.
#[derive(Clone, Default)]
pub struct Segments {
    // Invariant: no empty part; `len` is the sum of their lengths.
    parts: Vec<Bytes>,
    len: usize,
    original: bool,
}

impl fmt::Debug for Segments {
    // A body is content, which must never be logged.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Segments({} bytes)", self.len)
    }
}

impl Segments {
    /// Returns the unchanged body.
    pub fn whole(body: Bytes) -> Self {
        let mut segments = Self {
            parts: Vec::new(),
            len: 0,
            original: true,
        };
        segments.push_part(body);
        segments
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns `true` if the body is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns `true` if this is the body as it came: the same memory, the same length.
    pub fn is_original(&self) -> bool {
        self.original
    }

    /// Returns the slices in order.
    pub fn parts(&self) -> &[Bytes] {
        &self.parts
    }

    /// Returns the slices in order.
    pub fn into_parts(self) -> Vec<Bytes> {
        self.parts
    }

    /// Returns a copy of the body in one piece. For files and tests, not for the data path.
    pub fn to_vec(&self) -> Vec<u8> {
        work::count(self.parts.len());
        work::count_bytes(self.len);
        self.parts.concat()
    }

    fn push_part(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.len = self.len.saturating_add(part.len());
            self.parts.push(part);
        }
    }
}

impl FromIterator<Bytes> for Segments {
    /// Builds a body from its slices, in order.
    fn from_iter<I: IntoIterator<Item = Bytes>>(slices: I) -> Self {
        let mut segments = Self::default();
        slices.into_iter().for_each(|slice| segments.push_part(slice));
        segments
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: usize, end: usize, text: &'static str) -> Edit {
        Edit {
            span: Span::new(start, end),
            pieces: vec![Piece::Constant(text)],
        }
    }

    #[test]
    fn no_edit_gives_the_same_handle() {
        let body = Bytes::from_static(b"abc");
        let out = EditList::default().apply(&body);
        assert!(out.is_original());
        assert_eq!(out.parts()[0].as_ptr(), body.as_ptr());
        assert_eq!(out.len(), 3);
    }

    #[test]
    fn edits_are_sorted_and_original_slices_can_move() {
        let body = Bytes::from_static(b"0123456789");
        let moved = Edit {
            span: Span::at(0),
            pieces: vec![Piece::Original(Span::new(8, 10))],
        };
        let list = EditList::new(vec![edit(8, 10, ""), edit(4, 5, "xx"), moved], 10).unwrap();
        assert_eq!(list.apply(&body).to_vec(), b"890123xx567");
    }

    #[test]
    fn insertions_at_one_place_keep_their_order() {
        let body = Bytes::from_static(b"ab");
        let list = EditList::new(vec![edit(1, 1, "1"), edit(1, 1, "2"), edit(1, 2, "3")], 2).unwrap();
        assert_eq!(list.apply(&body).to_vec(), b"a123");
    }

    #[test]
    fn short_slices_are_gathered_and_long_ones_share_the_memory() {
        let body = Bytes::from(vec![b'x'; 100_000]);
        let list = EditList::new(vec![edit(50_000, 50_001, "12"), edit(50_100, 50_100, "3")], body.len()).unwrap();
        let out = list.apply(&body);
        let (parts, lengths) = (out.parts(), out.parts().iter().map(Bytes::len).collect::<Vec<_>>());
        assert_eq!(lengths, [50_000, 2 + 99 + 1, 49_900]);
        assert_eq!(parts[0].as_ptr(), body.as_ptr());
        assert_eq!(parts[2].as_ptr(), body[50_100..].as_ptr());
        assert_eq!(out.len(), 100_002);
    }

    #[test]
    fn only_so_much_of_a_body_is_copied() {
        let body = Bytes::from(vec![b'x'; 500_000]);
        let edits = (0..1_000).map(|at| edit(at * 500, at * 500, "y")).collect();
        let out = EditList::new(edits, body.len()).unwrap().apply(&body);
        let shares = |part: &&Bytes| body.as_ptr_range().contains(&part.as_ptr());
        let shared: usize = out.parts().iter().filter(shares).map(Bytes::len).sum();
        assert!(shared >= body.len() - COPIED_BYTES_MAX, "{shared}");
        assert_eq!(out.to_vec().len(), 501_000);
    }

    #[test]
    fn overlaps_and_strays_are_refused() {
        assert_eq!(
            EditList::new(vec![edit(0, 3, ""), edit(2, 4, "")], 9),
            Err(Overlap { at: 2 })
        );
        assert_eq!(EditList::new(vec![edit(0, 3, "")], 2), Err(Overlap { at: 0 }));
        let stray = Edit {
            span: Span::at(0),
            pieces: vec![Piece::Original(Span::new(0, 9))],
        };
        assert_eq!(EditList::new(vec![stray], 2), Err(Overlap { at: 0 }));
    }
}
