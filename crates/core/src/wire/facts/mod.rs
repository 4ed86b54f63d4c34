//! Facts about an answer: counts, ids and names. The readers of all formats collect them while the answer passes.
//!
//! Content is not among them, apart from the event of an error, which is never shown.

mod answer_items;
mod call_input;
mod carried;
mod event_members;
mod event_pattern;

use std::fmt;

pub use self::answer_items::AnswerItems;
pub use self::call_input::CallInput;
pub use self::carried::{CARRIED_BYTES_MAX, CarriedCall, CarriedFacts};
pub(crate) use self::{
    event_members::{
        AnswerErrorFields, END_WALK, bounded_text, non_empty_text, note_answer_id, note_model, read_count,
        read_elements, read_member_text, read_members, read_object, read_openai_usage, skip_value,
    },
    event_pattern::EventPattern,
};
use crate::wire::Format;

/// Largest number of calls, and of server tools in flight, that are listed. More are only counted.
pub const LISTED_MAX: usize = 256;
/// Bytes that are stored of an id, a name, a stop reason or an error code. Ids that agree so far count as equal.
pub const TEXT_BYTES_MAX: usize = 128;

/// The stop label of an answer that ended with an error.
const END_ERROR: &str = "error";
/// The stop label of an answer without a marked end.
const END_NONE: &str = "none";
/// The stop label of an unknown stop reason.
const END_OTHER: &str = "other";

/// Everything that was noted about one answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Number of events, without heartbeats.
    pub events: u64,
    /// Number of events and comments that only show that the provider is alive.
    pub heartbeats: u64,
    /// Number of heartbeats since the last event.
    pub heartbeats_in_row: u64,
    /// Number of events that were read only up to [`EVENT_BYTES_MAX`](crate::wire::watch::EVENT_BYTES_MAX).
    pub truncated: u64,
    /// Tool calls that the client has to answer.
    pub calls: EmittedCalls,
    /// Tools that the provider runs itself.
    pub server_tools: ServerTools,
    /// Reasoning, if the format separates it from other output.
    pub reasoning: OutputPhase,
    /// Compaction of the history by the provider.
    pub compaction: OutputPhase,
    /// The stop reason, as the provider spells it.
    pub stop: Option<Box<str>>,
    /// Tokens, as last reported.
    pub usage: Usage,
    /// The error that ended the answer.
    pub error: Option<AnswerError>,
    /// Set once the provider marked the end. An answer without that mark broke off, however cleanly it was closed.
    pub terminal: bool,
    /// Set once output of the model has come: a block, an item, text, a call, or the reason for which there is none.
    pub has_output: bool,
    /// Set if the provider reported that the request waits in a queue.
    pub queued: bool,
    /// The id from which a later request may continue: that of a message (Messages) or a response (Responses).
    pub answer_id: Option<Box<str>>,
    /// The model that answers, as the provider names it.
    pub model: Option<Box<str>>,
    /// Values that the provider wants back. Noted only if the watcher is told to.
    pub carried: CarriedFacts,
    /// Items of a Responses answer. Noted only if the watcher is told to.
    pub items: AnswerItems,
}

/// The effect of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EventActivity {
    /// Part of the answer.
    Progress,
    /// Sign of life only.
    Heartbeat,
    /// The state of a request that has no output so far. Sent once and not regularly, so it is no sign of life either.
    Status,
}

impl Facts {
    /// Returns `true` if an answer of this format may end here.
    ///
    /// That is after the mark of its end, or where not every server writes one, after a stop reason.
    pub fn is_complete(&self, format: Format) -> bool {
        self.terminal || (format.may_end_unmarked() && self.stop.is_some())
    }

    /// Returns `true` if anything in the answer belongs to its format.
    ///
    /// A server may send events of its own under a known path.
    pub const fn is_recognized(&self) -> bool {
        self.has_output || self.answer_id.is_some() || self.terminal || self.queued || self.heartbeats > 0
    }

    /// Counts one event.
    pub(super) fn count_event(&mut self, seen: EventActivity, truncated: bool) {
        match seen {
            EventActivity::Progress => {
                self.events = self.events.saturating_add(1);
                self.heartbeats_in_row = 0;
            }
            EventActivity::Heartbeat => {
                self.heartbeats = self.heartbeats.saturating_add(1);
                self.heartbeats_in_row = self.heartbeats_in_row.saturating_add(1);
            }
            EventActivity::Status => {}
        }
        self.truncated = self.truncated.saturating_add(u64::from(truncated));
        if truncated {
            // The part that was not read may belong to a carried value.
            self.carried.give_up();
            // The last event of a stream repeats items that were noted before.
            if !self.terminal || self.items.count() == 0 {
                self.items.give_up();
            }
        }
    }

    /// Returns the label of the answer's end, which is one of [`stop_labels`].
    ///
    /// That is the stop reason if the format documents it, else `error`, `other`, or `none` without a marked end.
    pub fn stop_label(&self, format: Format) -> &'static str {
        if self.error.is_some() {
            return END_ERROR;
        }
        if !self.terminal {
            return END_NONE;
        }
        let stop = self.stop.as_deref().unwrap_or_default();
        let mut known = format.stop_reasons().iter();
        // Gemini spells its reasons in upper case; a label is in lower case.
        let known = known.find(|known| known.eq_ignore_ascii_case(stop));
        // A label from the provider's text would make the number of time series unbounded.
        known.copied().unwrap_or(END_OTHER)
    }
}

/// Returns every value of [`Facts::stop_label`] for a format.
pub fn stop_labels(format: Format) -> impl Iterator<Item = &'static str> {
    let known = format.stop_reasons().iter().copied();
    known.chain([END_ERROR, END_OTHER, END_NONE])
}

/// Progress of one kind of output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum OutputPhase {
    /// Not begun so far.
    #[default]
    Unseen,
    /// In flight.
    Open,
    /// Begun and ended.
    Over,
}

impl OutputPhase {
    /// Ends the output if it is in flight.
    pub(crate) fn end_open(&mut self) {
        if *self == Self::Open {
            *self = Self::Over;
        }
    }
}

/// Tool calls that were emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmittedCalls {
    /// Number of all calls.
    pub count: u64,
    /// The first [`LISTED_MAX`] of them, in the order of the answer.
    pub list: Vec<EmittedCall>,
    /// Set if the arguments of the calls are noted.
    pub(crate) notes_inputs: bool,
}

/// One tool call that the client has to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmittedCall {
    /// Its id; empty if the provider gave none.
    pub id: Box<str>,
    /// The name of the tool.
    pub name: Box<str>,
    /// Set if code at the provider made the call and waits for the result.
    pub called_by_code: bool,
    /// Its arguments. Unknown unless the watcher notes them.
    pub input: CallInput,
    /// Choice and index under which deltas of this call come.
    pub(crate) place: Option<(u64, u64)>,
}

impl EmittedCalls {
    /// Adds a call that the answer reports once.
    pub(crate) fn push_call(&mut self, call: EmittedCall) {
        self.count = self.count.saturating_add(1);
        if self.list.len() < LISTED_MAX {
            self.list.push(call);
        }
    }

    /// Adds a call that the answer may report in pieces.
    ///
    /// Pieces belong to one call if they have the same place and no different ids. A later piece fills in an id or name
    /// that was missing. Returns the call, unless the list is full.
    pub(crate) fn merge_call(&mut self, call: EmittedCall) -> Option<&mut EmittedCall> {
        // Some servers send every call with index 0: there only the ids differ.
        let same = |known: &&mut EmittedCall| match (known.place, call.place) {
            (Some(known_at), Some(at)) => {
                known_at == at && (known.id == call.id || known.id.is_empty() || call.id.is_empty())
            }
            _ => known.id == call.id && !call.id.is_empty(),
        };
        let Some(at) = self.list.iter_mut().position(|mut known| same(&mut known)) else {
            let is_listed = self.list.len() < LISTED_MAX;
            self.push_call(call);
            return self.list.last_mut().filter(|_| is_listed);
        };
        let known = self.list.get_mut(at)?;
        if known.id.is_empty() {
            known.id = call.id;
        }
        if known.name.is_empty() {
            known.name = call.name;
        }
        Some(known)
    }
}

/// Tools that run at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTools {
    /// Number of tools that were started.
    pub started: u64,
    /// Tools without a result so far, in the order of their start; [`LISTED_MAX`] at most.
    pub in_flight: Vec<ServerTool>,
}

/// One tool that runs at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTool {
    /// The id that its result names; empty if it has none.
    pub id: Box<str>,
    /// Its name, or its type if it has no name.
    pub name: Box<str>,
    /// Its index in the answer, if the event that ends it names that index.
    pub index: Option<u64>,
}

impl ServerTools {
    /// Returns the tool in flight that was started last.
    pub fn latest_tool(&self) -> Option<&ServerTool> {
        self.in_flight.last()
    }

    /// Adds a tool that the provider has started.
    pub(crate) fn start_tool(&mut self, tool: ServerTool) {
        self.started = self.started.saturating_add(1);
        if self.in_flight.len() < LISTED_MAX {
            self.in_flight.push(tool);
        }
    }

    /// Removes the tool that `is_it`, and returns `true` if there was one.
    pub(crate) fn end_tool(&mut self, is_it: impl Fn(&ServerTool) -> bool) -> bool {
        // A result without an id belongs to the tool that was started last.
        let found = self.in_flight.iter().rposition(is_it);
        found.map(|at| self.in_flight.remove(at)).is_some()
    }
}

/// Token counts of one answer. The three counts of the input do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input that came from no cache.
    pub input: u64,
    /// Input that was read from a cache.
    pub cache_read: u64,
    /// Input that was written to a cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Reasoning output, if the provider reports it.
    pub reasoning: u64,
}

impl Usage {
    /// Returns the number of all input tokens.
    pub const fn input_total(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }
}

/// An error that a provider sent inside an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerError {
    /// Its type or status; empty if it has none.
    pub kind: Box<str>,
    /// Its code; empty if it has none.
    pub code: Box<str>,
    /// The event that contained it.
    pub event: ErrorEvent,
}

/// Bytes of the longest event that is stored. Nothing of a longer one is.
const ERROR_EVENT_BYTES_MAX: usize = 4 * 1024;

/// The data of the event that contained an error, from which the policy classifies it. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct ErrorEvent(Box<[u8]>);

impl ErrorEvent {
    /// Stores the data of the first event, if it is short enough.
    pub(super) fn store_first(&mut self, data: &[u8]) {
        if self.0.is_empty() && data.len() <= ERROR_EVENT_BYTES_MAX {
            self.0 = data.into();
        }
    }

    /// Returns the data; empty if none was stored.
    pub const fn data(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for ErrorEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // An error may quote the conversation.
        write!(f, "FaultEvent({} bytes)", self.0.len())
    }
}
