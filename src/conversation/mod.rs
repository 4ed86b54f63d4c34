//! What a body says and where it stands in the bytes: conversation, messages, parts. Nothing is copied.
//!
//! Knows no wire format: the readers in [`crate::wire`] make these values, [`pairing`] judges them.

use std::{borrow::Cow, ops::Range};

use crate::splice::Span;

pub mod call_chain;
mod finding;
mod ids;
pub mod lost_results;
pub mod outline;
pub mod pairing;
pub mod rules;
pub mod turns;

pub use call_chain::CallChain;
pub use finding::{Finding, FindingKind, findings};
pub use ids::{CallRowId, PartId, ResultRowId, TurnId};
pub use outline::{BodyField, BodyFields, Outline, OutlineCall, OutlineResult, ReadNotes};

/// Messages and parts for which room is made at first: a body may claim to be large.
const ROOM_MAX: usize = 4096;

/// The decoded bytes of a JSON string; a lone surrogate stands as its three bytes (WTF-8).
pub type Text<'a> = Cow<'a, [u8]>;

/// One body's history.
#[derive(Clone, Debug)]
pub struct Conversation<'a> {
    /// The body that every span points into.
    pub body: &'a [u8],
    /// The array that holds the messages, brackets included; none where the body has no history.
    pub array: Option<Span>,
    /// The messages in document order.
    pub messages: Vec<Message>,
    /// The parts of all messages in document order.
    pub parts: Vec<Part<'a>>,
    /// Fields with values that the target rejects, in document order of their messages.
    pub flaws: Vec<Flaw>,
    /// The last part that is a compaction: what stands before it is not judged.
    pub compaction: Option<PartId>,
    /// Looks up what a call says, in the body and at the call's span: only few calls are ever asked.
    pub details: fn(&[u8], Span) -> CallDetails,
    /// Looks up the text of a result that is one plain text, likewise.
    pub plain_text: fn(&[u8], Span) -> Option<Text<'_>>,
    /// Whether calls may live outside the body (Anthropic `thread: continue`, Responses `previous_response_id`): a
    /// result without call is no finding.
    pub may_have_remote_calls: bool,
    /// What was noted for its outline.
    pub notes: ReadNotes,
}

impl<'a> Conversation<'a> {
    /// A conversation of no messages over `body`, with room for those that a body of its size mostly has.
    pub fn new(
        body: &'a [u8],
        details: fn(&[u8], Span) -> CallDetails,
        said: fn(&[u8], Span) -> Option<Text<'_>>,
    ) -> Self {
        Self {
            body,
            array: None,
            messages: Vec::with_capacity((body.len() / 512).clamp(4, ROOM_MAX)),
            parts: Vec::with_capacity((body.len() / 256).clamp(8, ROOM_MAX)),
            flaws: Vec::new(),
            compaction: None,
            details,
            plain_text: said,
            may_have_remote_calls: false,
            notes: ReadNotes::default(),
        }
    }

    /// Returns the part at an index.
    pub fn part(&self, part: PartId) -> Option<&Part<'a>> {
        self.parts.get(part.index())
    }

    /// Adds a part to the message at hand.
    pub fn push_part(&mut self, part: Part<'a>) {
        if matches!(part.kind, PartKind::Compaction) {
            self.compaction = Some(PartId::new(self.parts.len()));
        }
        self.parts.push(part);
    }

    /// Returns the place that [`Conversation::rewind`] goes back to.
    pub const fn read_mark(&self) -> ReadMark {
        ReadMark {
            parts: self.parts.len(),
            flaws: self.flaws.len(),
            compaction: self.compaction,
        }
    }

    /// Removes the parts and flaws that were added behind `mark`: the key that held them stands twice, and the last
    /// counts.
    pub fn rewind_to(&mut self, mark: ReadMark) {
        self.parts.truncate(mark.parts);
        self.flaws.truncate(mark.flaws);
        self.compaction = mark.compaction;
    }

    /// What the call at `part` says.
    pub fn call_details(&self, part: PartId) -> CallDetails {
        self.part(part)
            .map(|part| (self.details)(self.body, part.span))
            .unwrap_or_default()
    }

    /// What the result at `part` says, decoded, where that is one plain text: a string, or a list of one text block.
    pub fn plain_text(&self, part: PartId) -> Option<Text<'a>> {
        let part = self.part(part)?;
        matches!(part.kind, PartKind::Result(_)).then(|| (self.plain_text)(self.body, part.span))?
    }

    /// The parts of one message.
    pub fn parts_of(&self, message: &Message) -> &[Part<'a>] {
        self.parts.get(message.parts.clone()).unwrap_or_default()
    }

    /// The first block of signed reasoning.
    pub fn first_thinking(&self) -> Option<Span> {
        let thinks = |part: &&Part<'_>| matches!(part.kind, PartKind::Thinking);
        self.parts.iter().find(thinks).map(|part| part.span)
    }

    /// The reasoning parts that stand, message by message, right before the message of `part`, last first.
    pub fn reasoning_before(&self, part: PartId) -> impl Iterator<Item = PartId> {
        let message = |part: PartId| self.part(part).map(|found| found.message);
        let follows = move |before: &PartId| {
            let thinks = matches!(self.part(*before), Some(found) if matches!(found.kind, PartKind::Thinking));
            thinks && message(*before).map(|index| index.saturating_add(1)) == message(before.next())
        };
        PartId::all(0..part.index()).rev().take_while(follows)
    }

    /// The index of a part inside its message.
    pub fn part_ordinal(&self, part: PartId) -> usize {
        let message = self.part(part).and_then(|found| self.messages.get(found.message));
        message.map_or(0, |found| part.index().saturating_sub(found.parts.start))
    }
}

/// A place in a conversation that is being read.
#[derive(Clone, Copy, Debug)]
pub struct ReadMark {
    /// How many parts stand before it.
    pub parts: usize,
    /// How many flaws stand before it.
    pub flaws: usize,
    /// The last compaction before it.
    compaction: Option<PartId>,
}

/// Who speaks in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The user; on Anthropic also the bearer of tool results.
    User,
    /// The model.
    Assistant,
    /// A tool result as a message of its own (chat).
    Tool,
    /// Instructions in the middle of a history, and every role that we do not know.
    System,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The message's object, braces included.
    pub span: Span,
    /// Who speaks.
    pub role: Role,
    /// The shape of its content.
    pub content: Content,
    /// Its parts, as indices into [`Conversation::parts`].
    pub parts: Range<usize>,
}

/// The shape of a message's content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// A list of blocks: each element is one part.
    Blocks(Span),
    /// A bare string: one part.
    Text(Span),
    /// Absent, null, or of a shape that we do not look into: no parts.
    Opaque,
}

/// One block of a message; in chat one entry of `tool_calls`, or a whole tool message.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The bytes of the block.
    pub span: Span,
    /// Index of its message.
    pub message: usize,
    /// What it is.
    pub kind: PartKind<'a>,
}

/// What a part is, as far as pairing is concerned.
#[derive(Clone, Debug)]
pub enum PartKind<'a> {
    /// A call that the client answers.
    Call(Call<'a>),
    /// A client's answer to a call.
    Result(CallResult<'a>),
    /// A call that the provider answers itself.
    ServerCall(ServerCall<'a>),
    /// The provider's answer to its own call: the id.
    ServerResult(Text<'a>),
    /// Signed reasoning: its turn is never touched without need.
    Thinking,
    /// A summary that stands for everything before it.
    Compaction,
    /// Anything else: words, images, blocks of kinds to come.
    Other,
}

/// A client tool call.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// The id; empty where it is missing.
    pub id: Text<'a>,
    /// The tool's name, in formats whose results may name it in place of an id; else empty.
    pub name: Text<'a>,
    /// Whose results answer it.
    pub family: CallFamily,
    /// What it means that no result answers it.
    pub without_result: WithoutResult,
    /// Whether code that runs at the provider makes the call: its turn may not lose the server call.
    pub programmatic: bool,
    /// Whether the provider signed it: it stays where it is.
    pub signed: bool,
}

/// Which results answer which calls. Formats with one kind of call have one family, the default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallFamily {
    /// Results answer calls of their own group only.
    pub group: u8,
    /// A result of another kind than its call's says the right thing in the wrong form.
    pub kind: u8,
}

/// What it means that a call has no result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutResult {
    /// The provider refuses the body.
    #[default]
    Refused,
    /// As [`Open::Refused`], but nobody can invent a result: a screenshot.
    Unanswerable,
    /// Nothing: the answer may come later, or never.
    Legal,
}

impl Call<'_> {
    /// What a result must name to answer it: the id, or the name where there is no id.
    pub fn call_name(&self) -> &[u8] {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

impl CallResult<'_> {
    /// What names its call: the id, or the name where there is no id.
    pub fn call_name(&self) -> &[u8] {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

/// What a call says, looked up on demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallDetails {
    /// The tool's name as its JSON string, quotes included.
    pub name: Option<Span>,
    /// The input or arguments, as raw JSON.
    pub input: Option<Span>,
    /// The toolset's name as its JSON string, quotes included: a result must echo it.
    pub toolset: Option<Span>,
}

/// A client tool result.
#[derive(Clone, Debug, Default)]
pub struct CallResult<'a> {
    /// The id of the call it answers; empty where it is missing.
    pub id: Text<'a>,
    /// The tool's name, in formats that pair by it where there is no id; else empty.
    pub name: Text<'a>,
    /// Whose calls it answers.
    pub family: CallFamily,
    /// Whether it is known to answer no call.
    pub owner: ResultOwner,
    /// Whether the provider takes it although it names no call.
    pub free: bool,
}

/// What is known of a result beyond the body that holds it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultOwner {
    /// Nothing.
    #[default]
    Unknown,
    /// The provider said that it answers no call.
    NoCall,
    /// Its call, which the provider holds, was answered before.
    AnsweredCall,
}

/// A server tool call.
#[derive(Clone, Debug)]
pub struct ServerCall<'a> {
    /// The id.
    pub id: Text<'a>,
    /// Whether its kind is one whose rules are documented; others are never judged.
    pub known: bool,
}

/// A field whose value the target rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Index of the message.
    pub message: usize,
    /// Index of the part in [`Conversation::parts`]; none where the message as a whole is meant.
    pub part: Option<PartId>,
    /// What is wrong.
    pub kind: FlawKind,
}

/// What is wrong with a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlawKind {
    /// A call's input is null, an empty list, or missing, where an object is wanted.
    InputEmpty,
    /// A call's input is a JSON string, where an object is wanted.
    InputText,
    /// A text block without a visible character.
    BlankText,
    /// A message without content, other than a final assistant message.
    EmptyMessage,
    /// An error result without content.
    ErrorWithoutContent,
    /// `tool_calls` is an empty list.
    EmptyCalls,
    /// A result of another kind than its call, of the same content.
    ResultKind,
    /// An item id that an earlier item has, or that the provider itself refused.
    RepeatedItemId,
    /// A turn of the model with calls that stands in several contents.
    SplitTurn,
}

impl FlawKind {
    /// The stable name, as [`Finding::detail`].
    pub const fn code(self) -> &'static str {
        match self {
            Self::InputEmpty => "input_empty",
            Self::InputText => "input_text",
            Self::BlankText => "blank_text",
            Self::EmptyMessage => "empty_message",
            Self::ErrorWithoutContent => "error_without_content",
            Self::EmptyCalls => "empty_calls",
            Self::ResultKind => "result_kind",
            Self::RepeatedItemId => "repeated_item_id",
            Self::SplitTurn => "split_turn",
        }
    }
}
