//! The calls of a body as they stand in it, for those who look for a few of them.

use super::{
    RepairPolicy,
    naming::{CallKey, input_hash},
    rules,
    sight::Sights,
};
use crate::{
    conversation::{lost::is_lost, pairing::pair},
    wire::Wire,
};

/// A call of a body.
#[derive(Clone, Debug, PartialEq, Eq)]
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
}

/// The calls of a body; of one without a history of its own none.
pub fn views(body: &[u8], wire: Wire, policy: &RepairPolicy) -> Views {
    let Ok(conversation) = wire.read(body) else {
        return Views::default();
    };
    let pairing = pair(&conversation, rules(wire, policy));
    let sights = Sights::new(&conversation, &pairing);
    let calls = pairing.calls.iter().enumerate().map(|(index, call)| {
        let sight = sights.of(index);
        let answer = match call.answer.and_then(|row| pairing.results.get(row)) {
            Some(row) if row.home => InBody::AtHome {
                lost: conversation.said(row.part).is_some_and(|text| is_lost(&text)),
            },
            Some(_) => InBody::Elsewhere,
            None => InBody::Nothing,
        };
        CallView {
            key: CallKey::of(&sight),
            id: sight.id.to_vec(),
            tool: sight.tool.to_vec(),
            input: input_hash(sight.input),
            answer,
        }
    });
    Views {
        calls: calls.collect(),
        only_results: pairing.turns.last().is_some_and(|turn| turn.only_results),
    }
}
