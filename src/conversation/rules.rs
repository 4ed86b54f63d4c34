//! The pairing rules as data: what a format, in one provider's reading, wants of a history.

/// Where the results of a turn's calls may stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPlace {
    /// As blocks, first in the next user turn (Anthropic, Bedrock).
    UserTurn,
    /// As messages of their own, in one unbroken run directly behind the call's message (chat).
    ToolRun,
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
    /// One to 40 characters: OpenAI's error text, `provider-rules` C6.
    Short,
    /// Nine letters or digits: Mistral's error 3280, eca#233.
    Nine,
    /// Not empty.
    NotEmpty,
}

/// What a format, in one provider's reading, wants of a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PairingRules {
    /// Where results may stand.
    pub place: ResultPlace,
    /// Whether consecutive messages of one role count as one turn.
    pub combines: bool,
    /// Whether a history must begin with the user.
    pub user_first: bool,
    /// Which ids are taken.
    pub ids: IdRule,
    /// Whether user words may stand directly behind a run of tool messages.
    pub words_behind_results: bool,
}

impl IdRule {
    /// Whether the target takes `id`.
    pub fn takes(self, id: &[u8]) -> bool {
        match self {
            Self::Any | Self::Position => true,
            Self::NotEmpty => !id.is_empty(),
            Self::Word => !id.is_empty() && id.iter().all(|byte| is_word(*byte)),
            Self::Short => !id.is_empty() && characters(id) <= 40,
            Self::Nine => id.len() == 9 && id.iter().all(u8::is_ascii_alphanumeric),
        }
    }
}

/// Whether `byte` is a letter, a digit, `_` or `-`.
pub const fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'
}

/// Number of characters of a decoded string: bytes that do not continue one.
fn characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| (**byte & 0xC0) != 0x80).count()
}
