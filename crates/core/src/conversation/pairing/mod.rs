//! The pairing algorithm, one for all formats: it matches results to calls and finds breaches of the rules.
//!
//! It walks the history once in document order and never edits. Each step is linear, whatever ids a client sends.

mod across_turns;
mod in_turn;
mod judgements;
mod misplaced_words;

use crate::{
    conversation::{
        CallRowId, Conversation, Flaw, PartId, PartKind, ResultRowId, Role, TurnId, WithoutResult,
        rules::{PairingRules, ResultPlace},
        turns::{self, Turn, TurnUnit},
    },
    work,
};
use in_turn::PairingWalk;

pub use misplaced_words::{MisplacedWords, has_text_beside_calls};

/// The pairing of one history.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// Messages, or pieces of them, in document order.
    pub units: Vec<TurnUnit>,
    /// Assistant turns in document order.
    pub turns: Vec<Turn>,
    /// Client calls after the last compaction, in document order.
    pub calls: Vec<CallRow>,
    /// Client results after the last compaction, in document order.
    pub results: Vec<ResultRow>,
    /// Server calls and server results without their other half.
    pub server_halves: Vec<ServerHalf>,
    /// Rejected fields, each with `true` if it may be fixed. In a turn with thinking it may not.
    pub flaws: Vec<(Flaw, bool)>,
    /// Text in places where the provider accepts none, in document order.
    pub misplaced_words: Vec<MisplacedWords>,
    /// `true` if the history begins with an assistant turn although the user must be first.
    pub headless: bool,
}

impl Pairing {
    /// Returns the role of the result at `part`. `None` if the part is no result or is not judged.
    pub fn role_of(&self, part: PartId) -> Option<ResultRole> {
        // Rows are in the order of their parts.
        let row = self.results.binary_search_by_key(&part, |row| row.part).ok()?;
        self.results.get(row).map(|row| row.role)
    }
}

/// One client call.
#[derive(Clone, Debug)]
pub struct CallRow {
    /// Index of the part.
    pub part: PartId,
    /// Index of the turn.
    pub turn: TurnId,
    /// The result that answers it, as an index into [`Pairing::results`].
    pub result: Option<ResultRowId>,
    /// Consequence if it has no result.
    pub without_result: WithoutResult,
    /// The first call of the turn, or of the body, with the same id, and the ordinal of this one. `None` for the first.
    pub repeats: Option<(CallRowId, usize)>,
    /// `true` if an earlier call of its turn has its id, which is legal. The result of that call is its own, too.
    pub shares_id: bool,
    /// `true` if its name and input equal those of the call that it repeats.
    pub equals_first: bool,
    /// `true` if the provider rejects its id.
    pub bad_id: bool,
}

/// One client result.
#[derive(Clone, Debug)]
pub struct ResultRow {
    /// Index of the part.
    pub part: PartId,
    /// Index of the unit.
    pub unit: usize,
    /// The turn in whose gap it lies. `None` before the first turn.
    pub turn: Option<TurnId>,
    /// Its position relative to the place of that turn's results.
    pub position: ResultPosition,
    /// `true` if it lies where the result of its call belongs.
    pub in_place: bool,
    /// `true` if it has no id and the format requires one.
    pub nameless: bool,
    /// Its role.
    pub role: ResultRole,
}

impl ResultRow {
    /// Returns `true` if it lies where results of its turn belong.
    pub fn is_leading(&self) -> bool {
        self.position == ResultPosition::Leading
    }
}

/// The position of a result relative to the place of a turn's results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPosition {
    /// Inside that place.
    Leading,
    /// Outside it, but only because a message border separates it from the other results.
    Split,
    /// Outside it.
    Outside,
}

/// The role of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultRole {
    /// The result of this call.
    Answers(CallRowId),
    /// A further result of this call, which the provider accepts beside the first.
    AlsoAnswers(CallRowId),
    /// A further result of this call, which already has one.
    Repeats(CallRowId),
    /// A further result of this call, which the provider accepts, but not in this place.
    Strays(CallRowId),
    /// A further result of a remote call, whose first result is this one.
    RepeatsResult(ResultRowId),
    /// A further result of a remote call that an earlier request has answered.
    RepeatsRemote,
    /// An orphan: no call of this history owns it for certain.
    Orphan,
    /// Not judged, because its call may lie outside the body or before a compaction.
    NotJudged,
}

impl ResultRole {
    /// Returns the call of which this is a result. `None` if it is not in the body.
    pub const fn call(self) -> Option<CallRowId> {
        match self {
            Self::Answers(call) | Self::AlsoAnswers(call) | Self::Repeats(call) | Self::Strays(call) => Some(call),
            Self::RepeatsResult(_) | Self::RepeatsRemote | Self::Orphan | Self::NotJudged => None,
        }
    }
}

/// A server call without a result in a closed turn, or a server result without a call.
#[derive(Clone, Copy, Debug)]
pub struct ServerHalf {
    /// Index of the part.
    pub part: PartId,
    /// `true` if it may be dropped: not in a turn with thinking, not under a programmatic call.
    pub droppable: bool,
}

/// Pairs the calls and results of `conversation`.
pub fn pair_history(conversation: &Conversation<'_>, rules: PairingRules) -> Pairing {
    let units = turns::split_units(conversation);
    let compaction = conversation.compaction;
    let turns = turns::group_turns(conversation, &units, rules, compaction.unwrap_or_default());
    let pairing = Pairing {
        units,
        turns,
        ..Pairing::default()
    };
    let mut walk = PairingWalk::new(conversation, rules, compaction.unwrap_or_default(), pairing);
    walk.walk_history();
    across_turns::match_across_turns(&mut walk);
    // Last, because only now are the roles of all results final.
    judgements::find_results_in_place(&mut walk);
    judgements::number_repeats(&mut walk);
    judgements::judge_open_end(&mut walk);
    judgements::judge_servers(&mut walk);
    judgements::place_insert_points(&mut walk);
    judgements::select_flaws(&mut walk);
    misplaced_words::find_misplaced_words(&mut walk);
    let pairing = &mut walk.pairing;
    // After a compaction, or with a history at the provider, the body does not show the true beginning.
    let assistant_first = first_speaker(&pairing.units).is_some_and(|unit| unit.role == Role::Assistant);
    let whole = compaction.is_none() && !conversation.may_have_remote_calls;
    pairing.headless = rules.user_first && whole && assistant_first && {
        // Gemini refuses only a leading turn with calls ("function call turn comes immediately after a user turn").
        rules.place != ResultPlace::NextContent || begins_with_calls(conversation, &pairing.units)
    };
    walk.pairing
}

/// Returns the first unit that is not instructions.
pub(crate) fn first_speaker(units: &[TurnUnit]) -> Option<&TurnUnit> {
    let mut units = units.iter();
    units.find(|unit| {
        work::count(1);
        unit.role != Role::System
    })
}

/// Returns `true` if the assistant messages at the beginning contain a call.
pub(crate) fn begins_with_calls(conversation: &Conversation<'_>, units: &[TurnUnit]) -> bool {
    // Gemini reads consecutive model contents as one turn, so the call may be in any of them.
    let run = units.iter().take_while(|unit| unit.role == Role::Assistant);
    let mut parts = run.flat_map(|unit| {
        work::count(unit.parts.len().saturating_add(1));
        &conversation.parts[unit.parts.clone()]
    });
    parts.any(|part| matches!(part.kind, PartKind::Call(_)))
}

/// Returns the name by which the call or result at `part` pairs, and its group.
fn key_of<'c>(conversation: &'c Conversation<'_>, part: PartId) -> (&'c [u8], u8) {
    match conversation.part(part).map(|found| &found.kind) {
        Some(PartKind::Call(call)) => (call.call_name(), call.family.group),
        Some(PartKind::Result(result)) => (result.call_name(), result.family.group),
        _ => (b"", 0),
    }
}

/// Returns the id of the call or result at `part`. Empty for any other part.
pub fn id_of<'c>(conversation: &'c Conversation<'_>, part: PartId) -> &'c [u8] {
    match conversation.part(part).map(|found| &found.kind) {
        Some(PartKind::Call(call)) => &call.id,
        Some(PartKind::Result(result)) => &result.id,
        Some(PartKind::ServerCall(call)) => &call.id,
        Some(PartKind::ServerResult(id)) => id,
        _ => b"",
    }
}
