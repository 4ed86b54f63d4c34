//! Text in places where the provider accepts none: behind a call, or in a message of results.

use crate::conversation::{
    Conversation, Part, PartId, PartKind, Role, pairing::in_turn::PairingWalk, rules::WordsPlace, turns::TurnUnit,
};

/// Text in a place where the provider accepts none. Images and documents count as text.
#[derive(Clone, Copy, Debug)]
pub struct MisplacedWords {
    /// Index of the unit.
    pub unit: usize,
    /// The first misplaced part.
    pub part: PartId,
    /// The call before which the text belongs, or the first result of its message.
    pub beside: PartId,
    /// `true` if the text can move. Nothing moves over signed thinking or a compaction.
    pub movable: bool,
}

impl MisplacedWords {
    /// Returns the stable name of the place, as in [`Finding::detail`](crate::conversation::Finding::detail).
    pub const fn place_label(&self, role: Role) -> &'static str {
        match role {
            Role::Assistant => "behind_call",
            _ => "beside_result",
        }
    }
}

/// Finds text in places where the rules accept none. Parts before a compaction are not judged.
pub(super) fn find_misplaced_words(walk: &mut PairingWalk<'_, '_>) {
    let find = match walk.rules.words {
        WordsPlace::BeforeCalls => behind_call,
        WordsPlace::ApartFromResults => beside_result,
        WordsPlace::Anywhere | WordsPlace::NotBehindResults => return,
    };
    let units = walk.pairing.units.iter().enumerate();
    let judged = units.filter(|(_, unit)| unit.parts.start >= walk.begin.index());
    walk.pairing.misplaced_words = judged
        .filter_map(|(index, unit)| find(walk.conversation, index, unit))
        .collect();
}

/// Returns the text behind the first call of an assistant's message.
fn behind_call(conversation: &Conversation<'_>, index: usize, unit: &TurnUnit) -> Option<MisplacedWords> {
    if unit.role != Role::Assistant {
        return None;
    }
    let parts = conversation.parts.get(unit.parts.clone())?;
    let call = parts.iter().position(|part| matches!(part.kind, PartKind::Call(_)))?;
    // Text before the first call is in its place.
    let behind = parts.get(call..)?;
    let is_word = |part: &Part<'_>| matches!(part.kind, PartKind::Other);
    let first = behind.iter().position(is_word)?;
    let last = behind.iter().rposition(is_word)?;
    // Thinking is bound to its prefix. The blocks before a compaction are ignored.
    let first_behind = unit.parts.start + call;
    let is_barrier = |(index, part): (usize, &Part<'_>)| {
        matches!(part.kind, PartKind::Compaction) || conversation.thinks(PartId::new(first_behind + index))
    };
    Some(MisplacedWords {
        unit: index,
        part: PartId::new(unit.parts.start + call + first),
        beside: PartId::new(unit.parts.start + call),
        movable: !behind.get(..last)?.iter().enumerate().any(is_barrier),
    })
}

/// Returns the text in a user's message that contains results.
fn beside_result(conversation: &Conversation<'_>, index: usize, unit: &TurnUnit) -> Option<MisplacedWords> {
    if unit.role != Role::User {
        return None;
    }
    let parts = conversation.parts.get(unit.parts.clone())?;
    let is_result = |part: &Part<'_>| matches!(part.kind, PartKind::Result(_));
    let result = parts.iter().position(is_result)?;
    let word = parts.iter().position(|part| !is_result(part))?;
    Some(MisplacedWords {
        unit: index,
        part: PartId::new(unit.parts.start + word),
        beside: PartId::new(unit.parts.start + result),
        // The provider ignores blocks before a compaction, so none may change sides.
        movable: !parts.iter().any(|part| matches!(part.kind, PartKind::Compaction)),
    })
}
