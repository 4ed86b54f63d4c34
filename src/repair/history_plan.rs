//! The plan of one history, as data: what goes where, what leaves its place, and the report of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::{
    RepairReport,
    known_answers::{Assignment, RealResult, RemoteAnswers},
    texts::Placeholder,
};
use crate::conversation::{Flaw, PartId, TurnId};

/// The repair of one history.
#[derive(Clone, Debug, Default)]
pub(super) struct HistoryPlan {
    /// Answers and quotes to put in, by turn; only turns that need some.
    pub(super) turns: BTreeMap<TurnId, TurnPlan>,
    /// What becomes of parts that do not stay as they are.
    pub(super) part_changes: HashMap<PartId, PartChange>,
    /// New ids of call and result parts.
    pub(super) new_ids: HashMap<PartId, String>,
    /// Results to quote in front of the words of a later unit.
    pub(super) deferred_quotes: BTreeMap<usize, Vec<PartId>>,
    /// Results to quote behind a unit, as messages of their own.
    pub(super) quotes_behind: BTreeMap<usize, Vec<PartId>>,
    /// Fields to mend.
    pub(super) fixes: Vec<Flaw>,
    /// Messages of which words leave their place.
    pub(super) arranged: BTreeSet<usize>,
    /// Whether results go up in messages without words.
    pub(super) results_apart: bool,
    /// Whether a user turn is put in front.
    pub(super) adds_opening: bool,
    /// Remote calls: answered first, with placeholders.
    pub(super) remote_calls: Vec<String>,
    /// What was found and what is done about it.
    pub(super) report: RepairReport,
    pub(super) assigned: Vec<Assignment>,
    pub(super) remote_answers: Option<RemoteAnswers>,
}

/// What is put into the gap of one turn.
#[derive(Clone, Debug, Default)]
pub(super) struct TurnPlan {
    /// Answers, in the order of the calls.
    pub(super) answers: Vec<PlannedAnswer>,
    /// Results that stood in front of the place of answers: quoted behind them.
    pub(super) quotes: Vec<PartId>,
    /// Whether the system messages in front of the answering message go behind it.
    pub(super) moves_systems: bool,
}

/// An answer that is put in.
#[derive(Clone, Debug)]
pub(super) struct PlannedAnswer {
    /// The part of the call.
    pub(super) call: PartId,
    /// Where it comes from.
    pub(super) source: AnswerSource,
}

/// Where an answer comes from.
#[derive(Clone, Debug)]
pub(super) enum AnswerSource {
    /// A result of this body.
    Part(PartId),
    /// A result from elsewhere.
    Real(RealResult),
    /// Nothing real is to be had.
    Placeholder(Placeholder),
}

/// What becomes of a part that does not stay as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PartChange {
    /// It leaves its place: moved, dropped, or quoted elsewhere.
    Removed,
    /// It is quoted where it stands.
    Quoted,
    /// A call that becomes text where it stands, with the reasoning right before it.
    AsText,
}
