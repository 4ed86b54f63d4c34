//! What a thinking model hands to the client and wants back: signatures, encrypted reasoning, reasoning text.

use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::{Format, judge::ReasoningRule};

/// Number of providers so far. No two sign alike, as no two accounts do.
static PROVIDERS: AtomicU64 = AtomicU64::new(0);

/// The mark of one provider, which enters each of its seals.
#[derive(Debug)]
pub(crate) struct Maker(u64);

impl Maker {
    /// Returns a mark that no other provider of this process has.
    pub(crate) fn new() -> Self {
        Self(PROVIDERS.fetch_add(1, Ordering::Relaxed))
    }

    /// Returns the id of a response that only this provider gives.
    pub(crate) fn response_id(&self, number: usize) -> String {
        format!("resp_{:04}{number:08}", self.0)
    }

    /// Thinks before answer `number` of a format.
    pub(crate) fn think(&self, format: Format, number: usize) -> Thought {
        let hash = blake3::hash(format!("{} {number}", self.0).as_bytes()).to_hex();
        // The first letters are those of the real ones, so that a reader can tell the makers apart.
        let (lead, length) = match format {
            Format::Messages => ("EqQBCkYI", 56),
            Format::Responses => ("gAAAAABo", 56),
            Format::Chat | Format::Gemini => ("CiQB", 60),
        };
        let tail = hash.as_str().get(..length).unwrap_or_default();
        Thought {
            words: format!("thought {number}"),
            seal: format!("{lead}{tail}"),
        }
    }
}

/// One thought of the model.
#[derive(Clone, Debug)]
pub(crate) struct Thought {
    /// Its text.
    pub(crate) words: String,
    /// Its signature, or its encrypted form.
    pub(crate) seal: String,
}

impl Thought {
    /// Returns the thought as a block of Messages.
    pub(crate) fn block(&self) -> Value {
        json!({"type": "thinking", "thinking": self.words, "signature": self.seal})
    }

    /// Returns the thought as an item of Responses.
    pub(crate) fn item(&self, id: &str) -> Value {
        json!({"type": "reasoning", "id": id, "summary": [], "encrypted_content": self.seal})
    }
}

/// The place of a thought in an answer of Chat Completions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ChatThought {
    /// `reasoning_content` of the message.
    Content,
    /// `extra_content.google.thought_signature` of the first call.
    GoogleExtra,
}

impl ChatThought {
    /// Returns the place that a server with this rule uses.
    pub(crate) const fn of_rule(rule: Option<ReasoningRule>) -> Self {
        match rule {
            Some(ReasoningRule::Gemini | ReasoningRule::Vertex) => Self::GoogleExtra,
            _ => Self::Content,
        }
    }
}
