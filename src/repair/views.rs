//! The calls of a body as they stand in it, for those who look for a few of them.

use std::fmt;

use super::{
    RepairPolicy, equal,
    naming::{CallKey, input_hash},
    rules,
    sight::Sights,
};
use crate::{
    conversation::{lost::is_lost, pairing::pair},
    splice::Span,
    wire::{Wire, json::Json},
};

/// A call of a body.
#[derive(Clone, PartialEq, Eq)]
pub struct CallView {
    /// Its name.
    pub key: CallKey,
    /// The decoded id.
    pub id: Vec<u8>,
    /// The decoded name of the tool.
    pub tool: Vec<u8>,
    /// The hash of its canonical input.
    pub input: [u8; 32],
    /// What answers it.
    pub answer: InBody,
    /// The result in its place: what it says, and whether the tool reported an error.
    pub said: Option<Said>,
}

/// What a result in a body says. Spans point into the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    /// The content, as JSON.
    pub content: Span,
    /// Whether the tool reported an error.
    pub failed: bool,
}

impl fmt::Debug for CallView {
    // Never what a client says.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallView({:?}, {:?})", self.key, self.answer)
    }
}

/// What answers a call in its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InBody {
    /// A result where it belongs.
    AtHome {
        /// Whether it only says that the client has none.
        lost: bool,
    },
    /// A result elsewhere.
    Elsewhere,
    /// Nothing.
    Nothing,
}

/// The calls of a body, and whether its last turn may be followed by results alone, since a tool runs at the provider.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Views {
    /// The calls in document order.
    pub calls: Vec<CallView>,
    /// Whether nothing but results may follow.
    pub only_results: bool,
    /// How many messages there are.
    pub messages: usize,
}

impl Views {
    /// Whether this message is the last.
    pub const fn ends_at(&self, message: usize) -> bool {
        message.saturating_add(1) == self.messages
    }
}

/// The calls of a body; of one without a history of its own none.
pub fn views(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Views {
    let Ok(conversation) = wire.read(body) else {
        return Views::default();
    };
    let pairing = pair(&conversation, rules(wire, policy));
    let sights = Sights::new(&conversation, &pairing);
    let json = Json::new(body);
    let calls = pairing.calls.iter().enumerate().map(|(index, call)| {
        let sight = sights.of(index);
        let answer = match call.answer.and_then(|row| pairing.results.get(row)) {
            Some(row) if row.home => InBody::AtHome {
                lost: conversation.said(row.part).is_some_and(|text| is_lost(&text)),
            },
            Some(_) => InBody::Elsewhere,
            None => InBody::Nothing,
        };
        let home = call
            .answer
            .and_then(|row| pairing.results.get(row))
            .filter(|row| row.home);
        let said = home.and_then(|row| said(json, conversation.parts.get(row.part)?.span));
        CallView {
            said,
            key: CallKey::of(&sight),
            id: sight.id.to_vec(),
            tool: sight.tool.to_vec(),
            input: input_hash(sight.input),
            answer,
        }
    });
    Views {
        calls: calls.collect(),
        messages: conversation.messages.len(),
        only_results: pairing.turns.last().is_some_and(|turn| turn.only_results),
    }
}

fn said(json: Json<'_>, result: Span) -> Option<Said> {
    let inside = equal::inside(json, result);
    let mut contents = ["content", "output", "response"].into_iter();
    let content = contents.find_map(|key| json.member(inside, key))?;
    let failed = json.member(inside, "is_error");
    Some(Said {
        content,
        failed: failed.is_some_and(|failed| json.bytes(failed) == b"true"),
    })
}
