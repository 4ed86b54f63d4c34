//! The framer of JSON answers: the elements of one array, or values in sequence.
//!
//! `streamGenerateContent` without `alt=sse` answers with one array whose elements arrive piece by piece (Gemini API
//! reference, 2026-11). Only objects and arrays are events. Brackets outside strings are counted, and both kinds count
//! alike: text that mixes them is not JSON, which the reader of the event detects.

use std::ops::Range;

use crate::wire::json::object_len;

/// The framer of one JSON answer.
#[derive(Clone, Debug, Default)]
pub struct ValueFramer {
    /// Bytes pushed so far.
    at: u64,
    /// Number of open brackets.
    depth: u64,
    /// Number of brackets around an event: 1 in an array, 0 otherwise.
    outer_depth: u64,
    /// Offset at which the open event began.
    event_start: Option<u64>,
    /// Position in the string at the end of the bytes, if they end inside one.
    string: Option<StringPosition>,
    /// Set once a bracket was closed.
    has_closed: bool,
}

/// The position of the next byte in a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum StringPosition {
    /// Not after a backslash.
    Plain,
    /// After a backslash.
    Escaped,
}

impl ValueFramer {
    /// Reads the next bytes, and calls `each` with the range of every event that ends in them.
    ///
    /// Ranges are offsets from the beginning of the stream and reach from bracket to bracket.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Range<u64>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            if let Some(end) = self.whole_object_len(rest) {
                let begin = self.at;
                self.at = begin.saturating_add(end as u64);
                (self.outer_depth, self.has_closed) = (0, true);
                each(begin..self.at);
                rest = rest.get(end..).unwrap_or_default();
                continue;
            }
            let passed = match self.string {
                Some(inside) => self.skip_string(rest, inside),
                None => self.skip_structure(rest, &mut each),
            };
            rest = rest.get(passed..).unwrap_or_default();
        }
    }

    /// Returns the number of bytes pushed so far.
    pub const fn pushed_bytes(&self) -> u64 {
        self.at
    }

    /// Returns the offset in the stream at which the open event began, or the current offset if none is open.
    pub fn event_start(&self) -> u64 {
        self.event_start.unwrap_or(self.at)
    }

    /// Returns `true` if all brackets are closed and there was at least one.
    pub const fn is_closed(&self) -> bool {
        self.has_closed && self.depth == 0
    }

    /// Returns `true` if the answer is an array of events.
    pub const fn is_array(&self) -> bool {
        self.outer_depth == 1
    }

    /// Returns the length of the object at the beginning of these bytes if it is a value at the top, and ends in them.
    ///
    /// Most answers are one such object in one piece. Blocks of bytes are faster to skip than brackets and quotes.
    fn whole_object_len(&self, rest: &[u8]) -> Option<usize> {
        let is_begin = self.depth == 0 && self.string.is_none() && rest.first() == Some(&b'{');
        is_begin.then(|| object_len(rest)).flatten()
    }

    /// Skips bytes of a string, and returns their number.
    fn skip_string(&mut self, rest: &[u8], inside: StringPosition) -> usize {
        let plain = match inside {
            // The escaped byte itself: it neither ends the string nor escapes the next.
            StringPosition::Escaped => 0,
            StringPosition::Plain => memchr::memchr2(b'"', b'\\', rest).unwrap_or(rest.len()),
        };
        self.string = match (inside, rest.get(plain)) {
            (StringPosition::Escaped, _) | (_, None) => Some(StringPosition::Plain),
            (_, Some(b'"')) => None,
            (_, Some(_)) => Some(StringPosition::Escaped),
        };
        let passed = plain.saturating_add(1).min(rest.len());
        self.at = self.at.saturating_add(passed as u64);
        passed
    }

    /// Skips bytes up to the next bracket or quote, including it, and returns their number.
    fn skip_structure(&mut self, rest: &[u8], each: &mut impl FnMut(Range<u64>)) -> usize {
        let plain = rest
            .iter()
            .position(|byte| matches!(byte, b'"' | b'{' | b'[' | b'}' | b']'));
        let here = self.at.saturating_add(plain.unwrap_or(rest.len()) as u64);
        let passed = plain.map_or(rest.len(), |plain| plain.saturating_add(1));
        self.at = self.at.saturating_add(passed as u64);
        match plain.and_then(|plain| rest.get(plain)) {
            Some(b'"') => self.string = Some(StringPosition::Plain),
            Some(open @ (b'{' | b'[')) => self.open_bracket(here, *open),
            Some(_) => self.close_bracket(each),
            None => {}
        }
        passed
    }

    fn open_bracket(&mut self, here: u64, bracket: u8) {
        // Each value at the top decides anew, since an answer may consist of several values.
        if self.depth == 0 {
            self.outer_depth = u64::from(bracket == b'[');
        }
        self.depth = self.depth.saturating_add(1);
        if self.depth == self.outer_depth.saturating_add(1) {
            self.event_start = Some(here);
        }
    }

    fn close_bracket(&mut self, each: &mut impl FnMut(Range<u64>)) {
        self.has_closed = true;
        // A bracket too many must not fail: the answer is relayed whatever it contains.
        self.depth = self.depth.saturating_sub(1);
        if self.depth == self.outer_depth
            && let Some(begin) = self.event_start.take()
        {
            each(begin..self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn framed<'s>(chunks: &[&[u8]], stream: &'s str) -> (Vec<&'s str>, bool) {
        let mut framer = ValueFramer::default();
        let mut events = Vec::new();
        for chunk in chunks {
            framer.push(chunk, |range| {
                events.push(&stream[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()]);
            });
        }
        assert_eq!(framer.pushed_bytes(), stream.len() as u64);
        (events, framer.is_closed())
    }

    #[test]
    fn every_cut_gives_the_same_events() {
        let streams: [(&str, &[&str], bool); 13] = [
            ("", &[], false),
            ("[]", &[], true),
            ("{}", &["{}"], true),
            (
                "[{\"a\":1},\r\n{\"b\":[2,{}]}\n]\n",
                &["{\"a\":1}", "{\"b\":[2,{}]}"],
                true,
            ),
            (
                "[{\"a\":\"}]\\\\\"},{\"b\":\"\\\"]{\\\\\\\"\"}",
                &["{\"a\":\"}]\\\\\"}", "{\"b\":\"\\\"]{\\\\\\\"\"}"],
                false,
            ),
            ("{\"a\":[1]}\n{\"b\":2}", &["{\"a\":[1]}", "{\"b\":2}"], true),
            ("[1,\"x{\",{\"a\":1},null]", &["{\"a\":1}"], true),
            ("[[1],[{}]]", &["[1]", "[{}]"], true),
            ("\u{feff} [{\"ü\":\"\u{2028}\"}", &["{\"ü\":\"\u{2028}\"}"], false),
            ("]]}{\"a\":1}", &["{\"a\":1}"], true),
            ("[{\"a\":1", &[], false),
            ("{\\\"a\":[1],\"b\":2}{}", &["{\\\"a\":[1],\"b\":2}", "{}"], true),
            ("<html>", &[], false),
        ];
        for (stream, events, closed) in streams {
            let bytes = stream.as_bytes();
            for cut in 0..=bytes.len() {
                for second in cut..=bytes.len() {
                    let chunks = [&bytes[..cut], &bytes[cut..second], &bytes[second..]];
                    assert_eq!(
                        framed(&chunks, stream),
                        (events.to_vec(), closed),
                        "{stream:?} cut at {cut}, {second}"
                    );
                }
            }
        }
    }
}
