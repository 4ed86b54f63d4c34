//! Agent conversations by seed, as bytes with every freedom of JSON: spacing, key order, escapes.
//!
//! One seed always gives the same bytes. No JSON library prints them.

mod gemini;
mod grow;
mod json;
mod mangle;
mod responses;
mod sized;

use antiphon_core::wire::{Dialect, Format, Wire};

pub use grow::{grow, healthy};
pub use json::{Json, Style, object, text};
pub use mangle::{Break, mangle};
pub use sized::{Shape, sized};

/// System prompt of every conversation.
const SYSTEM: &str = "You are an agent. \"messages\": [] is not yours.";

/// A small random number generator (splitmix64).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// Returns the generator of `seed`.
    pub fn new(seed: u64) -> Self {
        Self(seed ^ 0x5851_F42D_4C95_7F2D)
    }

    /// Returns the next number.
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Returns a number below `bound`, which must not be 0.
    pub fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.next() % bound as u64).unwrap()
    }

    /// Returns a number from `low` to `high`, both included.
    pub fn within(&mut self, low: usize, high: usize) -> usize {
        low + self.below(high - low + 1)
    }

    /// Returns `true` with a probability of `percent`.
    pub fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// Returns one of `items`.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }

    /// Shuffles `items`.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    User,
    Assistant,
    System,
    Tool,
}

/// The content of a result.
#[derive(Clone, Debug, PartialEq)]
pub enum Said {
    /// No `content` member.
    Nothing,
    /// One string.
    Text(String),
    /// Text blocks, and an optional image.
    Blocks(Vec<String>, Option<String>),
}

/// The kind of a tool call. Only Responses has the last three. Only Chat Completions and Responses have the second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CallKind {
    #[default]
    Function,
    Custom,
    Patch,
    Shell,
    LocalShell,
}

/// A block of a message, in any format.
#[derive(Clone, Debug, PartialEq)]
pub enum Block {
    /// Text. The flag is a cache marker.
    Text(String, bool),
    /// Signed thinking.
    Thinking(String),
    /// Redacted thinking.
    Redacted(String),
    /// An image by its base64 data.
    Image(String),
    /// A client call.
    Call {
        id: String,
        name: &'static str,
        input: Json,
        kind: CallKind,
    },
    /// The result of a client call. The id is `None` if it was stripped.
    Result {
        id: Option<String>,
        name: &'static str,
        said: Said,
        is_error: bool,
        kind: CallKind,
    },
    /// A server tool's call.
    ServerCall { id: String, query: String },
    /// A server tool's result.
    ServerResult { id: String, query: String },
}

/// A message. In Responses, the items of one output. In Chat Completions and Responses, a tool message has one result.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    pub role: Role,
    pub blocks: Vec<Block>,
    /// `true` if a single text is written as a string.
    pub plain: bool,
    /// Chat: `true` if an assistant message without calls has an empty list of them.
    pub empty_calls: bool,
}

/// A conversation that can be written as a body.
#[derive(Clone, Debug)]
pub struct Conversation {
    pub wire: Wire,
    pub model: &'static str,
    pub messages: Vec<Message>,
    pub style: Style,
    /// Number of tagged texts so far. New tags continue from it.
    pub tags: usize,
    pub seed: u64,
    /// Responses: `true` if earlier messages are at the server.
    pub held: bool,
}

impl Message {
    /// Returns a message of `blocks`.
    pub fn new(role: Role, blocks: Vec<Block>) -> Self {
        Self {
            role,
            blocks,
            plain: false,
            empty_calls: false,
        }
    }

    /// Returns a message of one text.
    pub fn say(role: Role, words: impl Into<String>) -> Self {
        Self {
            plain: true,
            ..Self::new(role, vec![Block::Text(words.into(), false)])
        }
    }

    /// Returns the ids of its client calls.
    pub fn calls(&self) -> impl Iterator<Item = &str> {
        self.blocks.iter().filter_map(|block| match block {
            Block::Call { id, .. } => Some(id.as_str()),
            _ => None,
        })
    }

    /// Reports whether it contains a result of a client call.
    pub fn answers(&self) -> bool {
        self.blocks.iter().any(Block::is_result)
    }

    /// Reports whether it contains thinking.
    pub fn thinks(&self) -> bool {
        self.blocks
            .iter()
            .any(|block| matches!(block, Block::Thinking(_) | Block::Redacted(_)))
    }
}

impl Block {
    /// Reports whether it is the result of a client call.
    pub fn is_result(&self) -> bool {
        matches!(self, Self::Result { .. })
    }
}

impl Conversation {
    /// Reports whether the format is Anthropic's.
    pub fn anthropic(&self) -> bool {
        match self.wire.format {
            Format::Anthropic => true,
            Format::OpenAiChat | Format::OpenAiResponses | Format::Gemini => false,
        }
    }

    /// Returns a text that occurs nowhere else.
    pub fn tag(&mut self, kind: &str) -> String {
        self.tags += 1;
        format!("{kind}-{:x}-{}", self.seed, self.tags)
    }

    /// Reports whether any block belongs to a server tool.
    pub fn has_server_tools(&self) -> bool {
        self.messages
            .iter()
            .flat_map(|message| &message.blocks)
            .any(|block| matches!(block, Block::ServerCall { .. } | Block::ServerResult { .. }))
    }

    /// Reports whether results are parts of a user message instead of messages of their own.
    pub fn joins(&self) -> bool {
        match self.wire.format {
            Format::Anthropic | Format::Gemini => true,
            Format::OpenAiChat | Format::OpenAiResponses => false,
        }
    }

    /// Reports whether the model signs the first call of each of its messages.
    pub fn signs(&self) -> bool {
        self.model.contains("gemini-3")
    }

    /// Returns the role that carries results.
    pub fn answering(&self) -> Role {
        if self.joins() { Role::User } else { Role::Tool }
    }

    /// Returns the body as bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut members = match self.wire.format {
            Format::OpenAiResponses => responses::members(self),
            Format::Gemini => gemini::members(self),
            Format::Anthropic | Format::OpenAiChat => self.members(),
        };
        if self.wire.dialect == Dialect::Standard {
            let large = object([("n", Json::Number("123456789012345678901234567890".into()))]);
            members.push((
                "x_unknown".to_owned(),
                Json::List(vec![large, Json::Number("1.50e+2".into())]),
            ));
        }
        self.style.write(&Json::Object(members))
    }

    fn members(&self) -> Vec<(String, Json)> {
        let mut members = vec![
            ("model".to_owned(), text(self.model)),
            ("max_tokens".to_owned(), Json::Number("1024".into())),
            ("tools".to_owned(), self.tools()),
            ("messages".to_owned(), Json::List(self.written())),
        ];
        if self.anthropic() {
            members.push(("system".to_owned(), text(SYSTEM)));
        }
        members
    }

    /// Returns the messages as JSON. In Responses, the items.
    pub fn written(&self) -> Vec<Json> {
        let messages = self.messages.iter().enumerate();
        messages.flat_map(|(at, message)| self.one(at, message)).collect()
    }

    /// Returns one message as it is written at `at`.
    fn one(&self, at: usize, message: &Message) -> Vec<Json> {
        match self.wire.format {
            Format::Anthropic => vec![anthropic(message)],
            Format::OpenAiChat => vec![chat(message)],
            Format::OpenAiResponses => responses::items(self, at, message),
            Format::Gemini => vec![gemini::content(self, at, message)],
        }
    }

    fn tools(&self) -> Json {
        let path = object([("path", object([("type", text("string"))]))]);
        let schema = || object([("type", text("object")), ("properties", path.clone())]);
        let tool = |name: &&str| {
            if self.anthropic() {
                return object([("name", text(name)), ("input_schema", schema())]);
            }
            let function = object([("name", text(name)), ("parameters", schema())]);
            object([("type", text("function")), ("function", function)])
        };
        let mut tools: Vec<Json> = grow::TOOLS.iter().map(tool).collect();
        if self.has_server_tools() {
            tools.push(object([
                ("type", text("web_search_20250305")),
                ("name", text("web_search")),
            ]));
        }
        Json::List(tools)
    }
}

fn role(role: Role) -> Json {
    text(match role {
        Role::User => "user",
        Role::Assistant => "assistant",
        Role::System => "system",
        Role::Tool => "tool",
    })
}

fn words(words: &str) -> Json {
    object([("type", text("text")), ("text", text(words))])
}

fn anthropic(message: &Message) -> Json {
    let content = match message.blocks.as_slice() {
        [Block::Text(only, false)] if message.plain => text(only),
        blocks => Json::List(blocks.iter().map(anthropic_block).collect()),
    };
    object([("role", role(message.role)), ("content", content)])
}

fn anthropic_block(block: &Block) -> Json {
    match block {
        Block::Text(said, false) => words(said),
        Block::Text(said, true) => object([
            ("type", text("text")),
            ("text", text(said)),
            ("cache_control", object([("type", text("ephemeral"))])),
        ]),
        Block::Thinking(thought) => object([
            ("type", text("thinking")),
            ("thinking", text(thought)),
            ("signature", text("EqQBCgIYAg==")),
        ]),
        Block::Redacted(data) => object([("type", text("redacted_thinking")), ("data", text(data))]),
        Block::Image(data) => image(data),
        Block::Call { id, name, input, .. } => object([
            ("type", text("tool_use")),
            ("id", text(id)),
            ("name", text(name)),
            ("input", input.clone()),
        ]),
        Block::Result { id, said, is_error, .. } => {
            let mut members = vec![("type".to_owned(), text("tool_result"))];
            members.extend(id.iter().map(|id| ("tool_use_id".to_owned(), text(id))));
            match said {
                Said::Nothing => {}
                Said::Text(said) => members.push(("content".into(), text(said))),
                Said::Blocks(texts, data) => {
                    let blocks = texts
                        .iter()
                        .map(|said| words(said))
                        .chain(data.iter().map(|data| image(data)));
                    members.push(("content".into(), Json::List(blocks.collect())));
                }
            }
            if *is_error {
                members.push(("is_error".into(), Json::Bool(true)));
            }
            Json::Object(members)
        }
        Block::ServerCall { id, query } => object([
            ("type", text("server_tool_use")),
            ("id", text(id)),
            ("name", text("web_search")),
            ("input", object([("query", text(query))])),
        ]),
        Block::ServerResult { id, query } => {
            let hit = object([
                ("type", text("web_search_result")),
                ("url", text("https://example.com")),
                ("title", text(query)),
                ("encrypted_content", text("Eo8BCioI")),
            ]);
            object([
                ("type", text("web_search_tool_result")),
                ("tool_use_id", text(id)),
                ("content", Json::List(vec![hit])),
            ])
        }
    }
}

fn image(data: &str) -> Json {
    let source = object([
        ("type", text("base64")),
        ("media_type", text("image/png")),
        ("data", text(data)),
    ]);
    object([("type", text("image")), ("source", source)])
}

fn chat(message: &Message) -> Json {
    let mut members = vec![("role".to_owned(), role(message.role))];
    if let [Block::Result { id, said, .. }] = message.blocks.as_slice() {
        members.extend(id.iter().map(|id| ("tool_call_id".to_owned(), text(id))));
        members.push((
            "content".into(),
            match said {
                Said::Nothing => text(""),
                Said::Text(said) => text(said),
                Said::Blocks(texts, _) => Json::List(texts.iter().map(|said| words(said)).collect()),
            },
        ));
        return Json::Object(members);
    }
    let mut parts = Vec::new();
    let mut calls = Vec::new();
    for block in &message.blocks {
        match block {
            Block::Text(said, _) => parts.push(words(said)),
            Block::Image(data) => {
                let url = object([("url", text(&format!("data:image/png;base64,{data}")))]);
                parts.push(object([("type", text("image_url")), ("image_url", url)]));
            }
            Block::Thinking(thought) => members.push(("reasoning_content".into(), text(thought))),
            Block::Call { id, name, input, kind } => calls.push(chat_call(id, name, input, *kind == CallKind::Custom)),
            _ => {}
        }
    }
    let content = match message.blocks.iter().find(|block| matches!(block, Block::Text(..))) {
        None if parts.is_empty() => Json::Null,
        Some(Block::Text(only, _)) if parts.len() == 1 && message.plain => text(only),
        _ => Json::List(parts),
    };
    members.push(("content".into(), content));
    if !calls.is_empty() || message.empty_calls {
        members.push(("tool_calls".into(), Json::List(calls)));
    }
    Json::Object(members)
}

/// Returns an input as the string that carries it.
fn raw(input: &Json) -> String {
    match input {
        Json::Text(raw) => raw.clone(),
        other => String::from_utf8(Style::default().write(other)).unwrap(),
    }
}

fn chat_call(id: &str, name: &str, input: &Json, custom: bool) -> Json {
    let arguments = raw(input);
    let (kind, key) = if custom {
        ("custom", "input")
    } else {
        ("function", "arguments")
    };
    let body = object([("name", text(name)), (key, text(&arguments))]);
    object([("id", text(id)), ("type", text(kind)), (kind, body)])
}
