//! The pairing rules as data: what a format, in one provider's reading, wants of a history.

/// Where the results of a turn's calls may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPlace {
    /// As blocks, first in the next user turn (Anthropic, Bedrock).
    UserTurn,
    /// As messages of their own, in one unbroken run directly behind the call's message (chat).
    ToolRun,
    /// As parts of the one content behind the call's, as many as there are calls; other parts may stand beside them
    /// (Gemini).
    NextContent,
    /// As items of their own anywhere in the body: a set of ids (Responses).
    Anywhere,
    /// As items of their own between the call and the next item that is neither call nor result (DeepSeek's
    /// Responses).
    ItemRun,
}

impl ResultPlace {
    /// Whether calls and results are items of one flat list.
    pub const fn is_items(self) -> bool {
        matches!(self, Self::Anywhere | Self::ItemRun)
    }

    /// Whether results are parts of a user's message; else they are messages of their own.
    pub const fn is_user_parts(self) -> bool {
        matches!(self, Self::UserTurn | Self::NextContent)
    }
}

/// Whose consecutive messages count as one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergedRoles {
    /// Nobody's: each message is a turn.
    None,
    /// The assistant's; all results of a turn stand in one message of the user.
    Assistant,
    /// Everybody's.
    All,
}

/// How far a call id must be the only one of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdScope {
    /// Not at all: ids are optional, and order decides.
    Nowhere,
    /// Among the calls of one turn.
    Turn,
    /// In the whole body.
    Body,
}

/// Which call ids the target takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// Any text, an empty one too.
    Any,
    /// Any text; a result without an id answers by its position (xAI).
    Position,
    /// `^[a-zA-Z0-9_-]+$`: Anthropic's error text, seen in maximhq/bifrost#5097 and farion1231/cc-switch#1181.
    Word,
    /// One to so many characters. OpenAI: 40 in chat (`Expected a string with maximum length 40`), 64 in Responses
    /// (`Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64`, seen in
    /// AnswerDotAI/fastllm#45, 2026-06).
    Within(usize),
    /// Nine letters or digits: Mistral's error 3280, eca#233.
    Nine,
    /// Not empty.
    NotEmpty,
}

/// Where words and images may stand among calls and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WordsPlace {
    /// Anywhere but in front of results that are due.
    Anywhere,
    /// Not directly behind a run of tool messages (Mistral).
    NotBehindResults,
    /// In the assistant's message in front of its calls only (DeepSeek's Messages).
    BeforeCalls,
    /// In a user's message without results only (MiniMax's Messages).
    ApartFromResults,
}

/// What a format, in one provider's reading, wants of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingRules {
    /// Where results may stand.
    pub place: ResultPlace,
    /// Whose consecutive messages count as one turn.
    pub merged_roles: MergedRoles,
    /// Whether a history must begin with the user.
    pub user_first: bool,
    /// Which ids are taken.
    pub ids: IdRule,
    /// How far a call id must be the only one.
    pub id_scope: IdScope,
    /// Whether a history may end with calls that nobody has answered yet.
    pub open_end: bool,
    /// Where words may stand.
    pub words: WordsPlace,
}

impl IdRule {
    /// Whether the target takes `id`.
    pub fn accepts(self, id: &[u8]) -> bool {
        match self {
            Self::Any | Self::Position => true,
            Self::NotEmpty => !id.is_empty(),
            Self::Word => !id.is_empty() && id.iter().all(|byte| is_word(*byte)),
            Self::Within(limit) => !id.is_empty() && count_characters(id) <= limit,
            Self::Nine => id.len() == 9 && id.iter().all(u8::is_ascii_alphanumeric),
        }
    }
}

/// Whether `byte` is a letter, a digit, `_` or `-`.
pub const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Number of characters of a decoded string: bytes that do not continue one.
fn count_characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| (**byte & 0xC0) != 0x80).count()
}
