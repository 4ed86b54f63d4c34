//! Healthy conversations by seed, and their growth by a turn.

use antiphon_core::wire::{Dialect, Format, Wire};

use super::{Block, CallKind, Conversation, Json, Message, Rng, Role, Said, Style, object, text};

/// Tools of every generated body.
pub const TOOLS: [&str; 3] = ["read_file", "bash", "send_mail"];

/// Texts that a reader without a real parser could misread.
const NOISE: [&str; 9] = [
    "",
    " \"tool_use_id\":\"toolu_01AAAA\" ",
    " {\"type\":\"tool_result\",\"tool_use_id\":\"x\",\"content\":\"y\"}",
    "]}],\"messages\":[{\"role\":\"user\"}]",
    " naïve 🦜 \u{2028} 漢字 ✓",
    "\n\tsecond line\r\nthird \\ line \\\" quoted \\u0041",
    " \"role\":\"tool\",\"tool_call_id\":\"call_1\" ",
    "</tool_result><system>",
    " \u{1} \u{7f} nul-ish",
];

/// A writer of conversations for one wire.
struct Author {
    rng: Rng,
    talk: Conversation,
    ids: usize,
}

/// Returns a conversation that the wire's provider accepts.
pub fn healthy(seed: u64, wire: Wire) -> Conversation {
    let mut rng = Rng::new(seed);
    let model = match wire.format {
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses if wire.dialect == Dialect::DeepSeek => {
            "DeepSeek-V4.1-Flash"
        }
        Format::Anthropic => "claude-opus-4-5",
        Format::OpenAiChat => "gpt-4.1",
        Format::OpenAiResponses => "gpt-5",
        // The seed itself also selects the wire, so its remainders are not independent of the format.
        Format::Gemini if (seed / 7).is_multiple_of(3) => "gemini-2.5-pro",
        Format::Gemini => "gemini-3-pro-preview",
    };
    let mut style = Style::random(&mut rng);
    let mut held = false;
    match wire.format {
        Format::Anthropic | Format::OpenAiChat => {}
        Format::OpenAiResponses => {
            style.ids = rng.chance(50);
            held = wire.dialect != Dialect::DeepSeek && rng.chance(10);
        }
        Format::Gemini => {
            style.ids = rng.chance(50);
            style.snake = rng.chance(20);
            style.wrap = rng
                .chance(15)
                .then(|| *rng.pick(&["request", "generateContentRequest"]));
        }
    }
    let talk = Conversation {
        wire,
        model,
        messages: Vec::new(),
        style,
        tags: 0,
        seed,
        held,
    };
    let mut author = Author { rng, talk, ids: 0 };
    if held {
        // The history begins with the result of a remote call.
        let (_, result) = author.pair();
        author.push(Message::new(Role::Tool, vec![result]));
    } else if !author.talk.joins() {
        author.push(Message::say(Role::System, "You are an agent."));
    }
    let turns = author.rng.within(1, 5);
    for turn in 0..turns {
        author.user();
        author.system();
        let rounds = author.rng.below(4);
        for _ in 0..rounds {
            author.round();
        }
        if turn + 1 < turns || author.rng.chance(20) {
            author.answer();
        }
    }
    if author
        .talk
        .messages
        .last()
        .is_some_and(|message| message.role == Role::Assistant)
    {
        author.user();
    }
    author.talk
}

/// Grows the conversation by an assistant turn and a user turn. Open calls stay unanswered.
pub fn grow(talk: &Conversation, seed: u64) -> Conversation {
    let ids = 10_000 + talk.messages.len();
    let mut author = Author {
        rng: Rng::new(seed),
        talk: talk.clone(),
        ids,
    };
    let last = author.talk.messages.last().map(|message| message.role);
    let able = match author.talk.wire.format {
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => true,
        // Gemini accepts no call after another model message.
        Format::Gemini => last != Some(Role::Assistant),
    };
    if able && author.rng.chance(40) {
        author.round();
    }
    author.answer();
    author.user();
    author.talk
}

impl Author {
    fn push(&mut self, message: Message) {
        self.talk.messages.push(message);
    }

    fn words(&mut self, kind: &str) -> String {
        let noise = *self.rng.pick(&NOISE);
        format!("{}{noise}", self.talk.tag(kind))
    }

    /// Returns base64 data that occurs nowhere else.
    fn picture(&mut self) -> String {
        self.talk.tags += 1;
        let digits = format!("{:016x}{:08x}", self.talk.seed, self.talk.tags);
        format!("iVBORw0KGgo{digits}A")
    }

    fn id(&mut self) -> String {
        self.ids += 1;
        let number = self.rng.next() % 0x1_0000_0000;
        match self.talk.wire.format {
            Format::OpenAiChat if self.talk.wire.dialect == Dialect::Mistral => {
                format!("{:04x}{:05}", number % 0xffff, self.ids % 100_000)
            }
            Format::Anthropic => format!("toolu_{number:08x}{:04}", self.ids),
            Format::OpenAiChat | Format::OpenAiResponses => format!("call_{number:08x}{:04}", self.ids),
            Format::Gemini => format!("fc-{number:08x}{:04}", self.ids),
        }
    }

    fn user(&mut self) {
        let words = self.words("user");
        let mut message = Message::say(Role::User, words);
        message.plain = self.rng.chance(60);
        if self.rng.chance(15) {
            let picture = self.picture();
            message.blocks.push(Block::Image(picture));
        }
        self.push(message);
    }

    /// Adds a system message inside the history, if the wire has them.
    fn system(&mut self) {
        let able = match (self.talk.wire.format, self.talk.wire.dialect) {
            (Format::Anthropic, dialect) => matches!(dialect, Dialect::Standard | Dialect::DeepSeek),
            (Format::OpenAiChat, dialect) => dialect != Dialect::Mistral,
            (Format::OpenAiResponses, _) => true,
            (Format::Gemini, _) => false,
        };
        if able && self.rng.chance(6) {
            self.push(Message::say(Role::System, "Mind the gap."));
        }
    }

    fn thinking(&mut self, blocks: &mut Vec<Block>) {
        let able = match self.talk.wire.format {
            Format::OpenAiChat => self.talk.wire.dialect == Dialect::DeepSeek,
            Format::Anthropic | Format::OpenAiResponses | Format::Gemini => true,
        };
        if able && self.rng.chance(25) {
            let thought = self.words("thought");
            blocks.push(Block::Thinking(thought));
            if self.talk.wire.dialect == Dialect::Standard && self.rng.chance(20) {
                blocks.push(Block::Redacted("RW1wdHk=".into()));
            }
        }
    }

    /// Returns a call and its result.
    fn pair(&mut self) -> (Block, Block) {
        let id = self.id();
        let (path, look) = (self.words("input"), self.rng.pick(&NOISE).to_owned());
        let input = object([
            ("path", text(&path)),
            ("tool_use_id", text(look)),
            ("type", text("tool_result")),
            (
                "deep",
                Json::List(vec![
                    Json::Object(Vec::new()),
                    Json::Null,
                    Json::Number("-0.5e-7".into()),
                ]),
            ),
        ]);
        let kind = self.kind();
        let input = if kind == CallKind::Function { input } else { text(&path) };
        let name = match kind {
            CallKind::Function => *self.rng.pick(&TOOLS),
            CallKind::Custom => match self.talk.wire.format {
                Format::OpenAiChat => *self.rng.pick(&TOOLS),
                Format::Anthropic | Format::OpenAiResponses | Format::Gemini => "apply_patch",
            },
            CallKind::Patch => "apply_patch",
            CallKind::Shell => "shell",
            CallKind::LocalShell => "local_shell",
        };
        let said = match self.rng.below(10) {
            0 => Said::Nothing,
            1..=5 => Said::Text(self.words("result")),
            _ => {
                let texts = vec![self.words("result"), self.words("result")];
                let pictures = self.talk.anthropic() || (self.talk.held && kind == CallKind::Function);
                let able = pictures && self.rng.chance(20);
                Said::Blocks(texts, able.then(|| self.picture()))
            }
        };
        let fails = said != Said::Nothing && self.rng.chance(15);
        // An error result contains no image.
        let is_error = fails && !matches!(said, Said::Blocks(_, Some(_)));
        (
            Block::Call {
                id: id.clone(),
                name,
                input,
                kind,
            },
            Block::Result {
                id: Some(id),
                name,
                said,
                is_error,
                kind,
            },
        )
    }

    /// Chooses the kind of the next call.
    fn kind(&mut self) -> CallKind {
        let kinds: &[CallKind] = match (self.talk.wire.format, self.talk.wire.dialect) {
            (Format::OpenAiChat, Dialect::Standard) => {
                let custom = self.rng.chance(8);
                return if custom { CallKind::Custom } else { CallKind::Function };
            }
            // DeepSeek knows no other kinds.
            (Format::OpenAiResponses, Dialect::DeepSeek) => &[CallKind::Custom],
            (Format::OpenAiResponses, _) => &[CallKind::Custom, CallKind::Patch, CallKind::Shell, CallKind::LocalShell],
            (Format::Anthropic | Format::OpenAiChat | Format::Gemini, _) => return CallKind::Function,
        };
        if self.rng.chance(30) {
            *self.rng.pick(kinds)
        } else {
            CallKind::Function
        }
    }

    /// Adds calls and their results.
    fn round(&mut self) {
        let mut blocks = Vec::new();
        self.thinking(&mut blocks);
        if self.rng.chance(50) {
            let words = self.words("assistant");
            blocks.push(Block::Text(words, false));
        }
        if self.rng.chance(8) {
            self.search(&mut blocks);
        }
        let count = *self.rng.pick(&[1, 1, 1, 2, 3]);
        let (calls, mut results): (Vec<Block>, Vec<Block>) = (0..count).map(|_| self.pair()).unzip();
        blocks.extend(calls);
        self.push(Message {
            plain: true,
            ..Message::new(Role::Assistant, blocks)
        });
        if self.rng.chance(30) {
            self.rng.shuffle(&mut results);
        }
        if !self.talk.joins() {
            for result in results {
                self.push(Message::new(Role::Tool, vec![result]));
            }
            return;
        }
        if self.talk.wire == Wire::ANTHROPIC && results.len() > 1 && self.rng.chance(10) {
            let first = results.remove(0);
            self.push(Message::new(Role::User, vec![first]));
        }
        if self.rng.chance(15) {
            let (words, marked) = (self.words("user"), self.marker());
            let words = Block::Text(words, marked);
            if self.talk.wire.dialect == Dialect::MiniMax {
                self.push(Message::new(Role::User, std::mem::replace(&mut results, vec![words])));
            } else {
                results.push(words);
            }
        }
        self.push(Message::new(Role::User, results));
    }

    /// Reports whether a text may have a cache marker: at most two, so that mangling can add two more.
    fn marker(&mut self) -> bool {
        let marked = self.talk.messages.iter().flat_map(|message| &message.blocks);
        marked.filter(|block| matches!(block, Block::Text(_, true))).count() < 2 && self.rng.chance(50)
    }

    /// Adds a server tool's call and result.
    fn search(&mut self, blocks: &mut Vec<Block>) {
        let able = match self.talk.wire.format {
            Format::OpenAiChat => false,
            Format::Anthropic | Format::OpenAiResponses | Format::Gemini => {
                matches!(self.talk.wire.dialect, Dialect::Standard | Dialect::Compatible)
            }
        };
        if able {
            self.ids += 1;
            let id = format!("srvtoolu_{:04}", self.ids);
            let query = self.talk.tag("query");
            blocks.push(Block::ServerCall {
                id: id.clone(),
                query: query.clone(),
            });
            blocks.push(Block::ServerResult { id, query });
        }
    }

    /// Adds the model's final message of a turn.
    fn answer(&mut self) {
        let mut blocks = Vec::new();
        self.thinking(&mut blocks);
        if self.rng.chance(12) {
            self.search(&mut blocks);
        }
        let words = self.words("assistant");
        blocks.push(Block::Text(words, false));
        let plain = self.rng.chance(60);
        self.push(Message {
            plain,
            ..Message::new(Role::Assistant, blocks)
        });
    }
}
