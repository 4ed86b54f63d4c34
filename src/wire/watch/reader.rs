//! The reader of events, by format.

use super::event_buffer::Whole;
use crate::wire::{
    Format, anthropic,
    facts::{Facts, Seen},
    frames::Event,
    gemini, openai_chat, openai_responses,
};

/// The reader of one format, with its state from event to event.
#[derive(Clone, Debug)]
pub(super) enum Reader {
    Anthropic(anthropic::watch::Reader),
    OpenAiChat(openai_chat::watch::Reader),
    OpenAiResponses,
    Gemini,
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

    /// Reads one server-sent event. `first` is set for the first event of its stream.
    pub(super) fn event(&mut self, whole: Whole<'_>, first: bool, facts: &mut Facts) {
        let bytes = match whole.bytes {
            // The byte order mark.
            [0xEF, 0xBB, 0xBF, rest @ ..] if first => rest,
            bytes => bytes,
        };
        // The fast path: nearly all events of a stream end here.
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

    /// Returns `true` if an event is a piece of text that changes no fact.
    fn is_delta(&self, event: &[u8], facts: &Facts) -> bool {
        // The first delta must be read, since the answer begins with it.
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
            // The readers store no message; the policy classifies the error by the event itself.
            fault.event.keep(data);
        }
        seen
    }
}
