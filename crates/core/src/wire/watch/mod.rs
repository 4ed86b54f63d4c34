//! Collects facts about an answer while it passes. The proxy pushes the bytes as they come.
//!
//! A watcher never delays or changes a byte and never fails: it ignores whatever it cannot read. The facts do not
//! depend on how the answer is cut into chunks.

mod event_buffer;
mod reader;

use self::{event_buffer::EventBuffer, reader::FormatReader};
pub use crate::wire::facts::{
    AnswerError, AnswerItems, CARRIED_BYTES_MAX, CallInput, CarriedCall, CarriedFacts, EmittedCall, EmittedCalls,
    ErrorEvent, Facts, LISTED_MAX, OutputPhase, ServerTool, ServerTools, TEXT_BYTES_MAX, Usage, stop_labels,
};
use crate::wire::{
    Format,
    frames::{AmazonFramer, EventFramer, ValueFramer},
};

/// Bytes of one event that are read and buffered, since the last event of a response repeats all of its output.
///
/// Of a longer event only the beginning is read.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// Most bytes of a line end, which is all of an event without any line.
const LINE_END_BYTES_MAX: u64 = 2;

/// The division of an answer into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events: `text/event-stream`.
    Events,
    /// One JSON value, or an array of them that comes piece by piece: `application/json`.
    Values,
    /// Amazon's binary frames: `application/vnd.amazon.eventstream`.
    Frames,
}

impl Framing {
    /// Returns the framing of a content type, which may have parameters. `None` if the proxy cannot read such events.
    pub fn from_content_type(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii();
        if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Some(Self::Events)
        } else if essence.eq_ignore_ascii_case(b"application/json") {
            Some(Self::Values)
        } else if essence.eq_ignore_ascii_case(b"application/vnd.amazon.eventstream") {
            Some(Self::Frames)
        } else {
            None
        }
    }

    /// Returns `true` if an answer is a stream by its content type alone.
    pub const fn is_stream(self) -> bool {
        matches!(self, Self::Events | Self::Frames)
    }
}

/// The watcher of one answer.
#[derive(Clone, Debug)]
pub struct Watcher {
    format: Option<Format>,
    framer: AnswerFramer,
    reader: Option<FormatReader>,
    held: EventBuffer,
    facts: Facts,
    /// Set once an element marked the end, even if the array around it is still open.
    end_marked: bool,
}

#[derive(Clone, Debug)]
enum AnswerFramer {
    Events(EventFramer),
    Values(ValueFramer),
    Frames(AmazonFramer),
}

impl Watcher {
    /// Creates the watcher of an answer of `format`. Without a format it only finds the ends of events.
    pub fn new(format: Option<Format>, framing: Framing) -> Self {
        Self {
            format,
            framer: match framing {
                Framing::Events => AnswerFramer::Events(EventFramer::default()),
                Framing::Values => AnswerFramer::Values(ValueFramer::default()),
                Framing::Frames => AnswerFramer::Frames(AmazonFramer::default()),
            },
            reader: format.map(FormatReader::new),
            held: EventBuffer::default(),
            facts: Facts::default(),
            end_marked: false,
        }
    }

    /// Makes the watcher note what the provider wants back, apart from reasoning: signatures and containers.
    #[must_use]
    pub const fn noting_carried(mut self) -> Self {
        self.facts.carried.set_wanted();
        self
    }

    /// Makes the watcher note reasoning too. Its events are then read one by one.
    #[must_use]
    pub const fn noting_reasoning(mut self) -> Self {
        self.facts.carried.set_reasoning_wanted();
        self
    }

    /// Makes the watcher note the arguments of calls.
    #[must_use]
    pub const fn noting_inputs(mut self) -> Self {
        self.facts.calls.notes_inputs = true;
        self
    }

    /// Makes the watcher note the hashes of the items of a Responses answer.
    #[must_use]
    pub const fn noting_items(mut self) -> Self {
        self.facts.items.set_wanted();
        self
    }

    /// Returns the framing.
    pub const fn framing(&self) -> Framing {
        match self.framer {
            AnswerFramer::Events(_) => Framing::Events,
            AnswerFramer::Values(_) => Framing::Values,
            AnswerFramer::Frames(_) => Framing::Frames,
        }
    }

    /// Reads the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self {
            format,
            framer,
            reader,
            held,
            facts,
            end_marked: ended,
        } = self;
        let Some(reader) = reader else {
            // The relay must know where an error event may be inserted, whatever the format.
            if let AnswerFramer::Events(framer) = framer {
                framer.push(bytes, |_| ());
            }
            return;
        };
        match framer {
            AnswerFramer::Events(framer) => {
                let start = framer.pushed_bytes();
                framer.push(bytes, |range| {
                    // An empty line of its own, which a stream may have by the million: it changes no fact.
                    if range.start >= start && range.end.saturating_sub(range.start) <= LINE_END_BYTES_MAX {
                        return;
                    }
                    // Some servers send more after the end; it must not change the facts.
                    if !has_ended(*format, facts) {
                        reader.read_event(held.event_bytes(&range, start, bytes), range.start == 0, facts);
                    }
                    held.clear();
                });
                held.store_open_event(framer.event_start(), start, bytes);
            }
            AnswerFramer::Values(framer) => {
                let start = framer.pushed_bytes();
                framer.push(bytes, |range| {
                    reader.read_value(held.event_bytes(&range, start, bytes), facts);
                    held.clear();
                });
                held.store_open_event(framer.event_start(), start, bytes);
                *ended |= facts.terminal;
                // An array that was cut off after its last element is still a broken answer.
                facts.terminal = *ended && (!framer.is_array() || framer.is_closed());
            }
            AnswerFramer::Frames(framer) => {
                let start = framer.pushed_bytes();
                framer.push(bytes, |range| {
                    if !has_ended(*format, facts) {
                        reader.read_frame(held.event_bytes(&range, start, bytes), facts);
                    }
                    held.clear();
                });
                if !framer.is_lost() {
                    held.store_open_event(framer.frame_start(), start, bytes);
                }
            }
        }
    }

    /// Reads the last event, once no byte follows. A CR at the very end may have ended it.
    pub fn finish(&mut self) {
        if let (AnswerFramer::Events(framer), Some(reader)) = (&self.framer, &mut self.reader)
            && framer.is_between_events()
            && framer.event_start() < framer.pushed_bytes()
            && !has_ended(self.format, &self.facts)
        {
            let range = framer.event_start()..framer.pushed_bytes();
            let event = self.held.event_bytes(&range, framer.pushed_bytes(), &[]);
            reader.read_event(event, range.start == 0, &mut self.facts);
            self.held.clear();
        }
    }

    /// Returns the format of the answer, if it is known.
    pub const fn format(&self) -> Option<Format> {
        self.format
    }

    /// Returns `true` if the answer consists of several events, as far as its bytes show.
    pub const fn is_stream(&self) -> bool {
        match &self.framer {
            AnswerFramer::Events(_) => true,
            AnswerFramer::Values(framer) => framer.is_array(),
            AnswerFramer::Frames(_) => !self.is_lost(),
        }
    }

    /// Returns `true` if the rest of the answer cannot be read, because a frame has an impossible length.
    ///
    /// What comes after the marked end counts for nothing, so it cannot be lost.
    pub const fn is_lost(&self) -> bool {
        matches!(&self.framer, AnswerFramer::Frames(framer) if framer.is_lost()) && !self.facts.terminal
    }

    /// Returns `true` if the whole answer has come: its events have marked the end, or its only value is closed.
    ///
    /// A value is whole without a stop reason, which gateways leave out.
    pub fn is_whole(&self) -> bool {
        let Some(format) = self.format else { return false };
        match &self.framer {
            AnswerFramer::Values(framer) if !framer.is_array() => framer.is_closed(),
            AnswerFramer::Events(_) | AnswerFramer::Values(_) | AnswerFramer::Frames(_) => {
                self.facts.is_complete(format)
            }
        }
    }

    /// Returns the facts so far.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Returns `true` if the proxy may insert an event here, because no event is incomplete.
    pub fn is_between_events(&self) -> bool {
        match &self.framer {
            AnswerFramer::Events(framer) => framer.is_between_events(),
            // Neither has room for a text event.
            AnswerFramer::Values(_) | AnswerFramer::Frames(_) => false,
        }
    }
}

/// Returns `true` if later events must not change the facts.
fn has_ended(format: Option<Format>, facts: &Facts) -> bool {
    facts.terminal && !format.is_some_and(Format::goes_on_after_end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_framing_is_told_by_the_content_type() {
        for (kind, framing) in [
            ("text/event-stream", Some(Framing::Events)),
            ("Text/Event-Stream ;charset=utf-8", Some(Framing::Events)),
            ("application/json; charset=UTF-8", Some(Framing::Values)),
            ("application/jsonl", None),
            ("application/vnd.amazon.eventstream", Some(Framing::Frames)),
            ("Application/VND.Amazon.EventStream; v=1", Some(Framing::Frames)),
            ("", None),
        ] {
            assert_eq!(Framing::from_content_type(kind.as_bytes()), framing, "{kind}");
        }
    }
}
