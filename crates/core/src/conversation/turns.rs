//! Units and turns: the grouping of messages into assistant turns and the gaps after them.

use std::{collections::HashSet, ops::Range};

use crate::{
    conversation::{
        Conversation, Part, PartId, PartKind, Role,
        rules::{MergedRoles, PairingRules, ResultPlace},
    },
    work,
};

/// A message, or a piece of an assistant message that is split because it contains tool results.
#[derive(Clone, Debug)]
pub struct TurnUnit {
    /// Index of the message.
    pub message: usize,
    /// Its parts, as indices into [`Conversation::parts`].
    pub parts: Range<usize>,
    /// Its author. A piece of results inside an assistant message counts as the user's.
    pub role: Role,
    /// `true` if it is such a piece.
    pub inner: bool,
}

/// An assistant turn and the gap after it.
#[derive(Clone, Debug, Default)]
pub struct Turn {
    /// Its units.
    pub units: Range<usize>,
    /// Units between it and the next assistant turn.
    pub gap: Range<usize>,
    /// Its client calls, as indices into the pairing's calls.
    pub calls: Range<usize>,
    /// `true` if it contains signed reasoning.
    pub thinking: bool,
    /// `true` if code at the provider made one of its calls.
    pub programmatic: bool,
    /// `true` if the user turn after it may contain results only, because a server call is open.
    pub only_results: bool,
    /// Place for inserted results. `None` if they need a message of their own after the turn.
    pub insert_at: Option<InsertPoint>,
    /// System messages before the answering user message. They move after it.
    pub systems: Range<usize>,
}

/// A place in the gap of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InsertPoint {
    /// The unit.
    pub unit: usize,
    /// The part before the place. `None` if the place is before the first part of the unit.
    pub after: Option<PartId>,
}

/// Splits the messages into units.
pub fn split_units(conversation: &Conversation<'_>) -> Vec<TurnUnit> {
    let mut units = Vec::with_capacity(conversation.messages.len());
    for (message, found) in conversation.messages.iter().enumerate() {
        work::count(1);
        let is_result = |index: usize| {
            work::count(1);
            matches!(conversation.parts.get(index), Some(part) if matches!(part.kind, PartKind::Result(_)))
        };
        if found.role != Role::Assistant || !found.parts.clone().any(is_result) {
            units.push(TurnUnit {
                message,
                parts: found.parts.clone(),
                role: found.role,
                inner: false,
            });
            continue;
        }
        // The provider refuses results in an assistant message, so each run of results becomes a unit of the user.
        let mut from = found.parts.start;
        while from < found.parts.end {
            let inner = is_result(from);
            let to = (from..found.parts.end)
                .find(|index| is_result(*index) != inner)
                .unwrap_or(found.parts.end);
            let role = if inner { Role::User } else { Role::Assistant };
            units.push(TurnUnit {
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

/// Groups the units into assistant turns, each with its gap. Parts before `begin` are not judged.
pub fn group_turns(
    conversation: &Conversation<'_>,
    units: &[TurnUnit],
    rules: PairingRules,
    begin: PartId,
) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    let mut index = 0;
    while index < units.len() {
        work::count(1);
        if units[index].role != Role::Assistant {
            index += 1;
            // Messages before the first assistant turn belong to no gap.
            if let Some(turn) = turns.last_mut() {
                turn.gap.end = index;
            }
            continue;
        }
        let same = |unit: &&TurnUnit| unit.role == Role::Assistant;
        let end = index
            + match rules.merged_roles {
                MergedRoles::None => 1,
                _ => units[index..].iter().take_while(same).count(),
            };
        work::count(end.saturating_sub(index));
        let mut start = index;
        let closed: Vec<usize> = closed_units(conversation, units, index..end, begin).collect();
        let ends = |next: &usize| {
            closed.binary_search(next).is_ok() || ends_after_calls(conversation, units, *next, rules.place)
        };
        for next in (index + 1..end).filter(ends) {
            turns.push(Turn {
                units: start..next,
                gap: next..next,
                ..Turn::default()
            });
            start = next;
        }
        turns.push(Turn {
            units: start..end,
            gap: end..end,
            ..Turn::default()
        });
        index = end;
    }
    turns
}

/// Returns `true` if a turn ends before the unit `next` because of its calls.
///
/// In a flat list of items a turn ends after its calls. In Gemini each signed call begins a step of its own.
fn ends_after_calls(conversation: &Conversation<'_>, units: &[TurnUnit], next: usize, place: ResultPlace) -> bool {
    let parts = |unit: usize| {
        work::count(units[unit].parts.len());
        &conversation.parts[units[unit].parts.clone()]
    };
    let is_call = |part: &Part<'_>| matches!(part.kind, PartKind::Call(_));
    let after_calls = || next > 0 && parts(next - 1).iter().any(is_call);
    match place {
        ResultPlace::Anywhere | ResultPlace::ItemRun => !parts(next).iter().any(is_call) && after_calls(),
        // Only the first call of a step is signed, and its parallel siblings are not.
        ResultPlace::NextContent => {
            let first = parts(next).iter().find_map(|part| match &part.kind {
                PartKind::Call(call) => Some(call.signed),
                _ => None,
            });
            first == Some(true) && after_calls()
        }
        ResultPlace::UserTurn | ResultPlace::ToolRun => false,
    }
}

/// Returns the units at which a turn begins inside a run of assistant messages that the provider would combine.
///
/// Such a unit follows a message with calls that have no result after the run. An earlier request ended with that
/// message, and the proxy answered its calls there. The same place keeps the prefix the same.
fn closed_units(
    conversation: &Conversation<'_>,
    units: &[TurnUnit],
    run: Range<usize>,
    begin: PartId,
) -> impl Iterator<Item = usize> {
    let answered: HashSet<&[u8]> = if run.len() > 1 {
        let gap = units[run.end..].iter().take_while(|unit| unit.role != Role::Assistant);
        let results = gap.flat_map(|unit| {
            work::count(unit.parts.len().saturating_add(1));
            conversation.parts[unit.parts.clone()].iter()
        });
        results
            .filter_map(|part| {
                if let PartKind::Result(result) = &part.kind {
                    Some(result.call_name())
                } else {
                    None
                }
            })
            .collect()
    } else {
        HashSet::new()
    };
    run.skip(1).filter(move |next| {
        let parts = units[next - 1].parts.clone();
        work::count(parts.len());
        let from = parts.start.max(begin.index()).min(parts.end);
        let mut calls = conversation.parts[from..parts.end]
            .iter()
            .filter_map(|part| match &part.kind {
                PartKind::Call(call) => Some(call.call_name()),
                _ => None,
            });
        // A result without an id may answer any of the calls, so the run stays one turn.
        let nameless = answered.contains(b"".as_slice());
        let first = calls.next();
        !nameless && first.is_some_and(|id| !answered.contains(id)) && !calls.any(|id| answered.contains(id))
    })
}
