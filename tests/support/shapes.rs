//! Histories that say one thing many times over, in every wire: where work grows faster than the body, it shows here.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

use antiphon::wire::{Format, Wire};

/// One thing that a history says.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// The name in a failure's message.
    pub name: &'static str,
    kind: Kind,
}

/// The form of a piece.
#[derive(Clone, Copy, Debug)]
enum Kind {
    /// A whole message, by its ordinal.
    Message(fn(usize) -> String),
    /// A block of a message of this role, by its ordinal.
    Block(&'static str, fn(usize) -> String),
    /// One message of about as many bytes as so many messages have.
    Large(fn(usize) -> String),
}

/// How the pieces of a history stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All of the first in a message each, then all of the second.
    Apart,
    /// The first and the second by turns, in a message each.
    Mixed,
    /// All of the first in one message, then all of the second in another.
    Together,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Mixed, Self::Together];
}

/// Two pieces of a history, many times over.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Whose history it is.
    pub wire: Wire,
    /// The piece that comes first.
    pub first: Piece,
    /// The piece that follows.
    pub second: Piece,
    /// How they stand.
    pub layout: Layout,
}

impl Piece {
    const fn message(name: &'static str, write: fn(usize) -> String) -> Self {
        Self {
            name,
            kind: Kind::Message(write),
        }
    }

    const fn block(name: &'static str, role: &'static str, write: fn(usize) -> String) -> Self {
        Self {
            name,
            kind: Kind::Block(role, write),
        }
    }

    const fn large(name: &'static str, write: fn(usize) -> String) -> Self {
        Self {
            name,
            kind: Kind::Large(write),
        }
    }

    /// Whether it is one long message, however often it is asked for.
    pub const fn is_large(&self) -> bool {
        matches!(self.kind, Kind::Large(_))
    }

    /// Whether many of it fit into one message.
    pub const fn is_block(&self) -> bool {
        matches!(self.kind, Kind::Block(..))
    }

    /// The message of this ordinal.
    fn one(&self, format: Format, index: usize) -> String {
        match self.kind {
            Kind::Message(write) => write(index),
            Kind::Block(role, write) => message(format, role, &write(index)),
            Kind::Large(write) => write(index.max(1)),
        }
    }

    /// So many of it, each in a message of its own.
    fn apart(&self, format: Format, size: usize) -> Vec<String> {
        match self.kind {
            Kind::Large(write) => vec![write(size)],
            _ => (0..size).map(|index| self.one(format, index)).collect(),
        }
    }

    /// So many of it in as few messages as may be.
    fn together(&self, format: Format, size: usize) -> Vec<String> {
        match self.kind {
            Kind::Block(role, write) => {
                let blocks: Vec<String> = (0..size).map(write).collect();
                vec![message(format, role, &blocks.join(","))]
            }
            _ => self.apart(format, size),
        }
    }
}

/// A message of these blocks.
fn message(format: Format, role: &str, blocks: &str) -> String {
    match format {
        Format::Anthropic => format!(r#"{{"role":"{role}","content":[{blocks}]}}"#),
        Format::OpenAiChat => format!(r#"{{"role":"{role}","tool_calls":[{blocks}]}}"#),
        Format::OpenAiResponses => blocks.to_owned(),
        Format::Gemini => format!(r#"{{"role":"{role}","parts":[{blocks}]}}"#),
    }
}

impl Shape {
    /// The body with so many of each piece.
    pub fn body(&self, size: usize) -> String {
        let format = self.wire.format;
        let mut messages = vec![opening(format).to_owned()];
        match self.layout {
            Layout::Apart => {
                messages.extend(self.first.apart(format, size));
                messages.extend(self.second.apart(format, size));
            }
            Layout::Mixed => {
                let large = self.first.is_large().then(|| self.first.apart(format, size));
                messages.extend(large.into_iter().flatten());
                for index in 0..size {
                    let first = (!self.first.is_large()).then(|| self.first.one(format, index));
                    messages.extend(first);
                    messages.push(self.second.one(format, index));
                }
            }
            Layout::Together => {
                messages.extend(self.first.together(format, size));
                messages.extend(self.second.together(format, size));
            }
        }
        messages.push(opening(format).to_owned());
        let key = match format {
            Format::Anthropic | Format::OpenAiChat => "messages",
            Format::OpenAiResponses => "input",
            Format::Gemini => "contents",
        };
        format!(r#"{{"{key}":[{}]}}"#, messages.join(","))
    }

    /// Its name in a failure's message.
    pub fn name(&self) -> String {
        let Self {
            wire,
            first,
            second,
            layout,
        } = self;
        format!("{wire}: {} and {} ({layout:?})", first.name, second.name)
    }
}

/// Words of the user's.
const fn opening(format: Format) -> &'static str {
    match format {
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => r#"{"role":"user","content":"go"}"#,
        Format::Gemini => r#"{"role":"user","parts":[{"text":"go"}]}"#,
    }
}

/// Everything that a history of this format may say.
pub fn pieces(format: Format) -> Vec<Piece> {
    match format {
        Format::Anthropic => anthropic::pieces(),
        Format::OpenAiChat => openai_chat::pieces(),
        Format::OpenAiResponses => openai_responses::pieces(),
        Format::Gemini => gemini::pieces(),
    }
}

/// A text of about as many bytes as so many messages have.
fn long(size: usize) -> String {
    "x".repeat(size * 60)
}
