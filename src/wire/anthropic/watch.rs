//! The reader of the events of a Messages stream, and of an answer that is one message.
//!
//! Types: anthropic-sdk-python, 2026-08-07. The start event of a block contains everything but its content.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{
            self, ENOUGH, EmittedCall, Facts, FaultFields, Phase, Seen, ServerTool, count, inside, items, kept, said,
            skip, walk,
        },
        json::Cursor,
    },
};

/// The beginning of events that change no fact.
pub(crate) const DELTA: &[u8] = b"event: content_block_delta\ndata: {\"type\":\"content_block_delta\",";

/// Known stop reasons.
pub(crate) const STOPS: [&str; 8] = [
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
pub(crate) struct Reader {
    reasoning_at: Option<u64>,
    compaction_at: Option<u64>,
}

/// The members of an event that facts come from.
#[derive(Default)]
struct Top<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    index: Option<u64>,
    block: Block<'a>,
    error: FaultFields<'a>,
}

impl Reader {
    /// Reads the data of one event called `name`.
    pub(crate) fn read(&mut self, name: &[u8], data: &[u8], facts: &mut Facts) -> Seen {
        let mut top = Top::default();
        walk(data, |cursor, key| match key {
            b"type" => {
                top.kind = cursor.text()?;
                // The text of a delta may be long, and is of no interest.
                if *top.kind == *b"content_block_delta" {
                    ENOUGH
                } else {
                    Ok(())
                }
            }
            b"index" => cursor.number().map(|index| top.index = index),
            b"content_block" => inside(cursor, |cursor, key| top.block.take(key, cursor)),
            b"id" => cursor.text().map(|id| top.id = id),
            b"message" => inside(cursor, |cursor, key| match key {
                b"id" => cursor.text().map(|id| facts::name(facts, &id)),
                _ => member(key, cursor, facts),
            }),
            b"delta" => inside(cursor, |cursor, key| member(key, cursor, facts)),
            b"error" => top.error.take(cursor),
            _ => member(key, cursor, facts),
        });
        // The data of an event need not repeat its type.
        let kind = if top.kind.is_empty() { name } else { &top.kind };
        match kind {
            b"ping" => return Seen::Heartbeat,
            b"content_block_start" => self.start(&top, facts),
            b"content_block_stop" => self.stop(top.index, facts),
            b"message_stop" => facts.terminal = true,
            // The answer is one message and no stream.
            b"message" => {
                facts::name(facts, &top.id);
                facts.terminal = true;
            }
            b"error" => (facts.error, facts.terminal) = (Some(top.error.fault()), true),
            _ => {}
        }
        facts.begun |= kind.starts_with(b"content_block_") || kind == b"message_delta" || facts.stop.is_some();
        Seen::Progress
    }

    /// Notes a block that starts, and remembers its index if it stays open.
    fn start(&mut self, top: &Top<'_>, facts: &mut Facts) {
        match top.block.note(facts) {
            Some(Held::Reasoning) => self.reasoning_at = top.index,
            Some(Held::Compaction) => self.compaction_at = top.index,
            None => {}
        }
    }

    /// Notes the end of the block at `index`.
    fn stop(&self, index: Option<u64>, facts: &mut Facts) {
        for (phase, at) in [
            (&mut facts.reasoning, self.reasoning_at),
            (&mut facts.compaction, self.compaction_at),
        ] {
            if *phase == Phase::Open && at == index {
                *phase = Phase::Over;
            }
        }
    }
}

/// Reads a member of a message, or of a message delta.
fn member(key: &[u8], cursor: &mut Cursor<'_>, facts: &mut Facts) -> Result<(), Unreadable> {
    match key {
        b"model" => facts::model(facts, cursor),
        b"stop_reason" => {
            let stop = cursor.text()?;
            // A null must not remove a reason that came before.
            facts.stop = said(&stop).or_else(|| facts.stop.take());
            Ok(())
        }
        b"usage" => inside(cursor, |cursor, key| match key {
            b"input_tokens" => count(&mut facts.usage.input, cursor),
            b"cache_read_input_tokens" => count(&mut facts.usage.cache_read, cursor),
            b"cache_creation_input_tokens" => count(&mut facts.usage.cache_write, cursor),
            b"output_tokens" => count(&mut facts.usage.output, cursor),
            _ => skip(cursor),
        }),
        // The blocks of a complete message.
        b"content" => items(cursor, |cursor| {
            let mut block = Block::default();
            let read = inside(cursor, |cursor, key| block.take(key, cursor));
            match block.note(facts) {
                Some(Held::Reasoning) => facts.reasoning = Phase::Over,
                Some(Held::Compaction) => facts.compaction = Phase::Over,
                None => {}
            }
            read
        }),
        _ => skip(cursor),
    }
}

/// The phase that a block keeps open until it stops.
enum Held {
    Reasoning,
    Compaction,
}

/// The members of a block that facts come from.
#[derive(Default)]
struct Block<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    name: Text<'a>,
    /// The `tool_use_id`.
    answers: Text<'a>,
    by_code: bool,
}

impl<'a> Block<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => self.kind = cursor.text()?,
            b"id" => self.id = cursor.text()?,
            b"name" => self.name = cursor.text()?,
            b"tool_use_id" => self.answers = cursor.text()?,
            // `{"type":"direct"}` is an ordinary call. Any other caller is code at the provider.
            b"caller" => inside(cursor, |cursor, key| {
                self.by_code |= key == b"tool_id";
                skip(cursor)
            })?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    /// Notes the block. Returns the phase that it keeps open.
    fn note(&self, facts: &mut Facts) -> Option<Held> {
        match self.kind.as_ref() {
            b"tool_use" => facts.calls.emit(EmittedCall {
                id: kept(&self.id),
                name: kept(&self.name),
                by_code: self.by_code,
                place: None,
            }),
            b"thinking" | b"redacted_thinking" => {
                facts.reasoning = Phase::Open;
                return Some(Held::Reasoning);
            }
            b"compaction" => {
                facts.compaction = Phase::Open;
                return Some(Held::Compaction);
            }
            // New kinds of server tools appear, so a suffix is matched and no closed list.
            kind if kind.ends_with(b"_tool_use") => facts.server_tools.start(ServerTool {
                id: kept(&self.id),
                name: said(&self.name).unwrap_or_else(|| kept(kind)),
                index: None,
            }),
            kind if kind.ends_with(b"_tool_result") => {
                let id = kept(&self.answers);
                facts.server_tools.end(|tool| tool.id == id);
            }
            _ => {}
        }
        None
    }
}
