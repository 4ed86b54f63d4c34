//! The reader of events, by format.

use super::event_buffer::EventBytes;
use crate::wire::{
    Format, anthropic,
    facts::{AnswerError, EventActivity, Facts, bounded_text},
    frames::{AmazonFrame, SseEvent},
    gemini, openai_chat, openai_responses,
};

/// The reader of one format, with its state from event to event.
#[derive(Clone, Debug)]
pub(super) enum FormatReader {
    Anthropic(anthropic::watch::AnthropicEventReader),
    OpenAiChat(openai_chat::watch::ChatEventReader),
    OpenAiResponses,
    Gemini,
}

impl FormatReader {
    pub(super) fn new(format: Format) -> Self {
        match format {
            Format::Anthropic => Self::Anthropic(anthropic::watch::AnthropicEventReader::default()),
            Format::OpenAiChat => Self::OpenAiChat(openai_chat::watch::ChatEventReader::default()),
            Format::OpenAiResponses => Self::OpenAiResponses,
            Format::Gemini => Self::Gemini,
        }
    }

    /// Reads one server-sent event. `first` is set for the first event of its stream.
    pub(super) fn read_event(&mut self, whole: EventBytes<'_>, first: bool, facts: &mut Facts) {
        let whole = whole.ending_before_comma();
        let bytes = match whole.bytes {
            // The byte order mark.
            [0xEF, 0xBB, 0xBF, rest @ ..] if first => rest,
            bytes => bytes,
        };
        // The fast path: nearly all events of a stream end here.
        if self.is_text_delta(bytes, facts) {
            facts.count_event(EventActivity::Progress, whole.truncated);
            return;
        }
        let event = SseEvent::read(bytes);
        if !event.data.is_empty() {
            let seen = self.read_data(bytes, event.name, &event.data, facts);
            facts.count_event(seen, whole.truncated);
        } else if event.has_comment {
            facts.count_event(EventActivity::Heartbeat, whole.truncated);
        }
    }

    /// Reads one JSON value.
    pub(super) fn read_value(&mut self, whole: EventBytes<'_>, facts: &mut Facts) {
        let whole = whole.ending_before_comma();
        if whole.truncated {
            facts.items.give_up();
        }
        let seen = self.read_data(&[], &[], whole.bytes, facts);
        facts.count_event(seen, whole.truncated);
    }

    /// Reads one of Amazon's frames, which contains an event or ends the answer with an error.
    pub(super) fn read_frame(&mut self, whole: EventBytes<'_>, facts: &mut Facts) {
        let frame = AmazonFrame::read(whole.bytes);
        if frame.is_error() {
            let mut error = AnswerError {
                kind: bounded_text(frame.error_name().as_bytes()),
                ..AnswerError::default()
            };
            error.event.store_first(frame.payload);
            (facts.error, facts.terminal) = (Some(error), true);
        } else {
            let event = frame.chunk_event(whole.truncated);
            if !event.is_empty() {
                let event = EventBytes {
                    bytes: &event,
                    truncated: whole.truncated,
                };
                self.read_value(event, facts);
                return;
            }
        }
        facts.count_event(EventActivity::Progress, whole.truncated);
    }

    /// Returns `true` if an event is a piece of text that changes no fact.
    fn is_text_delta(&self, event: &[u8], facts: &Facts) -> bool {
        // The first delta must be read, since the answer begins with it.
        facts.has_output
            && match self {
                Self::Anthropic(reader) => {
                    reader.skips_deltas() && event.starts_with(anthropic::watch::TEXT_DELTA_START)
                }
                Self::OpenAiResponses => openai_responses::watch::is_text_delta(event, facts),
                Self::OpenAiChat(reader) => reader.is_text_delta(event, facts),
                Self::Gemini => false,
            }
    }

    fn read_data(&mut self, event: &[u8], name: &[u8], data: &[u8], facts: &mut Facts) -> EventActivity {
        let seen = match self {
            Self::Anthropic(reader) => reader.read_event(name, data, facts),
            Self::OpenAiChat(reader) => reader.read_event(event, data, facts),
            Self::OpenAiResponses => openai_responses::watch::read_event(name, data, facts),
            Self::Gemini => gemini::watch::read_chunk(data, facts),
        };
        if let Some(fault) = &mut facts.error {
            // The readers store no message; the policy classifies the error by the event itself.
            fault.event.store_first(data);
        }
        seen
    }
}
