//! What a watcher knows of an answer: counts, ids and names, content of nothing but errors, which is never shown.

use std::fmt;

use super::reader::{END_ERROR, END_NONE, END_OTHER, stops};
use crate::wire::Format;

/// Calls, and server tools in flight, that are kept; more are only counted.
pub const LISTED_MAX: usize = 256;
/// Bytes of an id, a name, a stop reason or an error code that are kept. Two ids that agree so far are taken for one.
pub const TEXT_BYTES_MAX: usize = 128;

/// What was seen of one answer so far.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Events that said something; heartbeats are not among them.
    pub events: u64,
    /// Events and comments that only say that the provider is alive, or that the request waits.
    pub heartbeats: u64,
    /// Events that were read only as far as [`EVENT_BYTES_MAX`](super::EVENT_BYTES_MAX).
    pub truncated: u64,
    /// Tool calls that the client has to answer.
    pub calls: Calls,
    /// Tools that the provider runs itself.
    pub server_tools: ServerTools,
    /// Reasoning, wherever it can be told from words.
    pub reasoning: Phase,
    /// Compaction of the history by the provider.
    pub compaction: Phase,
    /// Why the answer ended, in the provider's word.
    pub stop: Option<Box<str>>,
    /// Tokens, as last reported.
    pub usage: Usage,
    /// The error that the answer ended with.
    pub error: Option<Fault>,
    /// Whether the provider said that this is the end: an answer without it broke off, however cleanly.
    pub terminal: bool,
    /// Whether anything of the model's own has come: a block, an item, words, a call, or why there is none.
    pub begun: bool,
    /// Whether the provider said that the request waits in a queue.
    pub queued: bool,
    /// The name of the answer, where a later request may go on from it: a message of Messages, a response of Responses.
    pub answer_id: Option<Box<str>>,
    /// The model that answers, as the provider names it.
    pub model: Option<Box<str>>,
}

impl Facts {
    /// Whether an answer of this format may end here: its end was said, or for Chat Completions the reason of it, since
    /// not every server writes `[DONE]`.
    pub fn is_whole(&self, format: Format) -> bool {
        self.terminal || (format == Format::OpenAiChat && self.stop.is_some())
    }

    /// Whether anything in the answer belongs to its format: a server may send events of its own under a known path.
    pub const fn is_recognized(&self) -> bool {
        self.begun || self.answer_id.is_some() || self.terminal || self.queued || self.heartbeats > 0
    }

    /// How the answer ended, from a closed list ([`stop_labels`](super::stop_labels)): the stop reason where the
    /// format knows it, `error`, `other`, or `none` where nothing said that it was the end.
    pub fn stop_label(&self, format: Format) -> &'static str {
        if self.error.is_some() {
            return END_ERROR;
        }
        if !self.terminal {
            return END_NONE;
        }
        let stop = self.stop.as_deref().unwrap_or_default();
        let known = stops(format).iter().find(|known| known.eq_ignore_ascii_case(stop));
        known.copied().unwrap_or(END_OTHER)
    }
}

/// Whether something has begun, and whether it is over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Phase {
    /// Not seen so far.
    #[default]
    Unseen,
    /// In flight.
    Open,
    /// Seen, and over.
    Over,
}

/// Tool calls that were emitted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calls {
    /// How many.
    pub count: u64,
    /// The first [`LISTED_MAX`] of them, in the order of the answer.
    pub list: Vec<EmittedCall>,
}

/// One tool call that the client has to answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EmittedCall {
    /// Its id; empty where the format has none.
    pub id: Box<str>,
    /// The name of the tool.
    pub name: Box<str>,
    /// Whether code at the provider called, which waits for the result.
    pub by_code: bool,
    /// Where deltas of this call stand: choice and index.
    pub(crate) place: Option<(u64, u64)>,
}

impl Calls {
    /// Notes a call that is said once.
    pub(crate) fn emit(&mut self, call: EmittedCall) {
        self.count = self.count.saturating_add(1);
        if self.list.len() < LISTED_MAX {
            self.list.push(call);
        }
    }

    /// Notes a call that may be said again: at one place with one id it is the same, and what was missing is filled in.
    pub(crate) fn note(&mut self, call: EmittedCall) {
        let same = |known: &&mut EmittedCall| match (known.place, call.place) {
            (Some(known_at), Some(at)) => {
                known_at == at && (known.id == call.id || known.id.is_empty() || call.id.is_empty())
            }
            _ => known.id == call.id && !call.id.is_empty(),
        };
        let Some(known) = self.list.iter_mut().find(same) else {
            return self.emit(call);
        };
        if known.id.is_empty() {
            known.id = call.id;
        }
        if known.name.is_empty() {
            known.name = call.name;
        }
    }
}

/// Tools that run at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTools {
    /// How many were started.
    pub started: u64,
    /// Those without a result so far, [`LISTED_MAX`] at most, in the order of their start.
    pub in_flight: Vec<ServerTool>,
}

/// One tool that runs at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerTool {
    /// The id that its result names; empty where there is none.
    pub id: Box<str>,
    /// Its name, or its type where it has none.
    pub name: Box<str>,
    /// Its place in the answer, where that ends it.
    pub(crate) index: Option<u64>,
}

impl ServerTools {
    /// The one that was started last.
    pub fn latest(&self) -> Option<&ServerTool> {
        self.in_flight.last()
    }

    pub(crate) fn start(&mut self, tool: ServerTool) {
        self.started = self.started.saturating_add(1);
        if self.in_flight.len() < LISTED_MAX {
            self.in_flight.push(tool);
        }
    }

    /// Ends the last one that `is_it`; whether there was one.
    pub(crate) fn end(&mut self, is_it: impl Fn(&ServerTool) -> bool) -> bool {
        let found = self.in_flight.iter().rposition(is_it);
        found.map(|at| self.in_flight.remove(at)).is_some()
    }
}

/// Tokens of one answer. The three parts of the input do not overlap.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Input that no cache held.
    pub input: u64,
    /// Input that was read from a cache.
    pub cache_read: u64,
    /// Input that was written to a cache.
    pub cache_write: u64,
    /// Output, reasoning included.
    pub output: u64,
    /// Output that was reasoning, where that is told.
    pub reasoning: u64,
}

impl Usage {
    /// All of the input.
    pub const fn input_total(&self) -> u64 {
        self.input
            .saturating_add(self.cache_read)
            .saturating_add(self.cache_write)
    }
}

/// An error in place of an end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fault {
    /// Its type or status; empty where it has none.
    pub kind: Box<str>,
    /// Its code; empty where it has none.
    pub code: Box<str>,
    /// The event that brought it.
    pub event: FaultEvent,
}

/// Bytes of an event that are kept: of a longer one none.
const EVENT_BYTES_MAX: usize = 4 * 1024;

/// The data of the event that brought an error, for who must tell what it says. Never shown.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct FaultEvent(Box<[u8]>);

impl FaultEvent {
    /// Keeps the data of the first event that it is told of.
    pub(super) fn keep(&mut self, data: &[u8]) {
        if self.0.is_empty() && data.len() <= EVENT_BYTES_MAX {
            self.0 = data.into();
        }
    }

    /// The data; empty where none was kept.
    pub const fn data(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for FaultEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultEvent({} bytes)", self.0.len())
    }
}
