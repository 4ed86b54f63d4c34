//! The pattern of events that change no fact. An event that matches the pattern needs no reading.
//!
//! Most of a stream is such events, which differ by a word of text. Comparing them costs a fraction of reading them.

use std::ops::Range;

use crate::splice::Span;

/// Bytes of the longest event that becomes a pattern.
const PATTERN_BYTES_MAX: usize = 1024;

/// An event with gaps where the text may differ.
#[derive(Clone, Debug, Default)]
pub(crate) struct EventPattern {
    bytes: Vec<u8>,
    /// The inside of each string that does not matter, in rising order.
    gaps: Vec<Range<usize>>,
}

impl EventPattern {
    /// Returns `true` if `event` differs from the pattern only in the gaps.
    pub(crate) fn matches_event(&self, event: &[u8]) -> bool {
        let (mut rest, mut from) = (event, 0);
        for gap in &self.gaps {
            let same = self.bytes.get(from..gap.start).unwrap_or_default();
            let Some(after) = rest.strip_prefix(same).and_then(after_string_text) else {
                return false;
            };
            (rest, from) = (after, gap.end);
        }
        // Without a pattern even an empty event must be read.
        !self.bytes.is_empty() && self.bytes.get(from..) == Some(rest)
    }

    /// Makes an event the pattern. `strings` are spans in its data that do not matter; the data begins at `data`.
    pub(crate) fn learn_event(&mut self, event: &[u8], data: usize, strings: impl Iterator<Item = Span>) {
        self.clear_pattern();
        if event.len() <= PATTERN_BYTES_MAX {
            self.bytes.extend_from_slice(event);
            // The quotes stay in the pattern, so that a string cannot match a value of another type.
            let inside = |span: Span| {
                let [start, end] = [span.start.saturating_add(1), span.end.saturating_sub(1)];
                start.saturating_add(data)..end.saturating_add(data)
            };
            self.gaps.extend(strings.map(inside));
        }
    }

    /// Removes the pattern, so that no event matches.
    pub(crate) fn clear_pattern(&mut self) {
        self.bytes.clear();
        self.gaps.clear();
    }
}

/// Returns the rest of `text` from the closing quote of a string on, given the text after the opening quote.
fn after_string_text(text: &[u8]) -> Option<&[u8]> {
    let mut rest = text;
    loop {
        rest = rest.get(memchr::memchr2(b'"', b'\\', rest)?..)?;
        match rest {
            [b'\\', _, after @ ..] => rest = after,
            [b'"', ..] => return Some(rest),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_texts_in_gaps_may_differ() {
        let event = br#"data: {"a":"one","b":"two","c":"three"}"#;
        let mut silent = EventPattern::default();
        assert!(!silent.matches_event(b"") && !silent.matches_event(event));
        silent.learn_event(event, 6, [Span::new(5, 10), Span::new(25, 32)].into_iter());
        for (event, like) in [
            (r#"data: {"a":"one","b":"two","c":"three"}"#, true),
            (r#"data: {"a":"","b":"two","c":"}\\\"\u0022{"}"#, true),
            (r#"data: {"a":"x","b":"tw0","c":""}"#, false),
            (r#"data: {"a":"x","d":1,"b":"two","c":""}"#, false),
            (r#"data: {"a":"x","b":"two","c":"","d":1}"#, false),
            (r#"data: {"a":"x","b":"two","c":"\"}"#, false),
            (r#"data: {"a":"x","b":"two","c":"\"#, false),
            (r#"data: {"a":"x"#, false),
            ("", false),
        ] {
            assert_eq!(silent.matches_event(event.as_bytes()), like, "{event}");
        }
        silent.clear_pattern();
        assert!(!silent.matches_event(event) && !silent.matches_event(b""));
    }
}
