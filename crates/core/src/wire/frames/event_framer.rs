//! The framer of server-sent events (WHATWG HTML, "Parsing an event stream"): a line ends with LF, CR or CRLF, an event
//! with an empty line.

use std::ops::Range;

/// The framer of one stream of server-sent events.
#[derive(Clone, Debug, Default)]
pub struct EventFramer {
    /// Bytes pushed so far.
    at: u64,
    /// Offset at which the open event began.
    event_start: u64,
    line: LinePosition,
}

/// The position in the current line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LinePosition {
    /// Before the first byte of a line.
    #[default]
    Begin,
    /// Inside a line.
    Inside,
    /// After a CR that ended a line with content. An LF would belong to that line end.
    AfterReturn,
    /// After a CR that ended an empty line, and so the event. An LF would belong to that line end.
    AfterLastReturn,
}

impl EventFramer {
    /// Reads the next bytes, and calls `each` with the range of every event that ends in them.
    ///
    /// Ranges are offsets from the beginning of the stream and include the terminator.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Range<u64>)) {
        let mut rest = bytes;
        while let Some(first) = rest.first().copied() {
            match (self.line, first) {
                (LinePosition::AfterReturn | LinePosition::Inside, b'\n') => {
                    self.pass_byte(&mut rest, LinePosition::Begin);
                }
                (LinePosition::AfterLastReturn | LinePosition::Begin, b'\n') => {
                    self.pass_byte(&mut rest, LinePosition::Begin);
                    self.end_event(&mut each);
                }
                // The CR was the whole line end; the byte here is read again as the first of a line.
                (LinePosition::AfterReturn, _) => self.line = LinePosition::Begin,
                (LinePosition::AfterLastReturn, _) => {
                    self.line = LinePosition::Begin;
                    self.end_event(&mut each);
                }
                (LinePosition::Begin, b'\r') => self.pass_byte(&mut rest, LinePosition::AfterLastReturn),
                (LinePosition::Inside, b'\r') => self.pass_byte(&mut rest, LinePosition::AfterReturn),
                // The hot path: the content of a line is skipped in one search.
                (LinePosition::Begin | LinePosition::Inside, _) => {
                    let length = memchr::memchr2(b'\n', b'\r', rest).unwrap_or(rest.len());
                    self.at = self.at.saturating_add(length as u64);
                    self.line = LinePosition::Inside;
                    rest = rest.get(length..).unwrap_or_default();
                }
            }
        }
    }

    /// Returns `true` if an event may be inserted here, because no event is incomplete.
    pub fn is_between_events(&self) -> bool {
        // The event is complete after the last CR, even if an LF may follow.
        self.event_start == self.at || self.line == LinePosition::AfterLastReturn
    }

    /// Returns the number of bytes pushed so far.
    pub const fn pushed_bytes(&self) -> u64 {
        self.at
    }

    /// Returns the offset in the stream at which the open event began.
    pub const fn event_start(&self) -> u64 {
        self.event_start
    }

    fn pass_byte(&mut self, rest: &mut &[u8], line: LinePosition) {
        self.at = self.at.saturating_add(1);
        self.line = line;
        *rest = rest.get(1..).unwrap_or_default();
    }

    fn end_event(&mut self, each: &mut impl FnMut(Range<u64>)) {
        each(self.event_start..self.at);
        self.event_start = self.at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Divides a whole stream in another way: by normalized line ends.
    fn reference(stream: &str) -> Vec<String> {
        let plain = stream.replace("\r\n", "\n").replace('\r', "\n");
        let mut events: Vec<String> = Vec::new();
        let mut event = String::new();
        for line in plain.split_inclusive('\n') {
            event.push_str(line);
            if line == "\n" {
                events.push(std::mem::take(&mut event));
            }
        }
        events
    }

    fn framed(chunks: &[&[u8]], stream: &str) -> (Vec<String>, bool) {
        let mut framer = EventFramer::default();
        let mut events = Vec::new();
        for chunk in chunks {
            framer.push(chunk, |range| {
                let text = &stream[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
                events.push(text.replace("\r\n", "\n").replace('\r', "\n"));
            });
        }
        let between = framer.is_between_events();
        // The next byte decides if a last CR was the end of the event.
        framer.push(b"x", |range| {
            let text = &stream[usize::try_from(range.start).unwrap()..usize::try_from(range.end).unwrap()];
            events.push(text.replace("\r\n", "\n").replace('\r', "\n"));
        });
        (events, between)
    }

    #[test]
    fn every_cut_gives_the_same_events() {
        let streams = [
            "",
            "data: a\n\n",
            "data: a\n\ndata: b\n\n",
            "event: x\r\ndata: {\"a\":1}\r\n\r\ndata: b\r\n\r\n",
            "data: a\r\rdata: b\r\r",
            ": ping\n\ndata: ü\u{2028}\n\n\n\ndata: open",
            "\u{feff}data: a\n\r\ndata: b\r\n\ndata: c\r\n\r",
        ];
        for stream in streams {
            let bytes = stream.as_bytes();
            let wanted = reference(stream);
            let between = framed(&[bytes], stream).1;
            assert_eq!(
                between,
                reference(&format!("{stream}x")).concat().len() == stream.replace("\r\n", "\n").len()
            );
            for cut in 0..=bytes.len() {
                for second in cut..=bytes.len() {
                    let chunks = [&bytes[..cut], &bytes[cut..second], &bytes[second..]];
                    assert_eq!(
                        framed(&chunks, stream),
                        (wanted.clone(), between),
                        "{stream:?} cut at {cut}, {second}"
                    );
                }
            }
        }
    }
}
