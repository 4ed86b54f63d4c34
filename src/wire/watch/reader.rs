//! The reader of an answer's format: one event in, its facts noted.

use super::{Facts, held::Whole};
use crate::wire::{Format, anthropic, frames::Event, gemini, openai_chat, openai_responses};

/// The label of an end by an error.
pub(super) const END_ERROR: &str = "error";
/// The label of an answer that nothing ended.
pub(super) const END_NONE: &str = "none";
/// The label of an end for a reason that we do not know.
pub(super) const END_OTHER: &str = "other";

/// What one format remembers from event to event.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Anthropic(anthropic::watch::Reader),
    OpenAiChat(openai_chat::watch::Reader),
    OpenAiResponses,
    Gemini,
}

/// What an event was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// Something of the answer.
    Progress,
    /// A sign of life.
    Heartbeat,
}

impl Reader {
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Anthropic => Self::Anthropic(anthropic::watch::Reader::default()),
            Format::OpenAiChat => Self::OpenAiChat(openai_chat::watch::Reader::default()),
            Format::OpenAiResponses => Self::OpenAiResponses,
            Format::Gemini => Self::Gemini,
        }
    }

    /// Reads one server-sent event, the `first` of its stream or another.
    pub(super) fn event(&mut self, whole: Whole<'_>, first: bool, facts: &mut Facts) {
        let bytes = match whole.bytes {
            // The byte order mark.
            [0xEF, 0xBB, 0xBF, rest @ ..] if first => rest,
            bytes => bytes,
        };
        if self.is_delta(bytes, facts) {
            facts.note(Seen::Progress, whole.truncated);
            return;
        }
        let event = Event::read(bytes);
        if !event.data.is_empty() {
            let seen = self.read(bytes, event.name, &event.data, facts);
            facts.note(seen, whole.truncated);
        } else if event.comment {
            facts.note(Seen::Heartbeat, whole.truncated);
        }
    }

    /// Reads one JSON value.
    pub(super) fn value(&mut self, whole: Whole<'_>, facts: &mut Facts) {
        let seen = self.read(&[], &[], whole.bytes, facts);
        facts.note(seen, whole.truncated);
    }

    /// Whether an event is one of those that make up most of a stream and say nothing new, told by its first bytes.
    fn is_delta(&self, event: &[u8], facts: &Facts) -> bool {
        // The first is read: with it the answer begins.
        facts.begun
            && match self {
                Self::Anthropic(_) => event.starts_with(anthropic::watch::DELTA),
                Self::OpenAiResponses => openai_responses::watch::is_delta(event, facts),
                Self::OpenAiChat(reader) => reader.is_delta(event, facts),
                Self::Gemini => false,
            }
    }

    fn read(&mut self, event: &[u8], name: &[u8], data: &[u8], facts: &mut Facts) -> Seen {
        let seen = match self {
            Self::Anthropic(reader) => reader.read(name, data, facts),
            Self::OpenAiChat(reader) => reader.read(event, data, facts),
            Self::OpenAiResponses => openai_responses::watch::read(name, data, facts),
            Self::Gemini => gemini::watch::read(data, facts),
        };
        if let Some(fault) = &mut facts.error {
            fault.event.keep(data);
        }
        seen
    }
}

impl Facts {
    fn note(&mut self, seen: Seen, truncated: bool) {
        let count = match seen {
            Seen::Progress => &mut self.events,
            Seen::Heartbeat => &mut self.heartbeats,
        };
        *count = count.saturating_add(1);
        self.truncated = self.truncated.saturating_add(u64::from(truncated));
    }
}

/// The stop reasons that a format is known for.
pub(super) const fn stops(format: Format) -> &'static [&'static str] {
    match format {
        Format::Anthropic => &anthropic::watch::STOPS,
        Format::OpenAiChat => &openai_chat::watch::STOPS,
        Format::OpenAiResponses => &openai_responses::watch::STOPS,
        Format::Gemini => &gemini::watch::STOPS,
    }
}

/// Every value of [`Facts::stop_label`] for a format.
pub fn stop_labels(format: Format) -> impl Iterator<Item = &'static str> {
    let known = stops(format).iter().copied();
    known.chain([END_ERROR, END_OTHER, END_NONE])
}
