//! The reader of the events of a Responses stream, and of an answer that is one response.
//!
//! Types: openai-python, 2026-08-21. A tool is in flight from `response.output_item.added` to its end: `.done`, the
//! `.completed` or `.failed` of its own kind, or the item with its output, if the output is an item of its own.
#![cfg_attr(
    not(test),
    warn(clippy::indexing_slicing, clippy::string_slice, clippy::arithmetic_side_effects)
)]

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{
            self, ENOUGH, EmittedCall, Facts, FaultFields, LISTED_MAX, Phase, Seen, ServerTool, Usage, count, inside,
            items, kept, said, skip, walk,
        },
        json::Cursor,
    },
};

/// Known final states, and the reasons of `incomplete`.
pub(crate) const STOPS: [&str; 6] = [
    "completed",
    "failed",
    "incomplete",
    "cancelled",
    "max_output_tokens",
    "content_filter",
];

/// Returns `true` if an event is a piece of text that changes no fact.
pub(crate) fn is_delta(event: &[u8], facts: &Facts) -> bool {
    // Only the provider's own spelling of both lines is recognized. Any other event is read in full.
    let Some(rest) = event.strip_prefix(b"event: ") else {
        return false;
    };
    let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (name, data) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    let typed = data.strip_prefix(b"\ndata: {\"type\":\"");
    let same = typed.and_then(|data| data.strip_prefix(name));
    same.is_some_and(|data| data.starts_with(b"\",")) && is_plain_delta(name, facts)
}

/// Returns `true` if events of this type change no fact.
fn is_plain_delta(kind: &[u8], facts: &Facts) -> bool {
    // The first delta of reasoning opens its phase.
    kind.ends_with(b".delta") && (facts.reasoning == Phase::Open || !kind.starts_with(REASONING))
}

/// The beginning of the types of reasoning events.
const REASONING: &[u8] = b"response.reasoning";

/// The members of an event that facts come from.
#[derive(Default)]
struct Top<'a> {
    kind: Text<'a>,
    index: Option<u64>,
    item_id: Text<'a>,
    item: Item<'a>,
    response: Response<'a>,
    error: FaultFields<'a>,
}

/// Reads the data of one event called `name`.
pub(crate) fn read(name: &[u8], data: &[u8], facts: &mut Facts) -> Seen {
    let mut top = Top::default();
    walk(data, |cursor, key| match key {
        b"type" => {
            top.kind = cursor.text()?;
            if is_plain_delta(&top.kind, facts) {
                ENOUGH
            } else {
                Ok(())
            }
        }
        b"output_index" => cursor.number().map(|index| top.index = index),
        b"item_id" => cursor.text().map(|id| top.item_id = id),
        b"item" => inside(cursor, |cursor, key| top.item.take(key, cursor)),
        b"response" => inside(cursor, |cursor, key| top.response.take(key, cursor)),
        b"error" => top.error.take(cursor),
        b"code" => top.error.member(key, cursor),
        // The answer is one response and no stream.
        b"output" => items(cursor, |cursor| {
            let mut item = Item::default();
            let read = inside(cursor, |cursor, key| item.take(key, cursor));
            item.whole(facts);
            facts.begun = true;
            read
        }),
        _ => top.response.take(key, cursor),
    });
    let kind = if top.kind.is_empty() { name } else { &top.kind };
    top.note(kind, facts)
}

impl Top<'_> {
    /// Notes the event of type `kind`.
    fn note(&self, kind: &[u8], facts: &mut Facts) -> Seen {
        if kind.starts_with(b"response.") {
            self.response.name(facts);
        }
        match kind {
            b"response.queued" => {
                facts.queued = true;
                return Seen::Heartbeat;
            }
            b"keepalive" | b"response.in_progress" => return Seen::Heartbeat,
            b"response.output_item.added" => self.item.added(self.index, facts),
            b"response.output_item.done" => self.item.done(self.index, facts),
            b"response.completed" | b"response.failed" | b"response.incomplete" | b"response.cancelled" => {
                self.response.note(facts);
                facts.terminal = true;
                // Compatible servers may leave out the response, or its status.
                if facts.stop.is_none() {
                    facts.stop = kind.strip_prefix(b"response.").and_then(said);
                }
            }
            b"error" => (facts.error, facts.terminal) = (Some(self.error.fault()), true),
            // Without a type this is a whole response.
            b"" => self.response.whole(facts),
            _ if kind.starts_with(REASONING) && kind.ends_with(b".delta") => facts.reasoning = Phase::Open,
            _ if kind.ends_with(b"_call.completed")
                || kind.ends_with(b".failed")
                || kind.ends_with(b"_tools.completed") =>
            {
                let id = kept(&self.item_id);
                facts.server_tools.end(|tool| is_place(tool, self.index, &id));
            }
            _ => {}
        }
        facts.begun |= begins(kind);
        Seen::Progress
    }
}

/// Returns `true` if an event of this type is output or follows output. A failed response may have had none.
fn begins(kind: &[u8]) -> bool {
    kind.strip_prefix(b"response.")
        .is_some_and(|kind| !matches!(kind, b"created" | b"queued" | b"in_progress" | b"failed" | b"cancelled"))
}

/// Returns `true` if a tool has this index or this id.
fn is_place(tool: &ServerTool, index: Option<u64>, id: &str) -> bool {
    (index.is_some() && tool.index == index) || (!id.is_empty() && *tool.id == *id)
}

/// The members of a response that facts come from.
#[derive(Default)]
struct Response<'a> {
    id: Text<'a>,
    model: Text<'a>,
    object: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
    error: FaultFields<'a>,
    usage: Option<Usage>,
}

impl<'a> Response<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"id" => self.id = cursor.text()?,
            b"model" => self.model = cursor.text()?,
            b"object" => self.object = cursor.text()?,
            b"status" => self.status = cursor.text()?,
            b"error" => self.error.take(cursor)?,
            b"incomplete_details" => inside(cursor, |cursor, key| match key {
                b"reason" => cursor.text().map(|reason| self.reason = reason),
                _ => skip(cursor),
            })?,
            b"usage" => self.usage = usage(cursor)?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    /// Notes the id and the model.
    fn name(&self, facts: &mut Facts) {
        facts::name(facts, &self.id);
        facts.model = facts.model.take().or_else(|| said(&self.model));
    }

    /// Notes the end of the response.
    fn note(&self, facts: &mut Facts) {
        // The reason of `incomplete` is more precise than the status.
        facts.stop = said(&self.reason).or_else(|| said(&self.status));
        facts.usage = self.usage.unwrap_or(facts.usage);
        if self.error.is_seen() {
            facts.error = Some(self.error.fault());
        }
    }

    /// Notes an answer that is one response, or a history from `/responses/compact`.
    fn whole(&self, facts: &mut Facts) {
        match self.object.as_ref() {
            b"response" => {
                self.note(facts);
                self.name(facts);
                // A background response is returned before it has run.
                facts.terminal = !matches!(self.status.as_ref(), b"queued" | b"in_progress");
                facts.queued = *self.status == *b"queued";
                facts.begun |= matches!(self.status.as_ref(), b"completed" | b"incomplete");
            }
            b"response.compaction" => {
                self.note(facts);
                (facts.compaction, facts.terminal, facts.begun) = (Phase::Over, true, true);
            }
            _ => {}
        }
    }
}

fn usage(cursor: &mut Cursor<'_>) -> Result<Option<Usage>, Unreadable> {
    let (mut usage, mut input, mut some) = (Usage::default(), 0, false);
    inside(cursor, |cursor, key| {
        some = true;
        match key {
            b"input_tokens" => count(&mut input, cursor),
            b"output_tokens" => count(&mut usage.output, cursor),
            b"input_tokens_details" => inside(cursor, |cursor, key| match key {
                b"cached_tokens" => count(&mut usage.cache_read, cursor),
                _ => skip(cursor),
            }),
            b"output_tokens_details" => inside(cursor, |cursor, key| match key {
                b"reasoning_tokens" => count(&mut usage.reasoning, cursor),
                _ => skip(cursor),
            }),
            _ => skip(cursor),
        }
    })?;
    // The provider counts cached tokens as input tokens too.
    usage.input = input.saturating_sub(usage.cache_read);
    Ok(some.then_some(usage))
}

/// The members of an item that facts come from.
#[derive(Default)]
struct Item<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    name: Text<'a>,
    execution: Text<'a>,
    /// The `type` of the environment.
    environment: Text<'a>,
    /// The `type` of the caller.
    caller: Text<'a>,
}

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// A call that the client answers.
    Call,
    /// A tool of the provider whose item contains its output.
    Server,
    /// A tool of the provider whose output is an item of its own.
    ServerApart,
    /// The output of such a tool.
    ServerOutput,
    /// Reasoning of the model.
    Reasoning,
    /// A compaction of the history.
    Compaction,
    /// Any other item.
    Other,
}

impl<'a> Item<'a> {
    fn take(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => self.kind = cursor.text()?,
            b"id" => self.id = cursor.text()?,
            b"call_id" => self.call_id = cursor.text()?,
            b"name" => self.name = cursor.text()?,
            b"execution" => self.execution = cursor.text()?,
            b"caller" => inside(cursor, |cursor, key| match key {
                b"type" => cursor.text().map(|kind| self.caller = kind),
                _ => skip(cursor),
            })?,
            b"environment" => inside(cursor, |cursor, key| match key {
                b"type" => cursor.text().map(|kind| self.environment = kind),
                _ => skip(cursor),
            })?,
            _ => skip(cursor)?,
        }
        Ok(())
    }

    fn role(&self) -> Role {
        match self.kind.as_ref() {
            b"shell_call" if self.environment.starts_with(b"container") => Role::ServerApart,
            b"program" => Role::ServerApart,
            // A client cannot answer a search without a call id.
            b"tool_search_call" if *self.execution == *b"server" || self.call_id.is_empty() => Role::Server,
            b"function_call" | b"custom_tool_call" | b"local_shell_call" | b"apply_patch_call" | b"computer_call"
            | b"shell_call" | b"tool_search_call" => Role::Call,
            b"shell_call_output" | b"program_output" => Role::ServerOutput,
            b"reasoning" => Role::Reasoning,
            b"compaction" | b"compaction_summary" => Role::Compaction,
            b"mcp_list_tools" => Role::Server,
            // New kinds appear. Routers mark their own with a colon (`openrouter:shell`).
            kind if kind.ends_with(b"_call") || kind.contains(&b':') => Role::Server,
            _ => Role::Other,
        }
    }

    /// Returns the id that the output of the call names.
    fn answer_id(&self) -> &[u8] {
        if self.call_id.is_empty() {
            &self.id
        } else {
            &self.call_id
        }
    }

    fn tool(&self, id: &[u8], index: Option<u64>) -> ServerTool {
        ServerTool {
            id: kept(id),
            name: said(&self.name).unwrap_or_else(|| kept(&self.kind)),
            index,
        }
    }

    /// Notes an item that was added.
    fn added(&self, index: Option<u64>, facts: &mut Facts) {
        match self.role() {
            Role::Call => facts.calls.note(EmittedCall {
                id: kept(self.answer_id()),
                name: said(&self.name).unwrap_or_else(|| kept(&self.kind)),
                // A program at the provider may call too, and waits for the result.
                by_code: !matches!(self.caller.as_ref(), b"" | b"direct"),
                place: index.map(|index| (0, index)),
            }),
            Role::Server => facts.server_tools.start(self.tool(&self.id, index)),
            Role::ServerApart => facts.server_tools.start(self.tool(self.answer_id(), None)),
            Role::Reasoning => facts.reasoning = Phase::Open,
            Role::Compaction => facts.compaction = Phase::Open,
            Role::ServerOutput | Role::Other => {}
        }
    }

    /// Notes an item of an answer that is no stream.
    fn whole(&self, facts: &mut Facts) {
        match self.role() {
            // The item already contains its output, so the tool is not in flight.
            Role::Server => facts.server_tools.started = facts.server_tools.started.saturating_add(1),
            Role::Call | Role::ServerApart => self.added(None, facts),
            _ => self.done(None, facts),
        }
    }

    /// Notes an item that is complete.
    fn done(&self, index: Option<u64>, facts: &mut Facts) {
        match self.role() {
            // Adds members that the first event lacked, or a call without a first event. A full list stays as it is, or
            // calls beyond it would be counted twice.
            Role::Call if facts.calls.list.len() < LISTED_MAX => self.added(index, facts),
            Role::Server => {
                let id = kept(&self.id);
                facts.server_tools.end(|tool| is_place(tool, index, &id));
            }
            Role::ServerOutput => {
                let id = kept(self.answer_id());
                facts.server_tools.end(|tool| tool.id == id);
            }
            Role::Reasoning => facts.reasoning = Phase::Over,
            Role::Compaction => facts.compaction = Phase::Over,
            Role::Call | Role::ServerApart | Role::Other => {}
        }
    }
}
