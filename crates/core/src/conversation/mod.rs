//! A request body as messages and parts with their byte ranges. Nothing is copied.
//!
//! Contains no wire format: the readers in [`crate::wire`] create these values, [`pairing`] judges them.

use std::{borrow::Cow, ops::Range};

use crate::{splice::Span, work};

pub mod call_chain;
mod current_turn;
mod finding;
mod ids;
pub mod lost_results;
pub mod outline;
pub mod pairing;
pub mod rules;
mod shortened_results;
pub mod turns;

pub use call_chain::CallChain;
pub use current_turn::current_turn;
pub use finding::{Finding, FindingKind, STANDALONE, findings};
pub use ids::{CallRowId, PartId, ResultRowId, TurnId};
pub use outline::{BodyField, BodyFields, Outline, OutlineCall, OutlineResult, ReadNotes};

/// Initial capacity for messages and parts, because a body may claim to be large.
const CAPACITY_MAX: usize = 4096;

/// Decoded bytes of a JSON string. A lone surrogate is encoded as three bytes (WTF-8).
pub type Text<'a> = Cow<'a, [u8]>;

/// A reader of a result's text. `None` unless the result at the span is one plain text, and the last argument returns
/// `true` for its JSON string, which is decoded only then.
pub type ReadResultText = fn(&[u8], Span, fn(&[u8]) -> bool) -> Option<Text<'_>>;

/// The history of one body.
#[derive(Clone, Debug)]
pub struct Conversation<'a> {
    /// The body that every span points into.
    pub body: &'a [u8],
    /// The array of messages, brackets included. `None` if the body has no history.
    pub array: Option<Span>,
    /// The messages in document order.
    pub messages: Vec<Message>,
    /// The parts of all messages in document order.
    pub parts: Vec<Part<'a>>,
    /// Fields with values that the provider rejects, in document order of their messages.
    pub flaws: Vec<Flaw>,
    /// Thinking with a signature that cannot be the provider's, or without one, in document order.
    pub foreign_thinking: Vec<PartId>,
    /// Thinking that the repair removes, in document order. Everything is judged as if it were not in the body.
    pub removed_thinking: Vec<PartId>,
    /// Last part that is a compaction. The parts before it are not judged.
    pub compaction: Option<PartId>,
    /// Reads a call's name and input from the body and the call's span. On demand, because few calls need it.
    pub details: fn(&[u8], Span) -> CallDetails,
    /// Reads the text of a result. On demand, because few results need it.
    pub result_text: ReadResultText,
    /// `true` if calls may exist only at the provider (Anthropic `thread: continue`, Responses `previous_response_id`).
    /// A result without a call is no finding then.
    pub may_have_remote_calls: bool,
    /// Notes of the reader for the outline.
    pub notes: ReadNotes,
}

impl<'a> Conversation<'a> {
    /// Returns an empty conversation over `body`, with room for the messages of a typical body of its size.
    pub fn new(body: &'a [u8], details: fn(&[u8], Span) -> CallDetails, result_text: ReadResultText) -> Self {
        Self {
            body,
            array: None,
            // Nothing for a tiny one: a batch may have a hundred thousand of them.
            messages: Vec::with_capacity((body.len() / 512).min(CAPACITY_MAX)),
            parts: Vec::with_capacity((body.len() / 256).min(CAPACITY_MAX)),
            flaws: Vec::new(),
            foreign_thinking: Vec::new(),
            removed_thinking: Vec::new(),
            compaction: None,
            details,
            result_text,
            may_have_remote_calls: false,
            notes: ReadNotes::default(),
        }
    }

    /// Returns the part at an index.
    pub fn part(&self, part: PartId) -> Option<&Part<'a>> {
        work::count(1);
        self.parts.get(part.index())
    }

    /// Adds a part to the current message.
    pub fn push_part(&mut self, part: Part<'a>) {
        if matches!(part.kind, PartKind::Compaction) {
            self.compaction = Some(PartId::new(self.parts.len()));
        }
        self.parts.push(part);
    }

    /// Returns a mark for [`Conversation::rewind_to`].
    pub const fn read_mark(&self) -> ReadMark {
        ReadMark {
            parts: self.parts.len(),
            flaws: self.flaws.len(),
            foreign_thinking: self.foreign_thinking.len(),
            compaction: self.compaction,
        }
    }

    /// Removes the parts and flaws added since `mark`. Of a repeated key the last one counts.
    pub fn rewind_to(&mut self, mark: ReadMark) {
        self.parts.truncate(mark.parts);
        self.flaws.truncate(mark.flaws);
        // Truncated by its length: a pass over the list for each message would grow with the square of the history.
        self.foreign_thinking.truncate(mark.foreign_thinking);
        self.compaction = mark.compaction;
    }

    /// Returns the name and input of the call at `part`.
    pub fn call_details(&self, part: PartId) -> CallDetails {
        self.part(part)
            .map(|part| (self.details)(self.body, part.span))
            .unwrap_or_default()
    }

    /// Returns the decoded text of the result at `part`.
    ///
    /// `None` unless it is one plain text, such as a string or a list of one text block.
    pub fn plain_text(&self, part: PartId) -> Option<Text<'a>> {
        self.result_text_if(part, |_| true)
    }

    /// Returns `true` if the result at `part` only reports that the client lost it: see [`lost_results`].
    pub fn is_lost_result(&self, part: PartId) -> bool {
        // Few results begin like such a text, and the others need no decoding.
        let text = self.result_text_if(part, lost_results::may_be_lost);
        text.is_some_and(|text| lost_results::is_lost(&text))
    }

    /// Returns `true` if the result at `part` is one that the client has shortened: see `shortened_results`.
    pub fn is_shortened_result(&self, part: PartId) -> bool {
        self.result_text_if(part, shortened_results::is_shortened).is_some()
    }

    fn result_text_if(&self, part: PartId, is_wanted: fn(&[u8]) -> bool) -> Option<Text<'a>> {
        let part = self.part(part)?;
        matches!(part.kind, PartKind::Result(_)).then(|| (self.result_text)(self.body, part.span, is_wanted))?
    }

    /// Returns the parts of one message.
    pub fn parts_of(&self, message: &Message) -> &[Part<'a>] {
        // The caller walks them.
        work::count(message.parts.len());
        self.parts.get(message.parts.clone()).unwrap_or_default()
    }

    /// Returns `true` if the part is signed reasoning that stays in the body.
    pub fn thinks(&self, part: PartId) -> bool {
        let is_thinking = self
            .part(part)
            .is_some_and(|found| matches!(found.kind, PartKind::Thinking));
        is_thinking && self.removed_thinking.binary_search(&part).is_err()
    }

    /// Returns the span of the first block of signed reasoning.
    pub fn first_thinking(&self) -> Option<Span> {
        work::count(self.parts.len());
        let thinks = |part: &&Part<'_>| matches!(part.kind, PartKind::Thinking);
        self.parts.iter().find(thinks).map(|part| part.span)
    }

    /// Returns the reasoning parts in the messages directly before the message of `part`, last first.
    pub fn reasoning_before(&self, part: PartId) -> impl Iterator<Item = PartId> {
        let message = |part: PartId| self.part(part).map(|found| found.message);
        // Reasoning belongs to the item right after it, so a gap between two messages ends the run.
        let follows = move |before: &PartId| {
            let thinks = matches!(self.part(*before), Some(found) if matches!(found.kind, PartKind::Thinking));
            thinks && message(*before).map(|index| index.saturating_add(1)) == message(before.next())
        };
        PartId::all(0..part.index()).rev().take_while(follows)
    }

    /// Returns the index of a part inside its message.
    pub fn part_ordinal(&self, part: PartId) -> usize {
        let message = self.part(part).and_then(|found| self.messages.get(found.message));
        message.map_or(0, |found| part.index().saturating_sub(found.parts.start))
    }
}

/// A position in a conversation that is being read.
#[derive(Clone, Copy, Debug)]
pub struct ReadMark {
    /// Number of parts before it.
    pub parts: usize,
    /// Number of flaws before it.
    pub flaws: usize,
    /// Last compaction before it.
    foreign_thinking: usize,
    compaction: Option<PartId>,
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The user. In Anthropic's format user messages also contain tool results.
    User,
    /// The model.
    Assistant,
    /// A tool result as a message of its own (chat).
    Tool,
    /// Instructions inside a history, and every unknown role.
    System,
}

/// One message.
#[derive(Clone, Debug)]
pub struct Message {
    /// The JSON object of the message, braces included.
    pub span: Span,
    /// Its author.
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
    /// Absent, null, or of an unknown shape: no parts.
    Opaque,
}

/// One block of a message. In chat: one entry of `tool_calls`, or a whole tool message.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    /// The bytes of the block.
    pub span: Span,
    /// Index of its message.
    pub message: usize,
    /// Its kind.
    pub kind: PartKind<'a>,
}

/// The kind of a part, in the terms of pairing.
#[derive(Clone, Debug)]
pub enum PartKind<'a> {
    /// A call that the client answers.
    Call(Call<'a>),
    /// A client's result of a call.
    Result(CallResult<'a>),
    /// A call that the provider executes itself.
    ServerCall(ServerCall<'a>),
    /// The provider's result of its own call, by its id.
    ServerResult(Text<'a>),
    /// Signed reasoning. Its turn is changed only if necessary.
    Thinking,
    /// A summary that replaces everything before it.
    Compaction,
    /// Anything else: text, images, unknown blocks.
    Other,
}

/// A client tool call.
#[derive(Clone, Debug, Default)]
pub struct Call<'a> {
    /// Its id. Empty if it is missing.
    pub id: Text<'a>,
    /// Name of the tool, in formats whose results may name it instead of an id. Else empty.
    pub name: Text<'a>,
    /// The family of the results that answer it.
    pub family: CallFamily,
    /// Consequence if no result answers it.
    pub without_result: WithoutResult,
    /// `true` if code that runs at the provider makes the call. The server call of that code must stay in the turn.
    pub programmatic: bool,
    /// `true` if the provider signed it. It must stay in its place.
    pub signed: bool,
}

/// The kinds of calls that a result may answer. Formats with one kind of call use the default for all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct CallFamily {
    /// A result answers only calls of its own group.
    pub group: u8,
    /// A result of another kind than its call has the right content in the wrong form.
    pub kind: u8,
}

/// Consequence of a call without a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WithoutResult {
    /// The provider refuses the body.
    #[default]
    Refused,
    /// The provider refuses the body, and the proxy cannot invent a result: a screenshot.
    Unanswerable,
    /// Nothing: the result may come later, or never.
    Legal,
}

impl Call<'_> {
    /// Returns the name that a result must contain to answer it: the id, or the tool if there is no id.
    pub fn call_name(&self) -> &[u8] {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

impl CallResult<'_> {
    /// Returns the name of its call: the id, or the tool if there is no id.
    pub fn call_name(&self) -> &[u8] {
        if self.id.is_empty() { &self.name } else { &self.id }
    }
}

/// Name and input of a call, read on demand.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallDetails {
    /// The tool's name as its JSON string, quotes included.
    pub name: Option<Span>,
    /// The input or arguments, as raw JSON.
    pub input: Option<Span>,
    /// The toolset's name as its JSON string, quotes included. A result must repeat it.
    pub toolset: Option<Span>,
}

/// A client tool result.
#[derive(Clone, Debug, Default)]
pub struct CallResult<'a> {
    /// Id of the call that it answers. Empty if it is missing.
    pub id: Text<'a>,
    /// Name of the tool, in formats that pair by it if there is no id. Else empty.
    pub name: Text<'a>,
    /// The family of the calls that it answers.
    pub family: CallFamily,
    /// Knowledge about its call from outside the body.
    pub owner: ResultOwner,
    /// `true` if the provider accepts it although it names no call.
    pub free: bool,
    /// `true` if it names its tool and no call, as a message of its client (Responses: automations of Codex).
    pub standalone: bool,
}

/// Knowledge from outside the body about the call of a result.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultOwner {
    /// No such knowledge.
    #[default]
    Unknown,
    /// The provider reported that it answers no call.
    NoCall,
    /// An earlier request has already answered its remote call.
    AnsweredCall,
}

/// A server tool call.
#[derive(Clone, Debug)]
pub struct ServerCall<'a> {
    /// The id.
    pub id: Text<'a>,
    /// `true` if the rules of its kind are documented. Others are never judged.
    pub known: bool,
}

/// A field whose value the provider rejects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// Index of the message.
    pub message: usize,
    /// Index of the part. `None` if the whole message is at fault.
    pub part: Option<PartId>,
    /// The kind of fault.
    pub kind: FlawKind,
}

/// The faults of one call. At least one is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFault {
    /// The fault of its input or arguments. `None` if the provider accepts them.
    pub input: Option<InputFault>,
    /// The fault of its name. `None` if the provider accepts it.
    pub name: Option<NameFault>,
}

impl CallFault {
    const BAD_NAME: &str = "bad_name";

    /// Joins the faults of a call's input and name. `None` if both are accepted.
    pub fn new(input: Option<InputFault>, name: Option<NameFault>) -> Option<Self> {
        (input.is_some() || name.is_some()).then_some(Self { input, name })
    }

    const fn code(self) -> &'static str {
        match (self.input, self.name) {
            (Some(InputFault::Empty), _) => "input_empty",
            (Some(InputFault::Text), _) => "input_text",
            (Some(InputFault::NotJson), _) => "input_not_json",
            (Some(InputFault::NotObject), _) => "input_not_object",
            (Some(InputFault::NotText), _) => "input_not_text",
            (None, Some(NameFault::Missing)) => "no_name",
            (None, _) => Self::BAD_NAME,
        }
    }
}

/// The fault of a call's input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InputFault {
    /// Null, an empty list, blank, or missing.
    Empty,
    /// A JSON string. An object is required.
    Text,
    /// A string that is not one JSON value: cut off, or several values.
    NotJson,
    /// JSON other than an object.
    NotObject,
    /// An object. A string that contains it is required.
    NotText,
}

/// The fault of a call's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameFault {
    /// Missing, or null. Not judged for Anthropic and Gemini.
    Missing,
    /// An empty text.
    Empty,
    /// A text that breaks the provider's pattern.
    Illegal,
}

/// The fault of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FlawKind {
    /// A call whose input or name the provider rejects.
    Call(CallFault),
    /// A result with the rejected name of its call.
    ResultName,
    /// A text block without a visible character.
    BlankText,
    /// A message without content, other than a final assistant message.
    EmptyMessage,
    /// An error result without content.
    ErrorWithoutContent,
    /// `tool_calls` is an empty list.
    EmptyCalls,
    /// A result whose form belongs to another kind of call.
    ResultKind,
    /// A result whose content is an object, or a list with an element that is no content part.
    ResultContent,
    /// A message of the assistant with a part of type `input_text`.
    InputPart,
    /// A part without a member.
    EmptyPart,
    /// An item id that an earlier item has, or that the provider refused.
    RepeatedItemId,
    /// A model turn with calls that is split over several contents.
    SplitTurn,
}

impl FlawKind {
    /// Returns `true` if the flaw concerns the input or the name of a call.
    pub const fn is_malformed_call(self) -> bool {
        matches!(self, Self::Call(_) | Self::ResultName)
    }

    /// Returns the stable name, as in [`Finding::detail`].
    pub const fn code(self) -> &'static str {
        match self {
            Self::Call(fault) => fault.code(),
            Self::ResultName => CallFault::BAD_NAME,
            Self::BlankText => "blank_text",
            Self::EmptyMessage => "empty_message",
            Self::ErrorWithoutContent => "error_without_content",
            Self::EmptyCalls => "empty_calls",
            Self::ResultKind => "result_kind",
            Self::ResultContent => "result_content",
            Self::InputPart => "input_part",
            Self::EmptyPart => "empty_part",
            Self::RepeatedItemId => "repeated_item_id",
            Self::SplitTurn => "split_turn",
        }
    }
}
