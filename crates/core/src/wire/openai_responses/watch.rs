//! The reader of the events of a Responses stream, and of an answer that is one response.
//!
//! Types: openai-python, 2026-08-21. A tool is in flight from `response.output_item.added` to its end: `.done`, the
//! `.completed` or `.failed` of its own kind, or the item with its output, if the output is an item of its own.

use crate::{
    conversation::Text,
    wire::{
        Unreadable,
        facts::{
            self, AnswerErrorFields, CallInput, END_WALK, EmittedCall, EventActivity, Facts, LISTED_MAX, OutputPhase,
            ServerTool, Usage, bounded_text, non_empty_text, read_elements, read_member_text, read_members,
            read_object, read_openai_usage, skip_value,
        },
        json::Cursor,
    },
};

/// Known final states, and the reasons of `incomplete`.
pub(crate) const STOP_REASONS: [&str; 6] = [
    "completed",
    "failed",
    "incomplete",
    "cancelled",
    "max_output_tokens",
    "content_filter",
];

/// Returns `true` if an event is a piece of text that changes no fact.
pub(crate) fn is_text_delta(event: &[u8], facts: &Facts) -> bool {
    // Only the provider's own spelling of both lines is recognized. Any other event is read in full.
    let Some(rest) = event.strip_prefix(b"event: ") else {
        return false;
    };
    let length = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
    let (name, data) = rest.split_at_checked(length).unwrap_or((rest, &[]));
    let typed = data.strip_prefix(b"\ndata: {\"type\":\"");
    let same = typed.and_then(|data| data.strip_prefix(name));
    same.is_some_and(|data| data.starts_with(b"\",")) && is_delta_type(name, facts)
}

/// Returns `true` if events of this type change no fact.
fn is_delta_type(kind: &[u8], facts: &Facts) -> bool {
    // The first delta of reasoning opens its phase.
    kind.ends_with(b".delta") && (facts.reasoning == OutputPhase::Open || !kind.starts_with(REASONING_START))
}

/// The beginning of the types of reasoning events.
const REASONING_START: &[u8] = b"response.reasoning";

/// The members of an event that facts come from.
#[derive(Default)]
struct ResponsesEvent<'a> {
    kind: Text<'a>,
    index: Option<u64>,
    item_id: Text<'a>,
    item: ItemMembers<'a>,
    /// The bytes of the item. Empty unless the items are noted.
    item_bytes: &'a [u8],
    response: ResponseMembers<'a>,
    error: AnswerErrorFields<'a>,
}

/// Reads the data of one event called `name`.
pub(crate) fn read_event(name: &[u8], data: &[u8], facts: &mut Facts) -> EventActivity {
    let mut top = ResponsesEvent::default();
    read_object(data, |cursor, key| match key {
        b"type" => {
            top.kind = cursor.read_text()?;
            if is_delta_type(&top.kind, facts) {
                END_WALK
            } else {
                Ok(())
            }
        }
        b"output_index" => cursor.read_number().map(|index| top.index = index),
        b"item_id" => cursor.read_text().map(|id| top.item_id = id),
        b"item" => {
            if facts.items.is_wanted() {
                top.item_bytes = cursor.clone().skip_bytes()?;
            }
            read_members(cursor, |cursor, key| top.item.read_member(key, cursor))
        }
        b"response" => read_members(cursor, |cursor, key| top.response.read_member(key, cursor)),
        b"error" => top.error.read_error(cursor),
        b"code" => top.error.read_member(key, cursor),
        // The answer is one response and no stream.
        b"output" => read_elements(cursor, |cursor| {
            let mut item = ItemMembers::default();
            if facts.items.is_wanted() {
                facts.items.add_item(None, cursor.clone().skip_bytes()?);
            }
            let read = read_members(cursor, |cursor, key| item.read_member(key, cursor));
            item.note_complete(facts);
            facts.has_output = true;
            read
        }),
        _ => top.response.read_member(key, cursor),
    });
    let kind = if top.kind.is_empty() { name } else { &top.kind };
    top.note_event(kind, facts)
}

impl ResponsesEvent<'_> {
    /// Notes the event of type `kind`.
    fn note_event(&self, kind: &[u8], facts: &mut Facts) -> EventActivity {
        if kind.starts_with(b"response.") {
            self.response.note_ids(facts);
        }
        match kind {
            b"response.queued" => {
                facts.queued = true;
                return EventActivity::Status;
            }
            b"response.in_progress" => return EventActivity::Status,
            b"keepalive" => return EventActivity::Heartbeat,
            b"response.output_item.added" => self.item.note_added(self.index, facts),
            b"response.output_item.done" => {
                self.item.note_done(self.index, facts);
                facts.items.add_item(self.index, self.item_bytes);
            }
            b"response.completed" | b"response.failed" | b"response.incomplete" | b"response.cancelled" => {
                self.response.note_end(facts);
                self.response.note_items(facts);
                facts.terminal = true;
                // Compatible servers may leave out the response, or its status.
                if facts.stop.is_none() {
                    facts.stop = kind.strip_prefix(b"response.").and_then(non_empty_text);
                }
            }
            b"error" => (facts.error, facts.terminal) = (Some(self.error.to_answer_error()), true),
            // Some servers name no type, and a failed response has its error beside its other members.
            b"" if self.error.is_error() => {
                self.response.note_response(facts);
                (facts.error, facts.terminal) = (Some(self.error.to_answer_error()), true);
            }
            // Without a type this is a whole response.
            b"" => self.response.note_response(facts),
            _ if kind.starts_with(REASONING_START) && kind.ends_with(b".delta") => facts.reasoning = OutputPhase::Open,
            _ if kind.ends_with(b"_call.completed")
                || kind.ends_with(b".failed")
                || kind.ends_with(b"_tools.completed") =>
            {
                let id = bounded_text(&self.item_id);
                facts.server_tools.end_tool(|tool| is_same_tool(tool, self.index, &id));
            }
            _ => {}
        }
        facts.has_output |= is_output_type(kind);
        EventActivity::Progress
    }
}

/// Returns `true` if an event of this type is output or follows output. A failed response may have had none.
fn is_output_type(kind: &[u8]) -> bool {
    kind.strip_prefix(b"response.")
        .is_some_and(|kind| !matches!(kind, b"created" | b"queued" | b"in_progress" | b"failed" | b"cancelled"))
}

/// Returns `true` if a tool has this index or this id.
fn is_same_tool(tool: &ServerTool, index: Option<u64>, id: &str) -> bool {
    (index.is_some() && tool.index == index) || (!id.is_empty() && *tool.id == *id)
}

/// The members of a response that facts come from.
#[derive(Default)]
struct ResponseMembers<'a> {
    id: Text<'a>,
    model: Text<'a>,
    object: Text<'a>,
    status: Text<'a>,
    reason: Text<'a>,
    error: AnswerErrorFields<'a>,
    usage: Option<Usage>,
    /// The list of items at the end of a stream, which repeats them.
    output: &'a [u8],
}

impl<'a> ResponseMembers<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"id" => self.id = cursor.read_text()?,
            b"model" => self.model = cursor.read_text()?,
            b"object" => self.object = cursor.read_text()?,
            b"status" => self.status = cursor.read_text()?,
            b"error" => self.error.read_error(cursor)?,
            b"incomplete_details" => read_member_text(&mut self.reason, b"reason", cursor)?,
            b"usage" => {
                let (usage, read) = read_openai_usage(cursor, [b"input", b"output"]);
                read?;
                self.usage = usage;
            }
            b"output" => self.output = cursor.skip_bytes()?,
            _ => skip_value(cursor)?,
        }
        Ok(())
    }

    /// Notes the items at the end of a stream, if no event before had them.
    fn note_items(&self, facts: &mut Facts) {
        if !facts.items.is_wanted() || self.output.is_empty() {
            return;
        }
        let (known, mut count) = (facts.items.count(), 0_usize);
        let walked = read_elements(&mut Cursor::new(self.output, 0), |cursor| {
            let item = cursor.skip_bytes()?;
            count = count.saturating_add(1);
            if known == 0 {
                facts.items.add_item(None, item);
            }
            Ok(())
        });
        // Some servers repeat nothing. Another number of items means that one was missed.
        if walked.is_err() || (known > 0 && count > 0 && known != count) {
            facts.items.give_up();
        }
    }

    /// Notes the id and the model.
    fn note_ids(&self, facts: &mut Facts) {
        facts::note_answer_id(facts, &self.id);
        facts.model = facts.model.take().or_else(|| non_empty_text(&self.model));
    }

    /// Notes the end of the response.
    fn note_end(&self, facts: &mut Facts) {
        // The reason of `incomplete` is more precise than the status.
        facts.stop = non_empty_text(&self.reason).or_else(|| non_empty_text(&self.status));
        facts.usage = self.usage.unwrap_or(facts.usage);
        if self.error.is_error() {
            facts.error = Some(self.error.to_answer_error());
        }
    }

    /// Notes an answer that is one response, or a history from `/responses/compact`.
    fn note_response(&self, facts: &mut Facts) {
        match self.object.as_ref() {
            b"response" => {
                self.note_end(facts);
                self.note_ids(facts);
                // A background response is returned before it has run.
                facts.terminal = !matches!(self.status.as_ref(), b"queued" | b"in_progress");
                facts.queued = *self.status == *b"queued";
                facts.has_output |= matches!(self.status.as_ref(), b"completed" | b"incomplete");
            }
            b"response.compaction" => {
                self.note_end(facts);
                (facts.compaction, facts.terminal, facts.has_output) = (OutputPhase::Over, true, true);
            }
            _ => {}
        }
    }
}

/// The members of a call that are its arguments, in the order in which a request is read.
const INPUT_MEMBERS: [&str; 5] = ["arguments", "input", "action", "operation", "code"];

/// The members of an item that facts come from.
#[derive(Default)]
struct ItemMembers<'a> {
    kind: Text<'a>,
    id: Text<'a>,
    call_id: Text<'a>,
    name: Text<'a>,
    execution: Text<'a>,
    /// The `type` of the environment.
    environment: Text<'a>,
    /// The `type` of the caller.
    caller: Text<'a>,
    /// The arguments as JSON: the first of the members that a request is read by.
    input: [&'a [u8]; INPUT_MEMBERS.len()],
}

/// The kind of an item.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ItemRole {
    /// A call that the client answers.
    Call,
    /// A tool of the provider whose item contains its output.
    Server,
    /// A tool of the provider whose output is an item of its own.
    ServerWithOutputItem,
    /// The output of such a tool.
    ServerOutput,
    /// Reasoning of the model.
    Reasoning,
    /// A compaction of the history.
    Compaction,
    /// Any other item.
    Other,
}

impl<'a> ItemMembers<'a> {
    fn read_member(&mut self, key: &[u8], cursor: &mut Cursor<'a>) -> Result<(), Unreadable> {
        match key {
            b"type" => self.kind = cursor.read_text()?,
            b"id" => self.id = cursor.read_text()?,
            b"call_id" => self.call_id = cursor.read_text()?,
            b"name" => self.name = cursor.read_text()?,
            b"execution" => self.execution = cursor.read_text()?,
            b"caller" => read_member_text(&mut self.caller, b"type", cursor)?,
            b"environment" => read_member_text(&mut self.environment, b"type", cursor)?,
            _ => {
                let value = cursor.skip_bytes()?;
                let at = INPUT_MEMBERS.iter().position(|member| member.as_bytes() == key);
                if let Some(slot) = at.and_then(|at| self.input.get_mut(at)) {
                    *slot = value;
                }
            }
        }
        Ok(())
    }

    fn item_role(&self) -> ItemRole {
        match self.kind.as_ref() {
            b"shell_call" if self.environment.starts_with(b"container") => ItemRole::ServerWithOutputItem,
            b"program" => ItemRole::ServerWithOutputItem,
            // A client cannot answer a search without a call id.
            b"tool_search_call" if *self.execution == *b"server" || self.call_id.is_empty() => ItemRole::Server,
            b"function_call" | b"custom_tool_call" | b"local_shell_call" | b"apply_patch_call" | b"computer_call"
            | b"shell_call" | b"tool_search_call" => ItemRole::Call,
            b"shell_call_output" | b"program_output" => ItemRole::ServerOutput,
            b"reasoning" => ItemRole::Reasoning,
            b"compaction" | b"compaction_summary" => ItemRole::Compaction,
            b"mcp_list_tools" => ItemRole::Server,
            // New kinds appear. Routers mark their own with a colon (`openrouter:shell`).
            kind if kind.ends_with(b"_call") || kind.contains(&b':') => ItemRole::Server,
            _ => ItemRole::Other,
        }
    }

    /// Returns the id that the output of the call names.
    fn output_call_id(&self) -> &[u8] {
        if self.call_id.is_empty() {
            &self.id
        } else {
            &self.call_id
        }
    }

    fn server_tool(&self, id: &[u8], index: Option<u64>) -> ServerTool {
        ServerTool {
            id: bounded_text(id),
            name: non_empty_text(&self.name).unwrap_or_else(|| bounded_text(&self.kind)),
            index,
        }
    }

    /// Notes an item that was added.
    fn note_added(&self, index: Option<u64>, facts: &mut Facts) {
        match self.item_role() {
            ItemRole::Call => {
                let notes_inputs = facts.calls.notes_inputs;
                let known = facts.calls.merge_call(EmittedCall {
                    id: bounded_text(self.output_call_id()),
                    name: non_empty_text(&self.name).unwrap_or_else(|| bounded_text(&self.kind)),
                    // A program at the provider may call too, and waits for the result.
                    called_by_code: !matches!(self.caller.as_ref(), b"" | b"direct"),
                    input: CallInput::default(),
                    place: index.map(|index| (0, index)),
                });
                // The first event of a call has empty arguments. The last one has all of them.
                if let Some(known) = known.filter(|_| notes_inputs)
                    && let Some(input) = self.input.iter().find(|input| !input.is_empty())
                {
                    known.input.set_json(input);
                }
            }
            ItemRole::Server => facts.server_tools.start_tool(self.server_tool(&self.id, index)),
            ItemRole::ServerWithOutputItem => facts
                .server_tools
                .start_tool(self.server_tool(self.output_call_id(), None)),
            ItemRole::Reasoning => facts.reasoning = OutputPhase::Open,
            ItemRole::Compaction => facts.compaction = OutputPhase::Open,
            ItemRole::ServerOutput | ItemRole::Other => {}
        }
    }

    /// Notes an item of an answer that is no stream.
    fn note_complete(&self, facts: &mut Facts) {
        match self.item_role() {
            // The item already contains its output, so the tool is not in flight.
            ItemRole::Server => facts.server_tools.started = facts.server_tools.started.saturating_add(1),
            ItemRole::Call | ItemRole::ServerWithOutputItem => self.note_added(None, facts),
            _ => self.note_done(None, facts),
        }
    }

    /// Notes an item that is complete.
    fn note_done(&self, index: Option<u64>, facts: &mut Facts) {
        match self.item_role() {
            // Adds members that the first event lacked, or a call without a first event. A full list stays as it is, or
            // calls beyond it would be counted twice.
            ItemRole::Call if facts.calls.list.len() < LISTED_MAX => self.note_added(index, facts),
            ItemRole::Server => {
                let id = bounded_text(&self.id);
                facts.server_tools.end_tool(|tool| is_same_tool(tool, index, &id));
            }
            ItemRole::ServerOutput => {
                let id = bounded_text(self.output_call_id());
                facts.server_tools.end_tool(|tool| tool.id == id);
            }
            ItemRole::Reasoning => facts.reasoning = OutputPhase::Over,
            ItemRole::Compaction => facts.compaction = OutputPhase::Over,
            ItemRole::Call | ItemRole::ServerWithOutputItem | ItemRole::Other => {}
        }
    }
}
