//! The reader of the chunks of a Chat Completions stream, and of an answer that is one completion.
//!
//! Shapes: OpenAI API reference and openai-python, 2026-08. Comments beside the code name what compatible servers do
//! differently. The format has no heartbeat, no server tools and no compaction.

use crate::{
    conversation::Text,
    splice::Span,
    wire::{
        Unreadable,
        facts::{
            AnswerErrorFields, CallInput, CarriedCall, EmittedCall, EventActivity, EventPattern, Facts, OutputPhase,
            bounded_text, non_empty_text, note_model, read_count, read_elements, read_member_text, read_members,
            read_object, read_openai_usage, skip_value,
        },
        json::{Cursor, Json, JsonKind},
    },
};

/// Known finish reasons.
pub(crate) const STOP_REASONS: [&str; 5] = ["stop", "length", "tool_calls", "content_filter", "function_call"];

/// The beginning of an event whose data is one line.
const DATA_START: &[u8] = b"data: ";

/// The state between events: the pattern of chunks that change no fact.
#[derive(Clone, Debug, Default)]
pub(crate) struct ChatEventReader {
    pattern: EventPattern,
    /// The phase of reasoning for which the pattern holds.
    phase: OutputPhase,
}

impl ChatEventReader {
    /// Returns `true` if an event changes no fact, because it matches the pattern.
    pub(crate) fn is_text_delta(&self, event: &[u8], facts: &Facts) -> bool {
        facts.reasoning == self.phase && self.pattern.matches_event(event)
    }

    /// Reads the `data` of one event.
    pub(crate) fn read_event(&mut self, event: &[u8], data: &[u8], facts: &mut Facts) -> EventActivity {
        let before = facts.reasoning;
        let mut chunk = ChatChunk::default();
        chunk.read_chunk(data, facts);
        let phase = facts.reasoning;
        if chunk.changes_facts || phase != before {
            self.pattern.clear_pattern();
        } else if event.starts_with(DATA_START)
            && event.get(DATA_START.len()..).is_some_and(|rest| rest.starts_with(data))
        {
            // Spans are offsets in the data, which fit the event only if the data is one line of it.
            self.phase = phase;
            let wanted = WantedStrings::of(facts);
            let strings = chunk.texts.iter().filter(|(kind, _)| kind.may_differ(phase, wanted));
            self.pattern
                .learn_event(event, DATA_START.len(), strings.map(|(_, span)| *span));
        }
        EventActivity::Progress
    }
}

/// The kind of a string whose text changes no fact.
#[derive(Clone, Copy, Debug)]
enum ChunkString {
    Content,
    Reasoning,
    /// Arguments of a call.
    Arguments,
    /// Padding.
    Other,
}

/// The strings that are noted.
#[derive(Clone, Copy, Debug)]
struct WantedStrings {
    reasoning: bool,
    arguments: bool,
}

impl WantedStrings {
    const fn of(facts: &Facts) -> Self {
        Self {
            reasoning: facts.carried.wants_reasoning(),
            arguments: facts.carried.is_wanted() || facts.calls.notes_inputs,
        }
    }
}

impl ChunkString {
    /// Returns `true` if the string may be replaced by any other, empty or not, without a change of facts.
    fn may_differ(self, phase: OutputPhase, wanted: WantedStrings) -> bool {
        match self {
            Self::Reasoning if wanted.reasoning => false,
            Self::Arguments if wanted.arguments => false,
            // Text ends open reasoning, so empty and non-empty text then differ.
            Self::Content => phase != OutputPhase::Open,
            Self::Reasoning => phase == OutputPhase::Open,
            Self::Arguments | Self::Other => true,
        }
    }
}

/// The findings in one event.
#[derive(Default)]
struct ChatChunk {
    /// Set if the event is a complete message and no delta.
    is_complete: bool,
    /// Set if any fact was noted, apart from the phase of reasoning.
    changes_facts: bool,
    /// Strings whose text changes no fact, with their spans in the data.
    texts: Vec<(ChunkString, Span)>,
}

impl ChatChunk {
    fn read_chunk(&mut self, data: &[u8], facts: &mut Facts) {
        if data.trim_ascii() == b"[DONE]" {
            (facts.terminal, self.changes_facts) = (true, true);
            return;
        }
        let mut error = AnswerErrorFields::default();
        read_object(data, |cursor, key| match key {
            b"choices" => read_elements(cursor, |cursor| self.read_choice(data, cursor, facts)),
            b"usage" => {
                // Chunks before the last may have `"usage": null`.
                self.changes_facts |= cursor.peek_kind() != JsonKind::Null;
                let (usage, read) = read_openai_usage(cursor, [b"prompt", b"completion"]);
                facts.usage = usage.unwrap_or(facts.usage);
                read
            }
            b"error" => error.read_error(cursor),
            b"model" => note_model(facts, cursor),
            // Random padding, other in every chunk.
            b"obfuscation" => self.note_string(ChunkString::Other, cursor).map(|_| ()),
            _ => skip_value(cursor),
        });
        // A completion that is no stream has no `[DONE]`.
        facts.terminal |= self.is_complete && facts.stop.is_some();
        if error.is_error() {
            (facts.error, facts.terminal) = (Some(error.to_answer_error()), true);
        }
        self.changes_facts |= self.is_complete || error.is_error();
    }

    fn read_choice(&mut self, data: &[u8], cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
        let (mut place, mut delta) = (0, ChatDelta::default());
        let mut stop = Text::default();
        let read = read_members(cursor, |cursor, key| match key {
            b"index" => read_count(&mut place, cursor),
            b"delta" => read_members(cursor, |cursor, key| delta.read_member(key, cursor, self)),
            b"message" => {
                self.is_complete = true;
                read_members(cursor, |cursor, key| delta.read_member(key, cursor, self))
            }
            b"finish_reason" => cursor.read_text().map(|text| stop = text),
            _ => skip_value(cursor),
        });
        self.changes_facts |= !stop.is_empty() || !delta.calls.is_empty();
        if !stop.is_empty() {
            facts.stop = non_empty_text(&stop);
        }
        facts.has_output |= !stop.is_empty() || delta.has_output();
        // Clients send back one choice, and it is the first.
        if facts.carried.is_wanted() && place == 0 {
            delta.note_carried(Json::new(data), facts);
        }
        delta.note_facts(Json::new(data), place, facts);
        if self.is_complete || !stop.is_empty() {
            facts.reasoning.end_open();
        }
        read
    }

    /// Passes the next value and notes its span. Returns `true` if it is a string that is not empty.
    fn note_string(&mut self, words: ChunkString, cursor: &mut Cursor<'_>) -> Result<bool, Unreadable> {
        let is_text = cursor.peek_kind() == JsonKind::String;
        let span = cursor.skip_value()?;
        if is_text {
            self.texts.push((words, span));
        }
        Ok(is_text && span.len() > 2)
    }
}

/// The output that a chunk adds to a choice.
#[derive(Default)]
struct ChatDelta<'a> {
    /// Set if there is text, or a call.
    has_text: bool,
    /// Set if there is reasoning: `reasoning_content` (DeepSeek, vLLM and others) or `reasoning` (`OpenRouter`, Groq).
    has_reasoning: bool,
    /// The `reasoning_content`, which is the only spelling that a provider wants back.
    reasoning: Option<Span>,
    calls: Vec<ChatCallDelta<'a>>,
    /// Further pieces of calls, which have no id and no name.
    pieces: Vec<ChatCallDelta<'a>>,
    /// Set if there is a refusal or audio.
    has_other: bool,
}

/// A call, or a piece of one.
#[derive(Default)]
struct ChatCallDelta<'a> {
    index: Option<u64>,
    id: Text<'a>,
    name: Text<'a>,
    arguments: Option<Span>,
    /// The signature of Gemini's models: `extra_content.google.thought_signature`.
    signature: Text<'a>,
}

impl<'a> ChatDelta<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut ChatChunk) -> Result<(), Unreadable> {
        match key {
            b"content" => self.has_text |= chunk.note_string(ChunkString::Content, cursor)?,
            b"reasoning_content" | b"reasoning" => {
                let has_text = chunk.note_string(ChunkString::Reasoning, cursor)?;
                self.has_reasoning |= has_text;
                if has_text && key == b"reasoning_content" {
                    self.reasoning = chunk.texts.last().map(|(_, span)| *span);
                }
            }
            b"tool_calls" => read_elements(cursor, |cursor| {
                self.has_text = true;
                let mut call = ChatCallDelta::default();
                let read = read_members(cursor, |cursor, key| call.read_member(key, cursor, chunk));
                // Further pieces of a call have only arguments.
                if call.id.is_empty() && call.name.is_empty() {
                    self.pieces.push(call);
                } else {
                    self.calls.push(call);
                }
                read
            })?,
            // The older form of `tool_calls`: one call, without an id.
            b"function_call" => {
                let mut call = ChatCallDelta::default();
                read_members(cursor, |cursor, key| call.read_function(key, cursor, chunk))?;
                if !call.name.is_empty() {
                    self.calls.push(call);
                }
            }
            b"refusal" | b"audio" => {
                // Two bytes are an empty string, list or object.
                let null = cursor.peek_kind() == JsonKind::Null;
                self.has_other |= cursor.skip_value()?.len() > 2 && !null;
            }
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    fn has_output(&self) -> bool {
        self.has_text || self.has_reasoning || self.has_other || !self.calls.is_empty()
    }

    /// Notes what the provider wants back. The data of the event is `json`.
    fn note_carried(&self, json: Json<'_>, facts: &mut Facts) {
        if let Some(span) = self.reasoning {
            facts.carried.add_reasoning(&json.decode_string(span));
        }
        // The order of the event: a delta with several pieces begins with whole calls.
        for call in self.calls.iter().chain(&self.pieces) {
            let arguments = call.arguments.map(|span| json.decode_string(span));
            facts.carried.add_call(CarriedCall {
                id: call.id.to_vec(),
                name: call.name.to_vec(),
                arguments: arguments.unwrap_or_default().into_owned(),
                signature: call.signature.to_vec(),
                index: call.index,
            });
        }
    }

    /// Notes the phase of reasoning and the calls.
    fn note_facts(self, json: Json<'_>, choice: u64, facts: &mut Facts) {
        // Text ends reasoning; a chunk with both is past it.
        if self.has_text {
            facts.reasoning.end_open();
        } else if self.has_reasoning {
            facts.reasoning = OutputPhase::Open;
        }
        let notes_inputs = facts.calls.notes_inputs;
        let arguments =
            |call: &ChatCallDelta<'_>| call.arguments.map(|span| json.decode_string(span)).unwrap_or_default();
        for call in &self.calls {
            let mut input = CallInput::default();
            if notes_inputs {
                input.begin_text();
            }
            // Servers without indices send complete calls. Some servers give every call the same index and another id.
            let known = facts.calls.merge_call(EmittedCall {
                id: bounded_text(&call.id),
                name: bounded_text(&call.name),
                called_by_code: false,
                input,
                place: call.index.map(|index| (choice, index)),
            });
            if let Some(known) = known.filter(|_| notes_inputs) {
                known.input.add_text(&arguments(call));
            }
        }
        for piece in self.pieces.iter().filter(|_| notes_inputs) {
            let place = piece.index.map(|index| (choice, index));
            // The latest call of this place: some servers give every call the same index.
            let mut known = facts.calls.list.iter_mut().rev();
            if let Some(known) = known.find(|known| known.place == place) {
                known.input.add_text(&arguments(piece));
            }
        }
    }
}

impl<'a> ChatCallDelta<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut ChatChunk) -> Result<(), Unreadable> {
        match key {
            b"index" => self.index = cursor.read_number()?,
            b"id" => self.id = cursor.read_text()?,
            b"function" | b"custom" => read_members(cursor, |cursor, key| self.read_function(key, cursor, chunk))?,
            // Gemini's models through Chat Completions (Google, "Thought signatures", 2026-11).
            b"extra_content" => read_members(cursor, |cursor, key| match key {
                b"google" => read_member_text(&mut self.signature, b"thought_signature", cursor),
                _ => skip_value(cursor),
            })?,
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    fn read_function(&mut self, key: &[u8], cursor: &mut Cursor<'a>, chunk: &mut ChatChunk) -> Result<(), Unreadable> {
        match key {
            b"name" => self.name = cursor.read_text()?,
            b"arguments" | b"input" => {
                let has_text = chunk.note_string(ChunkString::Arguments, cursor)?;
                self.arguments = chunk.texts.last().filter(|_| has_text).map(|(_, span)| *span);
            }
            _ => skip_value(cursor)?,
        }
        Ok(())
    }
}
