//! Text in places where the provider accepts none: after a call, or with or after results.

use crate::{
    conversation::{
        Conversation, Part, PartId, PartKind, Role,
        pairing::{Pairing, in_turn::PairingWalk},
        rules::WordsPlace,
        turns::TurnUnit,
    },
    work,
};

/// Text in a place where the provider accepts none. Images and documents count as text.
#[derive(Clone, Copy, Debug)]
pub struct MisplacedWords {
    /// Index of the unit.
    pub unit: usize,
    /// The first misplaced part. `None` if the whole message is misplaced.
    pub part: Option<PartId>,
    /// The call before which the text belongs, or the result beside or before it.
    pub beside: PartId,
    /// `true` if the text can move. Nothing moves over signed thinking or a compaction.
    pub movable: bool,
}

impl MisplacedWords {
    /// Returns the stable name of the place, as in [`Finding::detail`](crate::conversation::Finding::detail).
    pub const fn place_label(&self, role: Role) -> &'static str {
        match (role, self.part) {
            (Role::Assistant, _) => "after_call",
            (_, Some(_)) => "beside_result",
            (_, None) => "after_result",
        }
    }
}

/// Finds text in places where the rules accept none. Parts before a compaction are not judged.
pub(super) fn find_misplaced_words(walk: &mut PairingWalk<'_, '_>) {
    let find = match walk.rules.words {
        WordsPlace::BeforeCalls => after_call,
        WordsPlace::ApartFromResults => beside_result,
        WordsPlace::Bridged => after_result,
        WordsPlace::Anywhere | WordsPlace::NotAfterResults => return,
    };
    let units = &walk.pairing.units;
    let judged = (0..units.len()).filter(|index| units[*index].parts.start >= walk.begin.index());
    work::count(units.len());
    walk.pairing.misplaced_words = judged
        .filter_map(|index| find(walk.conversation, index, units))
        .collect();
}

/// Returns `true` if text is in a place that some server of the format may refuse, whatever the rules say.
pub fn has_text_beside_calls(conversation: &Conversation<'_>, pairing: &Pairing) -> bool {
    let units = &pairing.units;
    (0..units.len()).any(|index| {
        work::count(1);
        let found = match units[index].role {
            Role::Assistant => after_call(conversation, index, units),
            Role::User => {
                let beside = beside_result(conversation, index, units);
                beside.or_else(|| after_result(conversation, index, units))
            }
            Role::Tool | Role::System => None,
        };
        found.is_some()
    })
}

/// Returns the user's message directly after a tool message.
fn after_result(_: &Conversation<'_>, index: usize, units: &[TurnUnit]) -> Option<MisplacedWords> {
    let (before, unit) = (units.get(index.checked_sub(1)?)?, units.get(index)?);
    let follows = unit.role == Role::User && before.role == Role::Tool && !before.parts.is_empty();
    follows.then(|| MisplacedWords {
        unit: index,
        part: None,
        beside: PartId::new(before.parts.start),
        // The message stays, and another goes before it.
        movable: true,
    })
}

/// Returns the text after the first call of an assistant's message.
fn after_call(conversation: &Conversation<'_>, index: usize, units: &[TurnUnit]) -> Option<MisplacedWords> {
    let unit = units.get(index)?;
    if unit.role != Role::Assistant {
        return None;
    }
    let parts = conversation.parts.get(unit.parts.clone())?;
    work::count(parts.len());
    let call = parts.iter().position(|part| matches!(part.kind, PartKind::Call(_)))?;
    // Text before the first call is in its place.
    let after = parts.get(call..)?;
    let is_word = |part: &Part<'_>| matches!(part.kind, PartKind::Other);
    let first = after.iter().position(is_word)?;
    let last = after.iter().rposition(is_word)?;
    // Thinking is bound to its prefix. The blocks before a compaction are ignored.
    let first_after = unit.parts.start + call;
    let is_barrier = |(index, part): (usize, &Part<'_>)| {
        matches!(part.kind, PartKind::Compaction) || conversation.thinks(PartId::new(first_after + index))
    };
    Some(MisplacedWords {
        unit: index,
        part: Some(PartId::new(unit.parts.start + call + first)),
        beside: PartId::new(unit.parts.start + call),
        movable: !after.get(..last)?.iter().enumerate().any(is_barrier),
    })
}

/// Returns the text in a user's message that contains results.
fn beside_result(conversation: &Conversation<'_>, index: usize, units: &[TurnUnit]) -> Option<MisplacedWords> {
    let unit = units.get(index)?;
    if unit.role != Role::User {
        return None;
    }
    let parts = conversation.parts.get(unit.parts.clone())?;
    work::count(parts.len());
    let is_result = |part: &Part<'_>| matches!(part.kind, PartKind::Result(_));
    let result = parts.iter().position(is_result)?;
    let word = parts.iter().position(|part| !is_result(part))?;
    Some(MisplacedWords {
        unit: index,
        part: Some(PartId::new(unit.parts.start + word)),
        beside: PartId::new(unit.parts.start + result),
        // The provider ignores blocks before a compaction, so none may change sides.
        movable: !parts.iter().any(|part| matches!(part.kind, PartKind::Compaction)),
    })
}
