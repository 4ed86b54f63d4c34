//! Histories with one element many times, in every wire. They reveal work that grows faster than the body.

mod anthropic;
mod gemini;
mod openai_chat;
mod openai_responses;

use antiphon_core::wire::{Format, Wire};

/// An element of a history.
#[derive(Clone, Copy, Debug)]
pub struct Piece {
    /// Name in a failure message.
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
    /// One message of about as many bytes as this many messages.
    Large(fn(usize) -> String),
}

/// The arrangement of the pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// All of the first, one message each, then all of the second.
    Apart,
    /// The first and the second alternating, one message each.
    Mixed,
    /// All of the first in one message, then all of the second in another.
    Together,
}

impl Layout {
    /// Every layout.
    pub const ALL: [Self; 3] = [Self::Apart, Self::Mixed, Self::Together];
}

/// Two pieces of a history, many times each.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Wire of the history.
    pub wire: Wire,
    /// First piece.
    pub first: Piece,
    /// Second piece.
    pub second: Piece,
    /// Arrangement of the pieces.
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

    /// Reports whether it is one long message instead of many.
    pub const fn is_large(&self) -> bool {
        matches!(self.kind, Kind::Large(_))
    }

    /// Reports whether many fit into one message.
    pub const fn is_block(&self) -> bool {
        matches!(self.kind, Kind::Block(..))
    }

    /// Returns the message of this ordinal.
    fn one(&self, format: Format, index: usize) -> String {
        match self.kind {
            Kind::Message(write) => write(index),
            Kind::Block(role, write) => message(format, role, &write(index)),
            Kind::Large(write) => write(index.max(1)),
        }
    }

    /// Returns `size` pieces, each in its own message.
    fn apart(&self, format: Format, size: usize) -> Vec<String> {
        match self.kind {
            Kind::Large(write) => vec![write(size)],
            _ => (0..size).map(|index| self.one(format, index)).collect(),
        }
    }

    /// Returns `size` pieces in as few messages as possible.
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

/// Returns a message of these blocks.
fn message(format: Format, role: &str, blocks: &str) -> String {
    match format {
        Format::Anthropic => format!(r#"{{"role":"{role}","content":[{blocks}]}}"#),
        Format::OpenAiChat => format!(r#"{{"role":"{role}","tool_calls":[{blocks}]}}"#),
        Format::OpenAiResponses => blocks.to_owned(),
        Format::Gemini => format!(r#"{{"role":"{role}","parts":[{blocks}]}}"#),
    }
}

impl Shape {
    /// Returns the body with `size` of each piece.
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

    /// Returns its name for a failure message.
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

/// Returns a user message.
const fn opening(format: Format) -> &'static str {
    match format {
        Format::Anthropic | Format::OpenAiChat | Format::OpenAiResponses => r#"{"role":"user","content":"go"}"#,
        Format::Gemini => r#"{"role":"user","parts":[{"text":"go"}]}"#,
    }
}

/// Returns every piece of a format's histories.
pub fn pieces(format: Format) -> Vec<Piece> {
    match format {
        Format::Anthropic => anthropic::pieces(),
        Format::OpenAiChat => openai_chat::pieces(),
        Format::OpenAiResponses => openai_responses::pieces(),
        Format::Gemini => gemini::pieces(),
    }
}

/// Returns a text of about as many bytes as `size` messages.
fn long(size: usize) -> String {
    "x".repeat(size * 60)
}
