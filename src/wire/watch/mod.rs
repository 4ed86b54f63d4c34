//! Takes notes on an answer while it passes: pushed the bytes as they come, a watcher says what was in them.
//!
//! Never holds back or changes a byte, and never fails: what it cannot read says nothing. The facts are the same
//! however the answer was cut.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

mod facts;
mod held;
pub(crate) mod read;
mod reader;
mod silent;

pub use facts::{
    Calls, EmittedCall, Facts, Fault, FaultEvent, LISTED_MAX, Phase, ServerTool, ServerTools, TEXT_BYTES_MAX, Usage,
};

pub(crate) use reader::Seen;
pub use reader::stop_labels;
pub(crate) use silent::Silent;

use self::{held::Held, reader::Reader};
use crate::wire::{
    Format,
    frames::{EventFramer, ValueFramer},
};

/// Bytes of one event that are looked at, and held where it comes in pieces. The last event of a response repeats all
/// of its output; of a longer one the beginning must do.
pub const EVENT_BYTES_MAX: usize = 256 * 1024;

/// How the bytes of an answer fall into events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Framing {
    /// Server-sent events: `text/event-stream`.
    Events,
    /// One JSON value, or an array of them that comes piece by piece: `application/json`.
    Values,
}

impl Framing {
    /// The framing of a content type, parameters and all; none for one that has no events of ours.
    pub fn of(content_type: &[u8]) -> Option<Self> {
        let essence = content_type.split(|byte| *byte == b';').next().unwrap_or_default();
        let essence = essence.trim_ascii();
        if essence.eq_ignore_ascii_case(b"text/event-stream") {
            Some(Self::Events)
        } else if essence.eq_ignore_ascii_case(b"application/json") {
            Some(Self::Values)
        } else {
            None
        }
    }
}

/// Watches one answer.
#[derive(Clone, Debug)]
pub struct Watcher {
    format: Option<Format>,
    framer: Framer,
    reader: Option<Reader>,
    held: Held,
    facts: Facts,
    /// Whether an end was said, be the array around it closed or not.
    ended: bool,
}

#[derive(Clone, Debug)]
enum Framer {
    Events(EventFramer),
    Values(ValueFramer),
}

impl Watcher {
    /// Watches an answer of `format`; without one, only where its events end.
    pub fn new(format: Option<Format>, framing: Framing) -> Self {
        Self {
            format,
            framer: match framing {
                Framing::Events => Framer::Events(EventFramer::default()),
                Framing::Values => Framer::Values(ValueFramer::default()),
            },
            reader: format.map(Reader::new),
            held: Held::default(),
            facts: Facts::default(),
            ended: false,
        }
    }

    /// Takes the next bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let Self {
            format,
            framer,
            reader,
            held,
            facts,
            ended,
        } = self;
        let Some(reader) = reader else {
            if let Framer::Events(framer) = framer {
                framer.push(bytes, |_| ());
            }
            return;
        };
        match framer {
            Framer::Events(framer) => {
                let start = framer.at();
                framer.push(bytes, |range| {
                    if !is_over(*format, facts) {
                        reader.event(held.whole(&range, start, bytes), range.start == 0, facts);
                    }
                    held.clear();
                });
                held.keep(framer.open_from(), start, bytes);
            }
            Framer::Values(framer) => {
                let start = framer.at();
                framer.push(bytes, |range| {
                    reader.value(held.whole(&range, start, bytes), facts);
                    held.clear();
                });
                held.keep(framer.open_from(), start, bytes);
                *ended |= facts.terminal;
                facts.terminal = *ended && (!framer.is_array() || framer.is_closed());
            }
        }
    }

    /// Takes note that no byte will follow: a CR at the very end may have ended an event.
    pub fn finish(&mut self) {
        if let (Framer::Events(framer), Some(reader)) = (&self.framer, &mut self.reader)
            && framer.is_between_events()
            && framer.open_from() < framer.at()
            && !is_over(self.format, &self.facts)
        {
            let range = framer.open_from()..framer.at();
            let event = self.held.whole(&range, framer.at(), &[]);
            reader.event(event, range.start == 0, &mut self.facts);
            self.held.clear();
        }
    }

    /// The format of the answer, if it is one of ours.
    pub const fn format(&self) -> Option<Format> {
        self.format
    }

    /// Whether the answer comes event by event, as far as its bytes tell.
    pub const fn is_stream(&self) -> bool {
        match &self.framer {
            Framer::Events(_) => true,
            Framer::Values(framer) => framer.is_array(),
        }
    }

    /// What was seen so far.
    pub const fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Whether an event of ours may be put here as it is: nothing of another one stands in front.
    pub fn is_between_events(&self) -> bool {
        match &self.framer {
            Framer::Events(framer) => framer.is_between_events(),
            Framer::Values(_) => false,
        }
    }
}

/// Whether the end was said: what a server writes behind it changes nothing. Gemini's candidates end one by one.
fn is_over(format: Option<Format>, facts: &Facts) -> bool {
    facts.terminal && format != Some(Format::Gemini)
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
            ("application/vnd.amazon.eventstream", None),
            ("", None),
        ] {
            assert_eq!(Framing::of(kind.as_bytes()), framing, "{kind}");
        }
    }
}
