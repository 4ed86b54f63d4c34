//! Whole lines of the client out of the pieces in which they come.

use bytes::{Bytes, BytesMut};

/// Longest message in bytes.
pub(super) const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// A line of the client.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum JoinedLine {
    Whole(Bytes),
    /// A line that was dropped, since it is too long.
    TooLong,
}

/// Joins pieces of lines. Nearly every piece is a whole line.
#[derive(Debug, Default)]
pub(super) struct LineJoiner {
    begun: BytesMut,
    is_too_long: bool,
}

impl LineJoiner {
    /// Takes a piece, at most one line. Returns the line that it ends.
    pub(super) fn push(&mut self, piece: Bytes) -> Option<JoinedLine> {
        let is_end = piece.ends_with(b"\n");
        let is_first = self.begun.is_empty() && !self.is_too_long;
        if is_first && is_end && piece.len() <= MESSAGE_BYTES_MAX {
            return Some(JoinedLine::Whole(piece));
        }
        self.is_too_long |= self.begun.len().saturating_add(piece.len()) > MESSAGE_BYTES_MAX;
        if self.is_too_long {
            self.begun = BytesMut::new();
        } else {
            self.begun.extend_from_slice(&piece);
        }
        is_end.then(|| self.take_line())
    }

    /// Returns the last line, if it has no end.
    pub(super) fn take_rest(&mut self) -> Option<JoinedLine> {
        (self.is_too_long || !self.begun.is_empty()).then(|| self.take_line())
    }

    fn take_line(&mut self) -> JoinedLine {
        let line = std::mem::take(&mut self.begun).freeze();
        if std::mem::take(&mut self.is_too_long) {
            JoinedLine::TooLong
        } else {
            JoinedLine::Whole(line)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines() {
        let mut joiner = LineJoiner::default();
        let line = Bytes::from("one\n");
        assert_eq!(joiner.push(line.clone()), Some(JoinedLine::Whole(line)));
        assert_eq!(joiner.push(Bytes::from("tw")), None);
        assert_eq!(
            joiner.push(Bytes::from("o\n")),
            Some(JoinedLine::Whole(Bytes::from("two\n")))
        );
        assert_eq!(joiner.push(Bytes::from(vec![b'x'; MESSAGE_BYTES_MAX + 1])), None);
        assert_eq!(joiner.push(Bytes::from("y")), None);
        assert_eq!(joiner.push(Bytes::from("z\n")), Some(JoinedLine::TooLong));
        assert_eq!(joiner.push(Bytes::from("last")), None);
        assert_eq!(joiner.take_rest(), Some(JoinedLine::Whole(Bytes::from("last"))));
        assert_eq!(joiner.take_rest(), None);
    }
}
