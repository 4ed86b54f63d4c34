//! The pairing algorithm, once for all formats: which result answers which call, and what breaks the rules.
//!
//! Walks the history once in document order; every step is linear, whatever ids a stranger sends. Never edits.

mod across_turns;
mod in_turn;
mod judgements;
mod misplaced_words;

use crate::conversation::{
    CallRowId, Conversation, Flaw, PartId, PartKind, ResultRowId, Role, TurnId, WithoutResult,
    rules::{PairingRules, ResultPlace},
    turns::{self, Turn, TurnUnit},
};
use in_turn::PairingWalk;

pub use misplaced_words::MisplacedWords;

/// What was found out about one history.
#[derive(Clone, Debug, Default)]
pub struct Pairing {
    /// Messages, or pieces of them, in document order.
    pub units: Vec<TurnUnit>,
    /// Assistant turns in document order.
    pub turns: Vec<Turn>,
    /// Client calls in document order; those behind which a compaction stands are left out.
    pub calls: Vec<CallRow>,
    /// Client results in document order; likewise.
    pub results: Vec<ResultRow>,
    /// Server calls and server results that lack their other half.
    pub server_halves: Vec<ServerHalf>,
    /// Fields that the target rejects, and whether they may be mended: not in a turn with thinking.
    pub flaws: Vec<(Flaw, bool)>,
    /// Words that stand where the provider accepts none, in document order.
    pub misplaced_words: Vec<MisplacedWords>,
    /// Whether the history begins with an assistant turn where the user is wanted.
    pub headless: bool,
}

impl Pairing {
    /// What the result at `part` turned out to be; none where no result stands there, or it is not judged.
    pub fn role_of(&self, part: PartId) -> Option<ResultRole> {
        // Rows stand in the order of their parts.
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
    pub answer: Option<ResultRowId>,
    /// What it means that it has no answer.
    pub without_result: WithoutResult,
    /// The first call of the turn, or of the body, with the same id, and how many stand before this one, itself
    /// included.
    pub repeats: Option<(CallRowId, usize)>,
    /// Whether name and input equal those of the call it repeats.
    pub equals_first: bool,
    /// Whether the target rejects the id.
    pub bad_id: bool,
}

/// One client result.
#[derive(Clone, Debug)]
pub struct ResultRow {
    /// Index of the part.
    pub part: PartId,
    /// Index of the unit.
    pub unit: usize,
    /// The turn in whose gap it stands.
    pub turn: Option<TurnId>,
    /// How it stands to the place of that turn's results.
    pub position: ResultPosition,
    /// Whether it stands where the answer of its call may stand.
    pub in_place: bool,
    /// Whether it names no call.
    pub nameless: bool,
    /// What it turned out to be.
    pub role: ResultRole,
}

impl ResultRow {
    /// Whether it stands where results of the turn belong in whose gap it is.
    pub fn is_leading(&self) -> bool {
        self.position == ResultPosition::Leading
    }
}

/// How a result stands to the place of the results of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultPosition {
    /// In it.
    Leading,
    /// Outside of it by nothing but a message border.
    Split,
    /// Outside of it.
    Outside,
}

/// What a result turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultRole {
    /// The answer of this call.
    Answers(CallRowId),
    /// A further result of this call, which has another answer.
    Repeats(CallRowId),
    /// A further result of a call outside the body, whose first result is this one.
    RepeatsResult(ResultRowId),
    /// A further result of a call that the provider holds and that was answered in an earlier request.
    RepeatsRemote,
    /// Nobody's: no call of this history can own it for certain.
    Orphan,
    /// Its call lives outside the body, or behind a compaction: not ours to judge.
    NotJudged,
}

/// A server call without result in a closed turn, or a server result without call.
#[derive(Clone, Copy, Debug)]
pub struct ServerHalf {
    /// Index of the part.
    pub part: PartId,
    /// Whether it may be dropped: not in a turn with thinking, not under a programmatic call.
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
    judgements::find_results_in_place(&mut walk);
    judgements::number_repeats(&mut walk);
    judgements::judge_open_end(&mut walk);
    judgements::judge_servers(&mut walk);
    judgements::place_anchors(&mut walk);
    judgements::select_flaws(&mut walk);
    misplaced_words::find_misplaced_words(&mut walk);
    let pairing = &mut walk.pairing;
    let assistant_first = pairing.units.first().is_some_and(|unit| unit.role == Role::Assistant);
    let whole = compaction.is_none() && !conversation.may_have_remote_calls;
    pairing.headless = rules.user_first && whole && assistant_first && {
        // Gemini minds only a call turn: "function call turn comes immediately after a user turn".
        rules.place != ResultPlace::NextContent || begins_with_calls(conversation, &pairing.units)
    };
    walk.pairing
}

/// Whether the run of assistant messages at the beginning holds a call.
pub(crate) fn begins_with_calls(conversation: &Conversation<'_>, units: &[TurnUnit]) -> bool {
    let run = units.iter().take_while(|unit| unit.role == Role::Assistant);
    let mut parts = run.flat_map(|unit| &conversation.parts[unit.parts.clone()]);
    parts.any(|part| matches!(part.kind, PartKind::Call(_)))
}

/// What a result must name to answer the call at `part`, or what the result there names, and the group of both.
fn key_of<'c>(conversation: &'c Conversation<'_>, part: PartId) -> (&'c [u8], u8) {
    match conversation.part(part).map(|found| &found.kind) {
        Some(PartKind::Call(call)) => (call.call_name(), call.family.group),
        Some(PartKind::Result(result)) => (result.call_name(), result.family.group),
        _ => (b"", 0),
    }
}

/// The call id that a call or a result part bears; empty for any other part.
pub fn id_of<'c>(conversation: &'c Conversation<'_>, part: PartId) -> &'c [u8] {
    match conversation.part(part).map(|found| &found.kind) {
        Some(PartKind::Call(call)) => &call.id,
        Some(PartKind::Result(result)) => &result.id,
        Some(PartKind::ServerCall(call)) => &call.id,
        Some(PartKind::ServerResult(id)) => id,
        _ => b"",
    }
}
