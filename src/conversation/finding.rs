//! Findings: breaches of the pairing rules, as values.

/// The kinds of breach. The names are stable: metric labels, `check` output, strict answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum FindingKind {
    /// A client call without a result where one is due.
    Unanswered,
    /// The result of a call stands elsewhere: later, earlier, after text, or inside an assistant message.
    Misplaced,
    /// A result whose call is not in this body, or that several open calls could own.
    Orphan,
    /// A second result for one call.
    Duplicate,
    /// One id twice among the calls of one turn.
    DuplicateCall,
    /// A result without an id.
    NoId,
    /// An id that the target rejects.
    BadId,
    /// A server call without result in a closed turn, or a server result without call.
    ServerHalf,
    /// The history begins with an assistant turn where the format wants the user first.
    Headless,
    /// Hygiene: a field whose value the target rejects.
    Field,
}

impl FindingKind {
    /// Every kind, in the order of the documentation.
    pub const ALL: [Self; 10] = [
        Self::Unanswered,
        Self::Misplaced,
        Self::Orphan,
        Self::Duplicate,
        Self::DuplicateCall,
        Self::NoId,
        Self::BadId,
        Self::ServerHalf,
        Self::Headless,
        Self::Field,
    ];

    /// The stable name: lower case, underscores.
    pub const fn code(self) -> &'static str {
        match self {
            Self::Unanswered => "unanswered",
            Self::Misplaced => "misplaced",
            Self::Orphan => "orphan",
            Self::Duplicate => "duplicate",
            Self::DuplicateCall => "duplicate_call",
            Self::NoId => "no_id",
            Self::BadId => "bad_id",
            Self::ServerHalf => "server_half",
            Self::Headless => "headless",
            Self::Field => "field",
        }
    }

    /// One sentence for a human, without ids.
    pub const fn explanation(self) -> &'static str {
        match self {
            Self::Unanswered => "the tool call has no result where one is due",
            Self::Misplaced => "the result of the tool call stands outside its place",
            Self::Orphan => "the tool result belongs to no call of this history that it could answer",
            Self::Duplicate => "the tool call is answered already; this is a further result",
            Self::DuplicateCall => "two tool calls of one turn have the same id",
            Self::NoId => "the tool result names no call",
            Self::BadId => "the provider rejects this tool call id",
            Self::ServerHalf => "a server tool call without its result, or a result without its call",
            Self::Headless => "the history begins with an assistant message",
            Self::Field => "the provider rejects the value of this field",
        }
    }
}

/// One breach, by its place in the body as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong.
    pub kind: FindingKind,
    /// Index of the message in the history, from 0.
    pub message: usize,
    /// Index of the block in the message's content (Anthropic) or of the call in `tool_calls` (chat), from 0;
    /// none where the message as a whole is meant.
    pub part: Option<usize>,
    /// The call id as text, lossily decoded; empty where there is none.
    pub id: String,
    /// What exactly, for kinds that stand for several things (`Field`): a stable name.
    pub detail: Option<&'static str>,
}
