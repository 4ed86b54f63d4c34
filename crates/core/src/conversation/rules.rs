//! The pairing rules as data: the demands of a format, as one kind of provider reads it.

/// The place of the results of a turn's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPlace {
    /// Blocks at the beginning of the next user turn (Anthropic, Bedrock).
    UserTurn,
    /// Messages of their own, in one unbroken run directly after the call's message (chat).
    ToolRun,
    /// Parts of the content directly after the calls, one per call. Other parts may lie beside them (Gemini).
    NextContent,
    /// Items anywhere in the body: a set of ids (Responses).
    Anywhere,
    /// Items between the call and the next item that is neither call nor result (DeepSeek's Responses).
    ItemRun,
}

impl ResultPlace {
    /// Returns `true` if calls and results are items of one flat list.
    pub const fn is_items(self) -> bool {
        matches!(self, Self::Anywhere | Self::ItemRun)
    }

    /// Returns `true` if results are parts of a user's message, not messages of their own.
    pub const fn is_user_parts(self) -> bool {
        matches!(self, Self::UserTurn | Self::NextContent)
    }
}

/// The roles whose consecutive messages count as one turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MergedRoles {
    /// No role: each message is a turn.
    None,
    /// The assistant only. All results of a turn belong into one user message.
    Assistant,
    /// Every role.
    All,
}

/// The scope in which call ids must be unique.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdScope {
    /// No scope: ids are optional, and order decides.
    Nowhere,
    /// No demand is known. Calls of one turn may share an id and a result.
    Shared,
    /// The calls of one turn.
    Turn,
    /// The whole body.
    Body,
}

/// The call ids that the provider accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdRule {
    /// Any text, even an empty one.
    Any,
    /// Any text. A result without an id answers by its position (xAI).
    Position,
    /// `^[a-zA-Z0-9_-]+$`: Anthropic's error text, seen in maximhq/bifrost#5097 and farion1231/cc-switch#1181.
    Word,
    /// A text of 1 to this many characters. OpenAI: 40 in chat (`Expected a string with maximum length 40`), 64 in
    /// Responses (`Invalid 'input[95].call_id': string too long. Expected a string with maximum length 64`, seen in
    /// AnswerDotAI/fastllm#45, 2026-06).
    Within(usize),
    /// Nine letters or digits: Mistral's error 3280 (editor-code-assistant/eca#233).
    Nine,
    /// Any text that is not empty.
    NotEmpty,
}

/// The place of text and images among calls and results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WordsPlace {
    /// Anywhere but before required results.
    Anywhere,
    /// Not directly after a run of tool messages (Mistral). The client's own text may stay there.
    NotAfterResults,
    /// Not directly after a run of tool messages, the client's own text included: an assistant message goes between.
    Bridged,
    /// In the assistant's message, only before its calls (DeepSeek's Messages).
    BeforeCalls,
    /// In a user's message, only without results (MiniMax's Messages).
    ApartFromResults,
}

/// The demands on the input and the name of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallRule {
    /// The type of the input, where the format requires an object.
    InputType,
    /// Also that the name is not empty.
    InputTypeAndSomeName,
    /// Also the characters of the name.
    InputTypeAndName,
    /// The whole input must be a JSON object, as a value or as text, and the name must be legal for every provider.
    Strict,
}

/// The demands of a format, as one kind of provider reads it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent demands of a provider")]
pub struct PairingRules {
    /// Place of results.
    pub place: ResultPlace,
    /// Roles whose consecutive messages count as one turn.
    pub merged_roles: MergedRoles,
    /// `true` if a history must begin with the user.
    pub user_first: bool,
    /// Accepted ids.
    pub ids: IdRule,
    /// Scope in which a call id must be unique.
    pub id_scope: IdScope,
    /// `true` if a call may have one result only.
    pub one_result: bool,
    /// `true` if each result must name a call, even a [standalone](crate::conversation::CallResult::standalone) one.
    pub named_results: bool,
    /// `true` if a history may end with open calls.
    pub open_end: bool,
    /// Place of text.
    pub words: WordsPlace,
    /// Calls that are judged at once. The faults of others are repaired only after a refusal.
    pub calls: CallRule,
}

impl IdRule {
    /// Returns `true` if the provider accepts `id`.
    pub fn accepts(self, id: &[u8]) -> bool {
        match self {
            Self::Any | Self::Position => true,
            Self::NotEmpty => !id.is_empty(),
            // Without an early exit the loop runs on many bytes at once.
            Self::Word => !id.is_empty() && id.iter().fold(true, |all, byte| all & is_word(*byte)),
            Self::Within(limit) => !id.is_empty() && count_characters(id) <= limit,
            Self::Nine => id.len() == 9 && id.iter().all(u8::is_ascii_alphanumeric),
        }
    }
}

/// Returns `true` if `byte` is a letter, a digit, `_` or `-`.
pub const fn is_word(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'_' | b'-')
}

/// Returns the number of characters of a decoded string: bytes that do not continue one.
fn count_characters(text: &[u8]) -> usize {
    text.iter().filter(|byte| (**byte & 0xC0) != 0x80).count()
}
