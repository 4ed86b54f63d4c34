//! Units and turns: how messages group into turns, and what stands in the gap of each.

use std::ops::Range;

use crate::conversation::{Conversation, PartKind, Role, rules::PairingRules};

/// A message, or a piece of an assistant message that holds tool results between its own words.
#[derive(Clone, Debug)]
pub struct Unit {
    /// Index of the message.
    pub message: usize,
    /// The parts, as indices into [`Conversation::parts`].
    pub parts: Range<usize>,
    /// Who speaks; a piece of results inside an assistant message counts as the user's.
    pub role: Role,
    /// Whether it is such a piece.
    pub inner: bool,
}

/// A turn of the assistant and the gap behind it.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Its units.
    pub units: Range<usize>,
    /// The units between it and the next assistant turn.
    pub gap: Range<usize>,
    /// Its client calls, as indices into the pairing's calls.
    pub calls: Range<usize>,
    /// Whether it holds signed reasoning.
    pub thinking: bool,
    /// Whether code at the provider made one of its calls.
    pub programmatic: bool,
    /// Whether the user turn behind it may hold results only, since a server call is open.
    pub only_results: bool,
    /// Where results that have to be put in go; none: as a message of their own behind the turn.
    pub anchor: Option<Anchor>,
    /// System messages that stand before the answering user message: they go behind it.
    pub systems: Range<usize>,
}

/// A place in the gap of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Anchor {
    /// The unit.
    pub unit: usize,
    /// Behind this part; none: in front of the unit's first.
    pub behind: Option<usize>,
}

/// Cuts the messages into units.
pub fn units(conversation: &Conversation<'_>) -> Vec<Unit> {
    let mut units = Vec::with_capacity(conversation.messages.len());
    for (message, found) in conversation.messages.iter().enumerate() {
        let is_result = |index: usize| matches!(conversation.parts.get(index), Some(part) if matches!(part.kind, PartKind::Result(_)));
        if found.role != Role::Assistant || !found.parts.clone().any(is_result) {
            units.push(Unit {
                message,
                parts: found.parts.clone(),
                role: found.role,
                inner: false,
            });
            continue;
        }
        let mut from = found.parts.start;
        while from < found.parts.end {
            let inner = is_result(from);
            let to = (from..found.parts.end)
                .find(|index| is_result(*index) != inner)
                .unwrap_or(found.parts.end);
            let role = if inner { Role::User } else { Role::Assistant };
            units.push(Unit {
                message,
                parts: from..to,
                role,
                inner,
            });
            from = to;
        }
    }
    units
}

/// Groups the units into assistant turns, each with its gap.
pub fn turns(units: &[Unit], rules: PairingRules) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for (index, unit) in units.iter().enumerate() {
        let next = index + 1;
        if unit.role != Role::Assistant {
            if let Some(turn) = turns.last_mut() {
                turn.gap.end = next;
            }
            continue;
        }
        match turns.last_mut() {
            Some(turn) if rules.combines && turn.units.end == index => {
                turn.units.end = next;
                turn.gap = next..next;
            }
            _ => turns.push(Turn {
                units: index..next,
                gap: next..next,
                ..Turn::default()
            }),
        }
    }
    turns
}
