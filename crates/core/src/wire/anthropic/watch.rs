//! The reader of the events of a Messages stream, and of an answer that is one message.
//!
//! Types: anthropic-sdk-python, 2026-08-07. The start event of a block contains everything but its content.

use std::fmt;

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        anthropic::write::write_thinking,
        facts::{
            self, AnswerErrorFields, CARRIED_BYTES_MAX, CallInput, CarriedCall, END_WALK, EmittedCall, EventActivity,
            Facts, OutputPhase, ServerTool, bounded_text, non_empty_text, read_count, read_elements, read_member_text,
            read_members, read_object, skip_value,
        },
        json::Cursor,
    },
};

/// The beginning of events that change no fact.
pub(crate) const TEXT_DELTA_START: &[u8] = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",";

/// Known stop reasons.
pub(crate) const STOP_REASONS: [&str; 8] = [
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "compaction",
    "refusal",
    "model_context_window_exceeded",
];

/// The state between events: the indices of open blocks.
#[derive(Clone, Debug, Default)]
pub(crate) struct AnthropicEventReader {
    reasoning_at: Option<u64>,
    compaction_at: Option<u64>,
    /// The index of a call's block whose arguments are noted.
    open_call: Option<u64>,
    /// The same of the call to which carried reasoning belongs.
    carried_call: Option<u64>,
    /// The open block of thinking, if reasoning is noted.
    thinking: Option<OpenThinking>,
}

/// A block of thinking whose pieces still come.
#[derive(Clone, Default)]
struct OpenThinking {
    index: Option<u64>,
    text: Vec<u8>,
    signature: Vec<u8>,
}

impl fmt::Debug for OpenThinking {
    // It is content, which never reaches a log.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenThinking({} bytes)", self.text.len())
    }
}

impl OpenThinking {
    /// Adds pieces. Returns `false` if the block is too long to be noted.
    fn add_pieces(&mut self, text: &[u8], signature: &[u8]) -> bool {
        self.text.extend_from_slice(text);
        self.signature.extend_from_slice(signature);
        self.text.len().saturating_add(self.signature.len()) <= CARRIED_BYTES_MAX
    }

    /// Notes the block, which has ended.
    fn note_end(self, facts: &mut Facts) {
        match (String::from_utf8(self.text), String::from_utf8(self.signature)) {
            (Ok(text), Ok(signature)) => facts.carried.add_thinking_block(&write_thinking(&text, &signature)),
            // A lone surrogate cannot be written again in the same way, and a part of the thinking must not be put back.
            _ => facts.carried.give_up(),
        }
    }
}

/// The members of an event that facts come from.
#[derive(Default)]
struct AnthropicEvent<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    index: Option<u64>,
    /// A piece of the arguments of a call.
    partial_json: Text<'a>,
    /// A piece of thinking.
    thinking: Text<'a>,
    /// A piece of the signature of thinking.
    signature: Text<'a>,
    block: StartedBlock<'a>,
    error: AnswerErrorFields<'a>,
}

impl AnthropicEventReader {
    /// Reads the data of one event called `name`.
    pub(crate) fn read_event(&mut self, name: &[u8], data: &[u8], facts: &mut Facts) -> EventActivity {
        let mut top = AnthropicEvent::default();
        let reads_deltas = !self.skips_deltas();
        read_object(data, |cursor, key| match key {
            b"type" => {
                top.kind = cursor.read_text()?;
                // The text of a delta may be long, and is of no interest.
                if *top.kind == *b"content_block_delta" && !reads_deltas {
                    END_WALK
                } else {
                    Ok(())
                }
            }
            b"index" => cursor.read_number().map(|index| top.index = index),
            b"content_block" => read_members(cursor, |cursor, key| top.block.read_member(key, cursor)),
            b"id" => cursor.read_text().map(|id| top.id = id),
            b"message" => read_members(cursor, |cursor, key| match key {
                b"id" => cursor.read_text().map(|id| facts::note_answer_id(facts, &id)),
                _ => read_message_member(key, cursor, facts),
            }),
            b"delta" => read_members(cursor, |cursor, key| match key {
                b"partial_json" if reads_deltas => cursor.read_text().map(|piece| top.partial_json = piece),
                b"thinking" if reads_deltas => cursor.read_text().map(|piece| top.thinking = piece),
                b"signature" if reads_deltas => cursor.read_text().map(|piece| top.signature = piece),
                _ => read_message_member(key, cursor, facts),
            }),
            b"error" => top.error.read_error(cursor),
            _ => read_message_member(key, cursor, facts),
        });
        // The data of an event need not repeat its type.
        let kind = if top.kind.is_empty() { name } else { &top.kind };
        match kind {
            b"ping" => return EventActivity::Heartbeat,
            b"content_block_start" => self.start_block(&top, facts),
            b"content_block_delta" => {
                self.add_input(&top, facts);
                self.add_thinking(&top, facts);
            }
            b"content_block_stop" => self.stop_block(top.index, facts),
            b"message_stop" => {
                self.end_thinking(facts);
                facts.terminal = true;
            }
            // The answer is one message and no stream.
            b"message" => {
                facts::note_answer_id(facts, &top.id);
                facts.terminal = true;
            }
            b"error" => (facts.error, facts.terminal) = (Some(top.error.to_answer_error()), true),
            // Some servers name no type.
            b"" if top.error.is_error() => (facts.error, facts.terminal) = (Some(top.error.to_answer_error()), true),
            _ => {}
        }
        facts.has_output |= kind.starts_with(b"content_block_") || kind == b"message_delta" || facts.stop.is_some();
        EventActivity::Progress
    }

    /// Returns `true` if no block is open whose deltas are noted.
    pub(crate) const fn skips_deltas(&self) -> bool {
        self.open_call.is_none() && self.carried_call.is_none() && self.thinking.is_none()
    }

    /// Adds pieces to the open block of thinking.
    fn add_thinking(&mut self, top: &AnthropicEvent<'_>, facts: &mut Facts) {
        let open = self.thinking.as_mut().filter(|open| open.index == top.index);
        if open.is_some_and(|open| !open.add_pieces(&top.thinking, &top.signature)) {
            self.thinking = None;
            facts.carried.give_up();
        }
    }

    /// Ends the open block of thinking, if there is one.
    fn end_thinking(&mut self, facts: &mut Facts) {
        if let Some(open) = self.thinking.take() {
            open.note_end(facts);
        }
    }

    /// Adds a piece to the arguments of the open call.
    fn add_input(&self, top: &AnthropicEvent<'_>, facts: &mut Facts) {
        if self.open_call.is_some()
            && self.open_call == top.index
            && let Some(call) = facts.calls.list.last_mut()
        {
            // The block began with an empty object, which the first piece replaces.
            if let (CallInput::Json(_), false) = (&call.input, top.partial_json.is_empty()) {
                call.input.begin_text();
            }
            call.input.add_text(&top.partial_json);
        }
        if self.carried_call.is_some() && self.carried_call == top.index {
            facts.carried.add_call(CarriedCall {
                index: top.index,
                arguments: top.partial_json.to_vec(),
                ..CarriedCall::default()
            });
        }
    }

    /// Notes a block that starts, and remembers its index if it stays open.
    fn start_block(&mut self, top: &AnthropicEvent<'_>, facts: &mut Facts) {
        // Some servers do not end a block.
        self.end_thinking(facts);
        let (listed, had_call) = (facts.calls.list.len(), facts.carried.call().is_some());
        self.start_phase(top, facts);
        let is_new_call = facts.calls.notes_inputs && facts.calls.list.len() > listed;
        self.open_call = top.index.filter(|_| is_new_call);
        let is_first_call = !had_call && facts.carried.call().is_some();
        self.carried_call = top.index.filter(|_| is_first_call);
        self.thinking = top.block.thinking_of(facts).map(|open| OpenThinking {
            index: top.index,
            ..open
        });
    }

    /// Notes a block that starts, and remembers the index of a phase that it keeps open.
    fn start_phase(&mut self, top: &AnthropicEvent<'_>, facts: &mut Facts) {
        match top.block.note_block(top.index, facts) {
            Some(OpenBlock::Reasoning) => self.reasoning_at = top.index,
            Some(OpenBlock::Compaction) => self.compaction_at = top.index,
            None => {}
        }
    }

    /// Notes the end of the block at `index`.
    fn stop_block(&mut self, index: Option<u64>, facts: &mut Facts) {
        self.open_call = self.open_call.filter(|at| index != Some(*at));
        self.carried_call = self.carried_call.filter(|at| index != Some(*at));
        if self.thinking.as_ref().is_some_and(|open| open.index == index) {
            self.end_thinking(facts);
        }
        for (phase, at) in [
            (&mut facts.reasoning, self.reasoning_at),
            (&mut facts.compaction, self.compaction_at),
        ] {
            if at == index {
                phase.end_open();
            }
        }
    }
}

/// Reads a member of a message, or of a message delta.
fn read_message_member(key: &[u8], cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    match key {
        b"model" => facts::note_model(facts, cursor),
        // `container {id, expires_at}`, in the message or in its last delta (Code execution tool, 2026-11).
        b"container" => {
            let mut id = Text::default();
            let read = read_member_text(&mut id, b"id", cursor);
            facts.carried.note_container(&id);
            read
        }
        b"stop_reason" => {
            let stop = cursor.read_text()?;
            // A null must not remove a reason that came before.
            facts.stop = non_empty_text(&stop).or_else(|| facts.stop.take());
            Ok(())
        }
        b"usage" => read_members(cursor, |cursor, key| match key {
            b"input_tokens" => read_count(&mut facts.usage.input, cursor),
            b"cache_read_input_tokens" => read_count(&mut facts.usage.cache_read, cursor),
            b"cache_creation_input_tokens" => read_count(&mut facts.usage.cache_write, cursor),
            b"output_tokens" => read_count(&mut facts.usage.output, cursor),
            _ => skip_value(cursor),
        }),
        // The blocks of a complete message.
        b"content" => read_elements(cursor, |cursor| {
            let mut block = StartedBlock::default();
            let read = read_members(cursor, |cursor, key| block.read_member(key, cursor));
            if let Some(thinking) = block.thinking_of(facts) {
                thinking.note_end(facts);
            }
            match block.note_block(None, facts) {
                Some(OpenBlock::Reasoning) => facts.reasoning = OutputPhase::Over,
                Some(OpenBlock::Compaction) => facts.compaction = OutputPhase::Over,
                None => {}
            }
            read
        }),
        _ => skip_value(cursor),
    }
}

/// The phase that a block keeps open until it stops.
enum OpenBlock {
    Reasoning,
    Compaction,
}

/// The members of a block that facts come from.
#[derive(Default)]
struct StartedBlock<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    name: Text<'a>,
    /// The `tool_use_id`.
    tool_use_id: Text<'a>,
    /// The `input` as JSON.
    input: &'a [u8],
    thinking: Text<'a>,
    signature: Text<'a>,
    called_by_code: bool,
}

impl<'a> StartedBlock<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => self.kind = cursor.read_text()?,
            b"id" => self.id = cursor.read_text()?,
            b"name" => self.name = cursor.read_text()?,
            b"tool_use_id" => self.tool_use_id = cursor.read_text()?,
            b"input" => self.input = cursor.skip_bytes()?,
            b"thinking" => self.thinking = cursor.read_text()?,
            b"signature" => self.signature = cursor.read_text()?,
            // `{"type":"direct"}` is an ordinary call. Any other caller is code at the provider.
            b"caller" => read_members(cursor, |cursor, key| {
                self.called_by_code |= key == b"tool_id";
                skip_value(cursor)
            })?,
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    /// Returns the block if it is one of thinking, and reasoning is noted.
    fn thinking_of(&self, facts: &Facts) -> Option<OpenThinking> {
        let is_noted = *self.kind == *b"thinking" && facts.carried.wants_reasoning();
        is_noted.then(|| OpenThinking {
            index: None,
            text: self.thinking.to_vec(),
            signature: self.signature.to_vec(),
        })
    }

    /// Notes the values that belong to the call of this block, which is the block at `index` of a stream.
    fn note_carried(&self, index: Option<u64>, facts: &mut Facts) {
        let call = CarriedCall {
            id: self.id.to_vec(),
            name: self.name.to_vec(),
            ..CarriedCall::default()
        };
        if facts.carried.wants_reasoning() {
            // A stream begins the input with an empty object, which the first piece replaces.
            let is_empty = self.input.iter().all(|byte| b"{} \t\r\n".contains(byte));
            facts.carried.add_call(CarriedCall {
                arguments: if is_empty { Vec::new() } else { self.input.to_vec() },
                index,
                ..call.clone()
            });
        }
        // Only calls of code need the container, and ids identify such a call by themselves.
        if self.called_by_code && facts.carried.is_wanted() {
            facts.carried.add_code_call(call);
        }
    }

    /// Notes the block at `index` of a stream. Returns the phase that it keeps open.
    fn note_block(&self, index: Option<u64>, facts: &mut Facts) -> Option<OpenBlock> {
        match self.kind.as_ref() {
            b"tool_use" => {
                self.note_carried(index, facts);
                let mut input = CallInput::default();
                if facts.calls.notes_inputs {
                    input.set_json(self.input);
                }
                facts.calls.push_call(EmittedCall {
                    id: bounded_text(&self.id),
                    name: bounded_text(&self.name),
                    called_by_code: self.called_by_code,
                    input,
                    place: None,
                });
            }
            b"thinking" | b"redacted_thinking" => {
                // A part of the reasoning must not be put back, and this part is not noted.
                if *self.kind == *b"redacted_thinking" && facts.carried.wants_reasoning() {
                    facts.carried.give_up();
                }
                facts.reasoning = OutputPhase::Open;
                return Some(OpenBlock::Reasoning);
            }
            b"compaction" => {
                facts.compaction = OutputPhase::Open;
                return Some(OpenBlock::Compaction);
            }
            // New kinds of server tools appear, so a suffix is matched and no closed list.
            kind if kind.ends_with(b"_tool_use") => facts.server_tools.start_tool(ServerTool {
                id: bounded_text(&self.id),
                name: non_empty_text(&self.name).unwrap_or_else(|| bounded_text(kind)),
                index: None,
            }),
            kind if kind.ends_with(b"_tool_result") => {
                let id = bounded_text(&self.tool_use_id);
                facts.server_tools.end_tool(|tool| tool.id == id);
            }
            _ => {}
        }
        None
    }
}
