//! Lines out of chunks. A line that is too long comes in pieces.

use bytes::{Buf as _, Bytes, BytesMut};

/// Bytes of one read of an input.
pub(super) const CHUNK_BYTES: usize = 64 * 1024;
/// Longest line that is read as one, in bytes.
const LINE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A line, or a piece of one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CutLine {
    /// A line with its end. The last one of an input may have none.
    Whole(Bytes),
    /// A piece of a line that is too long, and `true` for the last one.
    Piece(Bytes, bool),
}

/// Cuts an input into lines.
#[derive(Debug, Default)]
pub(super) struct LineCutter {
    rest: BytesMut,
    /// The bytes of `rest` that have no end of a line.
    seen: usize,
    is_long: bool,
}

impl LineCutter {
    /// Returns a place for more bytes of the input.
    pub(super) fn buffer(&mut self) -> &mut BytesMut {
        &mut self.rest
    }

    /// Returns the next line. `None` if more bytes are needed.
    pub(super) fn next_line(&mut self) -> Option<CutLine> {
        let fresh = self.rest.get(self.seen..).unwrap_or_default();
        if let Some(end) = memchr::memchr(b'\n', fresh) {
            let line = self.take(self.seen.saturating_add(end).saturating_add(1));
            return Some(if std::mem::take(&mut self.is_long) {
                CutLine::Piece(line, true)
            } else {
                CutLine::Whole(line)
            });
        }
        self.seen = self.rest.len();
        if self.rest.has_remaining() && (self.is_long || self.rest.len() > LINE_BYTES_MAX) {
            self.is_long = true;
            let piece = self.take(self.rest.len());
            return Some(CutLine::Piece(piece, false));
        }
        None
    }

    /// Returns what stands behind the last end of a line. `None` if there is nothing.
    pub(super) fn take_rest(&mut self) -> Option<CutLine> {
        let rest = self.take(self.rest.len());
        match (rest.is_empty(), self.is_long) {
            (true, _) => None,
            (false, true) => Some(CutLine::Piece(rest, true)),
            (false, false) => Some(CutLine::Whole(rest)),
        }
    }

    fn take(&mut self, length: usize) -> Bytes {
        self.seen = 0;
        self.rest.split_to(length.min(self.rest.len())).freeze()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_do_not_depend_on_the_chunks() {
        let input = b"one\n\ntwo\r\n{\"a\":1}\nlast";
        for size in 1..=input.len() {
            let mut cutter = LineCutter::default();
            let mut lines = Vec::new();
            for chunk in input.chunks(size) {
                cutter.buffer().extend_from_slice(chunk);
                lines.extend(std::iter::from_fn(|| cutter.next_line()));
            }
            lines.extend(cutter.take_rest());
            let wanted = ["one\n", "\n", "two\r\n", "{\"a\":1}\n", "last"];
            let wanted: Vec<_> = wanted
                .into_iter()
                .map(|line| CutLine::Whole(Bytes::from(line)))
                .collect();
            assert_eq!(lines, wanted, "{size}");
        }
    }

    #[test]
    fn a_line_without_an_end_is_not_held_for_ever() {
        let mut cutter = LineCutter::default();
        cutter.buffer().resize(LINE_BYTES_MAX, b'x');
        assert_eq!(cutter.next_line(), None);
        cutter.buffer().extend_from_slice(b"yy");
        assert!(matches!(cutter.next_line(), Some(CutLine::Piece(piece, false)) if piece.len() == LINE_BYTES_MAX + 2));
        cutter.buffer().extend_from_slice(b"z\nnext\n");
        assert_eq!(cutter.next_line(), Some(CutLine::Piece(Bytes::from("z\n"), true)));
        assert_eq!(cutter.next_line(), Some(CutLine::Whole(Bytes::from("next\n"))));
    }
}
